"""Objects of the archive that are missing, damaged, doubled or in the wrong place; no hop failed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.spark.damage.archive import (
    CONTRACTS,
    FLEET,
    HANDOVERS,
    LEDGER,
    TAP,
    WRITTEN,
    Archive,
    event,
    is_report,
)
from tests.spark.damage.expected import (
    ARCHIVE,
    BROKEN,
    INCOMPLETE,
    NOTHING_LOST,
    PROVEN,
    Expected,
    Fact,
    in_each,
    kind,
)

_ANY: Final = ("attested", "partly")


@in_each({TAP: 1, LEDGER: 2, HANDOVERS: 3})
def truncated(archive: Archive, folder: str, hour: int) -> Expected:
    """Half of an object's bytes are gone."""
    return _unreadable(archive, folder, hour, lambda path: path.write_bytes(path.read_bytes()[: _half(path)]))


@in_each({TAP: 4, LEDGER: 5, HANDOVERS: 6})
def not_gzip(archive: Archive, folder: str, hour: int) -> Expected:
    """An object holds plain text."""
    return _unreadable(archive, folder, hour, lambda path: path.write_bytes(b"<Error>SlowDown</Error>\n"))


@in_each({TAP: 7, LEDGER: 8})
def zeroed(archive: Archive, folder: str, hour: int) -> Expected:
    """Bytes in an object's middle are zero: its checksum does not fit."""

    def zero(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
        path.write_bytes(bytes(content))

    return _unreadable(archive, folder, hour, zero)


@in_each({TAP: 9, LEDGER: 10, HANDOVERS: 11})
def without_bytes(archive: Archive, folder: str, hour: int) -> Expected:
    """An object has no bytes."""
    return _unreadable(archive, folder, hour, lambda path: path.write_bytes(b""))


def _half(path: Path) -> int:
    return path.stat().st_size // 2


def _unreadable(archive: Archive, folder: str, hour: int, damage: Callable[[Path], object]) -> Expected:
    path = archive.objects(folder, hour)[0]
    damage(path)
    fact = Fact("unreadable_object", ARCHIVE, files=(archive.name(path),))
    # A line that the damage cut in two may be quarantined besides.
    return Expected((INCOMPLETE,), (fact,), devices=_devices(archive, folder), quarantined=(0, 1))


@in_each({TAP: 14, LEDGER: 15, HANDOVERS: 16})
def hour_gone(archive: Archive, folder: str, hour: int) -> Expected:
    """All objects of an hour are gone from one folder; the other folders have their rows."""
    archive.delete(archive.objects(folder, hour))
    fact = Fact("missing_records", ARCHIVE, files=(archive.hour_name(folder, hour),))
    return Expected((INCOMPLETE,), (fact,), devices=_devices(archive, folder))


@in_each({TAP: 1, LEDGER: 2, HANDOVERS: 3})
def object_gone(archive: Archive, folder: str, hour: int) -> Expected:
    """One object among several of an hour is gone; its writer lists it."""
    return _gone(archive, folder, archive.objects(folder, hour)[:1])


@in_each({TAP: 4, LEDGER: 5, HANDOVERS: 6})
def objects_gone(archive: Archive, folder: str, hour: int) -> Expected:
    """Two objects among several of an hour are gone; their writer lists them."""
    return _gone(archive, folder, archive.objects(folder, hour)[1:3])


@in_each({TAP: 23, LEDGER: 23, HANDOVERS: 23})
def last_object_gone(archive: Archive, folder: str, hour: int) -> Expected:
    """The last object that a writer wrote is gone."""
    return _gone(archive, folder, [max(archive.objects(folder, hour), key=lambda each: each.name)])


@in_each({TAP: 18, LEDGER: 19, HANDOVERS: 20})
def replaced(archive: Archive, folder: str, hour: int) -> Expected:
    """An object lacks half of its rows before any audit has seen it; its writer listed another digest."""
    path = archive.objects(folder, hour)[0]
    lines = archive.lines(path)
    archive.replace(path, lines[: len(lines) // 2])
    writer = archive.entries(path)[0].name.removeprefix(f"{path.name}.").partition(".")[0]
    fact = Fact("altered_object", ARCHIVE, files=(archive.name(path),), said=f"its writer {writer} listed it")
    may = (Fact("missing_records", ARCHIVE, files=(archive.hour_name(folder, hour),)),)
    return Expected((BROKEN,), (fact,), may, devices=_devices(archive, folder))


@in_each({LEDGER: 16})
def hidden(archive: Archive, folder: str, hour: int) -> Expected:
    """An object is gone; its hour has an unreadable receipt, and a published list whose file is missing."""
    expected = _gone(archive, folder, archive.objects(folder, hour)[:1])
    receipt, published = (
        archive.root / f"{root}/{archive.hour_name(folder, hour)}/{name}"
        for root, name in (("compactions", "receipt.json"), ("published", "files"))
    )
    file = f"compacted/{archive.hour_name(folder, hour)}/run=0/part-0.parquet"
    for path, text in ((receipt, "{"), (published, f"{archive.root}/{file}\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    facts = (
        Fact("unreadable_object", ARCHIVE, files=(archive.name(receipt),)),
        Fact("unreadable_object", ARCHIVE, files=(file,)),
        Fact("unattested_object", ARCHIVE, files=(archive.name(published),)),
    )
    return expected.and_(Expected((INCOMPLETE,), facts))


@kind
def object_gone_twice(archive: Archive) -> Expected:
    """An object of the tap is gone, and with it those of the ledger: only devices and lists know of it."""
    gone = archive.objects(TAP, 8)[0]
    ids = {event(json.loads(line))["id"] for line in archive.lines(gone)}
    ledger = [
        path
        for path in archive.objects(LEDGER, 8)
        if any(json.loads(line)["id"] in ids for line in archive.lines(path))
    ]
    return _gone(archive, TAP, [gone]).and_(_gone(archive, LEDGER, ledger))


@kind
def late_object_gone(archive: Archive) -> Expected:
    """An object of the ledger that was written two hours late is gone: its rows are of another hour."""
    path = archive.objects(LEDGER, 9)[0]
    late = archive.root / archive.hour_name(LEDGER, 11) / path.name
    for entry in archive.entries(path):
        entry.rename(entry.parent.with_name(late.parent.name) / entry.name)
    path.rename(late)
    return _gone(archive, LEDGER, [late])


@kind
def list_gone(archive: Archive) -> Expected:
    """Entries of a list are gone, and their objects are there: that alone is missing."""
    path = archive.objects(LEDGER, 12)[1]
    fact = Fact("missing_records", ARCHIVE, files=(f"{WRITTEN}/{archive.hour_name(LEDGER, 12)}",))
    archive.delete(archive.entries(path))
    return Expected((INCOMPLETE,), (fact,), unseen=0)


@kind
def list_and_object_gone(archive: Archive) -> Expected:
    """An object is gone together with its entry: the numbers before and behind it show that."""
    path = archive.objects(LEDGER, 13)[1]
    fact = Fact("missing_records", ARCHIVE, files=(f"{WRITTEN}/{archive.hour_name(LEDGER, 13)}",))
    archive.delete([path, *archive.entries(path)])
    return Expected((INCOMPLETE,), (fact,))


@kind
def more_lost_than_gone(archive: Archive) -> Expected:
    """An object of the ledger is gone, and of more events than it held a router recorded nothing."""
    first, *others = archive.objects(LEDGER, 14)
    lost = sum(len(archive.lines(path)) - 1 for path in others)
    for path in others:
        archive.write(path, archive.lines(path)[:1])
    # Where a webhook has a receipt, the event was in its inbox.
    shown = sum(1 for _ in archive.rows(HANDOVERS, 14))
    expected = _gone(archive, LEDGER, [first])
    may = (Fact("lost", ("router",)),)
    return Expected((BROKEN,), expected.facts, may, {}, {"lost": lost - shown})


def _gone(archive: Archive, folder: str, paths: list[Path]) -> Expected:
    facts = tuple(Fact("missing_records", ARCHIVE, files=(each,)) for each in archive.delete(paths))
    return Expected((INCOMPLETE,), facts, devices=_devices(archive, folder))


@kind
def fleet_unreadable(archive: Archive) -> Expected:
    """The list of the fleet's devices is cut short, so the expected devices are unknown."""
    path = archive.objects(FLEET)[0]
    every = dict.fromkeys(archive.devices(), ("attested", "partly", "unregistered"))
    path.write_bytes(path.read_bytes()[: _half(path)])
    fact = Fact("unreadable_object", ARCHIVE, files=(archive.name(path),))
    return Expected((INCOMPLETE,), (fact,), devices=every)


@kind
def hour_gone_everywhere(archive: Archive) -> Expected:
    """All objects of an hour are gone from tap, ledger and handovers.

    The numbers of that hour are missing: the next manifests state one of each device, nobody the others.
    """
    hour = 17
    devices = archive.devices()
    sent = sum(1 for _ in archive.rows(TAP, hour))
    for folder in (TAP, LEDGER, HANDOVERS):
        archive.delete(archive.objects(folder, hour))
    may = (
        Fact("missing_records", ARCHIVE),
        Fact("missing_manifest", ("device_cloud",)),
        Fact("lost", ("device_cloud", "iot_rule")),
    )
    stated = len(devices)
    totals = {name: count for name, count in NOTHING_LOST.items() if name != "lost"}
    return Expected(
        (BROKEN, INCOMPLETE),
        (),
        may,
        totals,
        devices=dict.fromkeys(devices, ("partly",)),
        unseen=sent - stated,
    )


@kind
def tap_rows_gone(archive: Archive) -> Expected:
    """An hour's rows of one device are gone from the tap; the ledger has them."""
    device, hour = archive.devices()[0], 18
    archive.edit(
        TAP, lambda row: None if row["client_id"] == device and not is_report(row) else row, hour=hour
    )
    fact = Fact("missing_records", ARCHIVE, files=(archive.hour_name(TAP, hour),))
    return Expected((INCOMPLETE,), (fact,), devices={device: _ANY})


@in_each({TAP: 19, LEDGER: 20, HANDOVERS: 21})
def object_twice(archive: Archive, folder: str, hour: int) -> Expected:
    """An object is there a second time under another name: each of its rows counts once."""
    path = archive.objects(folder, hour)[0]
    copy = path.with_name("f" * 32 + ".json.gz")
    shutil.copyfile(path, copy)
    fact = Fact("duplicate_object", ARCHIVE, files=(archive.name(path), archive.name(copy)))
    return Expected((PROVEN,), (fact,), unseen=0)


@kind
def rows_twice(archive: Archive) -> Expected:
    """A part of the ledger's rows lies in a second object as well, as after a redelivered batch."""
    path = archive.objects(LEDGER, 19)[0]
    archive.write(path.with_name("e" * 32 + ".json.gz"), archive.lines(path)[10:30])
    return Expected((PROVEN,), unseen=0)


@kind
def hour_moved(archive: Archive) -> Expected:
    """The ledger's objects of an hour lie in the folder of the next one: a writer's clock was ahead."""
    for path in archive.objects(LEDGER, 20):
        path.rename(archive.root / archive.hour_name(LEDGER, 21) / path.name)
    return Expected((PROVEN,), may=(Fact("misplaced_object", ARCHIVE),), unseen=0)


@kind
def midnight_skew(archive: Archive) -> Expected:
    """The first five rows of the ledger lie in the folder of the day before."""
    path = archive.objects(LEDGER, 0)[0]
    lines = archive.lines(path)
    # With another name: the object would be one that was moved, and altered as well.
    name = path.name.removesuffix(".json.gz")[::-1] + ".json.gz"
    before = archive.root / archive.hour_name(LEDGER, 23, day="2026-02-28") / name
    archive.write(before, lines[:5])
    archive.write(path, lines[5:])
    return Expected((PROVEN,), may=(Fact("misplaced_object", ARCHIVE),), unseen=0)


@kind
def stray_files(archive: Archive) -> Expected:
    """Files that no function writes lie among the objects: they count for nothing and stop nothing."""
    hour = archive.root / archive.hour_name(LEDGER, 22)
    (hour / "0123.json.gz.tmp").write_bytes(b"half of an object")
    (hour / "notes.txt").write_text("restored from backup\n")
    lines = archive.lines(archive.objects(TAP, 22)[0])
    archive.write(archive.root / LEDGER / "restored.json.gz", lines)
    (archive.root / CONTRACTS / "README.txt").write_text("compiled contracts\n")
    return Expected((PROVEN,), may=(Fact("misplaced_object", ARCHIVE),), unseen=0)


@kind
def stray_contract(archive: Archive) -> Expected:
    """A contract that no row names is cut short."""
    (archive.root / CONTRACTS / "0123456789abcdef.json").write_text('{"event_types": {')
    return Expected((PROVEN,), may=(Fact("unreadable_object", ARCHIVE),), unseen=0)


@kind
def wrong_folder(archive: Archive) -> Expected:
    """An object of the tap lies in the ledger's folder: the tap has a hole."""
    hour = 23
    path = archive.objects(TAP, hour)[0]
    rows = len(archive.lines(path))
    moved = archive.root / archive.hour_name(LEDGER, hour) / path.name.replace("0", "d")
    path.rename(moved)
    key = (archive.name(moved),)
    may = Fact("misplaced_object", ARCHIVE, files=key), Fact("not_understood", ("router",), files=key)
    fact = Fact("missing_records", ARCHIVE, files=(archive.name(path),))
    devices = _devices(archive, TAP)
    return Expected((INCOMPLETE,), (fact,), may, devices=devices, quarantined=(0, rows))


def _devices(archive: Archive, folder: str) -> dict[str, tuple[str, ...]]:
    """Return what coverage may say of each device: without rows of the tap, manifests are missing too."""
    return dict.fromkeys(archive.devices(), _ANY) if folder == TAP else {}


@kind
def contract_gone(archive: Archive) -> Expected:
    """A contract that half of the ledger names is not in the archive: those rows are not understood."""
    versions = [row["contract_version"] for row in archive.rows(LEDGER)]
    later = versions[-1]
    (archive.root / CONTRACTS / f"{later}.json").unlink()
    fact = Fact("not_understood", ("router",), said="unknown_contract", count=None)
    may = (
        Fact("not_understood", ("router", "inbox_consumer")),
        Fact("unreadable_object", ARCHIVE),
        Fact("missing_records", ARCHIVE),
    )
    return Expected((INCOMPLETE,), (fact,), may, quarantined=tuple(range(len(versions))))
