"""Events that are others in the archive than what their devices stored, under the same identity."""

import hashlib
from collections.abc import Iterator
from typing import Final

from tests.spark.damage.archive import (
    LEDGER,
    TAP,
    Archive,
    Row,
    agree,
    change_report,
    event,
    is_manifest,
    is_report,
    manifest_of,
    sent,
    with_event,
)
from tests.spark.damage.expected import ARCHIVE, BROKEN, INCOMPLETE, PROVEN, Expected, Fact, kind

ALTERED: Final = {
    "data": {"value": 1_000_000, "unit": "1"},
    "subject": "/elsewhere",
    "time": "2026-03-01T00:00:00.000Z",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
"""Members that are altered, each of another device's event."""


@kind
def altered_in_the_tap(archive: Archive) -> Expected:
    """The tap has other data, another subject or time, or an attribute more, than ledger and manifest say."""
    rows = _alter(archive, 1)
    return _expected(rows, *(Fact("content_mismatch", ARCHIVE, {"id": event(row)["id"]}) for row in rows))


@kind
def altered_alike(archive: Archive) -> Expected:
    """The same, and the ledger agrees with the tap: the manifest alone has the digest of what was stored."""
    rows = _alter(archive, 2)
    agree(archive)
    return _expected(rows)


@kind
def altered_in_the_ledger(archive: Archive) -> Expected:
    """The ledger has the digest of another event than tap and manifest."""
    row = next(row for row in archive.rows(LEDGER, 3) if not is_report(row))
    archive.edit(LEDGER, lambda each: {**each, "digest": "0" * 16} if each["id"] == row["id"] else each, 3)
    return Expected((BROKEN,), (Fact("content_mismatch", ARCHIVE, {"id": row["id"]}),), unseen=0)


@kind
def unknown_rule(archive: Archive) -> Expected:
    """A newer forwarder makes the digest of a manifest in a way that the audit does not know."""
    device = archive.devices()[4]
    row = manifest_of(archive, device, 4)
    known = change_report(archive, row, lambda data: {**data, "key_digest": "sha3"})
    fact = Fact("not_understood", ("device_cloud",), known)
    return Expected((INCOMPLETE,), (fact,), unseen=0)


@kind
def older_digests(archive: Archive) -> Expected:
    """Forwarders and routers are of a release whose digests cover identities, or that has none."""
    rows = {(row["client_id"], event(row)["devicesequence"]): event(row) for row in archive.rows(TAP)}

    def by_identity(row: Row) -> Row:
        members = event(row)
        if is_manifest(row):
            stated = members["data"]["statements"][0]
            numbers = range(stated["first"], stated["last"] + 1)
            own = (_identity(rows[row["client_id"], f"{number:012d}"]) for number in numbers)
            members["data"]["key_digest"] = "sha256"
            stated["digest"] = f"{sum(own) % (1 << 128):032x}"
        return with_event(row, members)

    archive.edit(TAP, by_identity)
    archive.edit(LEDGER, lambda row: {name: value for name, value in row.items() if name != "digest"})
    return Expected((PROVEN,), unseen=0)


def _alter(archive: Archive, hour: int) -> list[Row]:
    """Alter an event of each of several devices in the tap; return the rows as they were."""
    rows = list(_first_of_each(archive, hour))
    altered = {
        row["event"]: {**event(row), name: value}
        for row, (name, value) in zip(rows, ALTERED.items(), strict=True)
    }
    archive.edit(TAP, lambda row: with_event(row, altered.get(row["event"], event(row))), hour)
    return rows


def _first_of_each(archive: Archive, hour: int) -> Iterator[Row]:
    for device in archive.devices()[: len(ALTERED)]:
        own = (row for row in sent(archive, device, hour).values() if not is_report(row))
        yield next(row for row in own if event(row)["subject"] != "/bath")  # a route filters by it


def _expected(rows: list[Row], *facts: Fact) -> Expected:
    """Expect that the manifest of each row's device contradicts the tap."""
    devices = [row["client_id"] for row in rows]
    others = (Fact("manifest_mismatch", ("device_cloud",), {"device": device}) for device in devices)
    coverage = dict.fromkeys(devices, ("attested", "partly"))
    return Expected((BROKEN,), (*facts, *others), devices=coverage)


def _identity(members: Row) -> int:
    names = "\n".join((members["senderservice"], members["source"], members["id"]))
    return int(hashlib.sha256(names.encode()).hexdigest()[:32], 16)
