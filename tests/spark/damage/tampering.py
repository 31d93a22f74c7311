"""Changes to an archive after it was audited. The next audit of the window names the objects."""

from __future__ import annotations

from typing import Final

from tests.spark.damage.archive import HANDOVERS, LEDGER, TAP, Archive
from tests.spark.damage.expected import BROKEN, NOTHING_LOST, Expected, Fact, in_each

ARCHIVE: Final = ("archive",)


@in_each({TAP: 1, LEDGER: 2, HANDOVERS: 3})
def altered(archive: Archive, folder: str, hour: int) -> Expected:
    """One row of an object is another, and everything else agrees with it."""
    path = archive.objects(folder, hour)[0]
    lines = archive.lines(path)
    member = '"principal":"' if folder == TAP else '"attempt":1'
    lines[-1] = lines[-1].replace(member, '"principal":"x' if folder == TAP else '"attempt":2')
    archive.write(path, lines)
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


def _second(fact: Fact, *may: Fact, devices: dict[str, tuple[str, ...]] | None = None) -> Expected:
    return Expected((BROKEN,), (fact,), may, dict(NOTHING_LOST), devices=devices or {})
