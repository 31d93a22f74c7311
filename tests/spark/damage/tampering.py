"""Changes to an archive after it was audited. The next audit of the window names the objects."""

import hashlib
import json
from pathlib import Path

from tests.spark.damage.archive import HANDOVERS, LEDGER, TAP, Archive
from tests.spark.damage.expected import ARCHIVE, BROKEN, INCOMPLETE, NOTHING_LOST, Expected, Fact, in_each


@in_each({TAP: 1, LEDGER: 2, HANDOVERS: 3})
def altered(archive: Archive, folder: str, hour: int) -> Expected:
    """One row of an object is another, and everything else agrees with it."""
    path = archive.objects(folder, hour)[0]
    lines = archive.lines(path)
    member = '"principal":"' if folder == TAP else '"attempt":1'
    lines[-1] = lines[-1].replace(member, '"principal":"x' if folder == TAP else '"attempt":2')
    archive.replace(path, lines)
    return _second(Fact("altered_object", ARCHIVE, files=(archive.name(path),), said="altered"))


@in_each({TAP: 4, LEDGER: 5})
def added(archive: Archive, folder: str, hour: int) -> Expected:
    """An object came into an hour that was long closed; its rows are there already."""
    path = archive.objects(folder, hour)[0]
    new = path.with_name("d" * 32 + ".json.gz")
    archive.write(new, archive.lines(path)[:3])
    return _second(Fact("altered_object", ARCHIVE, files=(archive.name(new),), said="added"))


@in_each({TAP: 7, LEDGER: 8, HANDOVERS: 9})
def removed(archive: Archive, folder: str, hour: int) -> Expected:
    """An object is gone: what it held is not lost, for the audit before has seen the object."""
    path = archive.objects(folder, hour)[0]
    path.unlink()
    return _second(
        Fact("altered_object", ARCHIVE, files=(archive.name(path),), said="removed"),
        Fact("missing_records", ARCHIVE, files=(archive.hour_name(folder, hour), archive.name(path))),
        devices=dict.fromkeys(archive.devices(), ("attested", "partly")),
    )


@in_each({TAP: 10, LEDGER: 11})
def erased(archive: Archive, folder: str, hour: int) -> Expected:
    """One row of an object is another, and a forged receipt says that an erasure did it."""
    path = archive.objects(folder, hour)[0]
    before = _digest(path)
    expected = altered(archive, folder, hour)
    changes = {archive.name(path): [before, _digest(path)]}
    receipt = _document(archive, f"erasures/{folder}/receipt-1.json", {"changes": changes, "erased_at_ms": 1})
    return expected.and_(_refused(receipt))


@in_each({LEDGER: 13, HANDOVERS: 14})
def compacted(archive: Archive, folder: str, hour: int) -> Expected:
    """An object is gone, and a forged receipt says that the compaction took all rows of its hour."""
    inputs = {archive.name(each): _digest(each) for each in archive.objects(folder, hour)}
    members = {
        "version": 3,
        "run": "0",
        "rows": 1,
        "copies": 0,
        "line_texts": 0,
        "inputs": inputs,
        "files": {},
    }
    name = f"compactions/{archive.hour_name(folder, hour)}/receipt.json"
    receipt = _document(archive, name, {**members, "attested_at_ms": 1})
    return removed(archive, folder, hour).and_(_refused(receipt))


@in_each({TAP: 16})
def published(archive: Archive, folder: str, hour: int) -> Expected:
    """The list of compacted files names one for an hour that was never compacted, and there is none."""
    file = f"compacted/{archive.hour_name(folder, hour)}/run=0/part-0.parquet"
    path = archive.root / "published" / archive.hour_name(folder, hour) / "files"
    path.parent.mkdir(parents=True)
    path.write_text(f"{archive.root}/{file}\n")
    return _refused(archive.name(path)).and_(_incomplete(Fact("unreadable_object", ARCHIVE, files=(file,))))


@in_each({TAP: 18})
def stray(archive: Archive, folder: str, hour: int) -> Expected:
    """Rows come in an object beside the hours of a day that was audited."""
    path = archive.objects(folder, hour)[0]
    new = path.parents[1] / f"{'e' * 32}.json.gz"
    archive.write(new, archive.lines(path)[:3])
    fact = Fact("altered_object", ARCHIVE, files=(archive.name(new),), said="added")
    return _second(fact, Fact("misplaced_object", ARCHIVE, files=(archive.name(new),)))


def _digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _document(archive: Archive, name: str, members: dict[str, object]) -> str:
    """Write a document without a signature that any key made; returns its key."""
    path = archive.root / name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**members, "attestation": {"key": "forged", "signature": "A" * 43 + "="}}))
    return name


def _refused(name: str) -> Expected:
    return _incomplete(Fact("unattested_object", ARCHIVE, files=(name,)))


def _incomplete(fact: Fact) -> Expected:
    return Expected((INCOMPLETE,), (fact,), totals=dict(NOTHING_LOST), unseen=0)


def _second(fact: Fact, *may: Fact, devices: dict[str, tuple[str, ...]] | None = None) -> Expected:
    return Expected((BROKEN,), (fact,), may, dict(NOTHING_LOST), devices=devices or {})
