"""Devices that do not state what they sent, and devices that are not where they should be."""

from typing import Final

from tests.spark.damage.archive import (
    FLEET,
    HANDOVERS,
    LEDGER,
    READING,
    TAP,
    Archive,
    Row,
    agree,
    change_report,
    event,
    forget,
    hour_ms,
    is_manifest,
    is_report,
    manifest_of,
    number_of,
    restate,
    sent,
    stating,
    with_event,
)
from tests.spark.damage.expected import BROKEN, INCOMPLETE, NOTHING_LOST, PROVEN, Expected, Fact, kind

NOON: Final = hour_ms(12)


@kind
def clean(archive: Archive) -> Expected:
    """Change nothing: everything is proven."""
    return Expected((PROVEN,), unseen=0)


@kind
def lateness_0(archive: Archive) -> Expected:
    """Change nothing, and audit without any lateness: nothing is late."""
    return Expected((PROVEN,), unseen=0, arguments=("--LATENESS_S", "0"))


@kind
def no_manifests(archive: Archive) -> Expected:
    """A device sends no manifests, and 118 of its other events are gone without a trace."""
    device = archive.devices()[0]
    others = [number for number, row in sent(archive, device).items() if not is_report(row)]
    gone = {number for number, row in sent(archive, device).items() if is_manifest(row)}
    gone |= set(others[5::9][:118])
    forget(archive, device, gone)
    return Expected((INCOMPLETE,), unseen=_unseen(archive, device), devices={device: ("partly", "silent")})


@kind
def manifests_stop(archive: Archive) -> Expected:
    """A device's manifests stop at noon, and half of what it sent afterwards is gone without a trace."""
    device = archive.devices()[1]
    rows = {number: row for number, row in sent(archive, device).items() if row["accepted_at_ms"] >= NOON}
    others = [number for number, row in rows.items() if not is_report(row)]
    forget(archive, device, {number for number, row in rows.items() if is_manifest(row)} | set(others[1::2]))
    # The last manifest is itself the first event that nobody states.
    return Expected((INCOMPLETE,), unseen=_unseen(archive, device), devices={device: ("partly",)})


@kind
def silent_device(archive: Archive) -> Expected:
    """Nothing came from a device of the fleet."""
    device = archive.devices()[2]
    forget(archive, device, set(sent(archive, device)))
    return Expected((INCOMPLETE,), devices={device: ("silent",)})


@kind
def unregistered_device(archive: Archive) -> Expected:
    """A device that sends and states everything is not in the fleet's registry."""
    device = archive.devices()[3]
    archive.edit(FLEET, lambda row: None if row["thing"] == device else row)
    return Expected((PROVEN, INCOMPLETE), devices={device: ("unregistered",)})


@kind
def no_fleet(archive: Archive) -> Expected:
    """The list of the fleet's devices is gone, so the expected devices are unknown."""
    every = dict.fromkeys(archive.devices(), ("attested", "unregistered"))
    archive.delete(archive.objects(FLEET))
    return Expected((INCOMPLETE,), devices=every)


@kind
def only_manifests(archive: Archive) -> Expected:
    """Of an hour of a device only its manifest came: what that states is lost behind the device."""
    device = archive.devices()[1]
    lost = {n: row for n, row in sent(archive, device, hour=3).items() if not is_report(row)}
    epoch = {event(row)["deviceepoch"] for row in lost.values()}.pop()
    forget(archive, device, set(lost))
    facts = tuple(
        Fact("lost", ("device_cloud",), {"device": device, "epoch": epoch, "sequence": number})
        for number in sorted(lost)
    )
    return Expected((BROKEN,), facts, totals={**NOTHING_LOST, "lost": len(lost)}, unseen=0)


@kind
def acknowledged_lost(archive: Archive) -> Expected:
    """The same of one event that IoT Core acknowledged, by the device's word: the rule lost it."""
    device = archive.devices()[4]
    rows = sent(archive, device, hour=4)
    number = next(n for n, row in rows.items() if not is_report(row))
    forget(archive, device, {number})
    fact = Fact("lost", ("iot_rule",), {"device": device, "sequence": number})
    return Expected((BROKEN,), (fact,), totals={**NOTHING_LOST, "lost": 1}, unseen=0)


@kind
def missing_manifest(archive: Archive) -> Expected:
    """One manifest of a device is gone behind IoT Core: its numbers are not stated."""
    device = archive.devices()[2]
    number = next(n for n, row in sent(archive, device, hour=5).items() if is_manifest(row))
    forget(archive, device, {number})
    facts = (
        Fact("missing_manifest", ("device_cloud",), {"device": device}),
        Fact("lost", ("iot_rule",), {"device": device, "sequence": number}),
    )
    devices = {device: ("partly",)}
    return Expected((BROKEN,), facts, totals={**NOTHING_LOST, "lost": 1}, devices=devices)


@kind
def empty(archive: Archive) -> Expected:
    """The archive has contracts and a fleet, and not one event."""
    devices = archive.devices()
    for folder in (TAP, LEDGER, HANDOVERS):
        archive.delete(archive.objects(folder))
    return Expected((INCOMPLETE,), devices=dict.fromkeys(devices, ("silent",)))


@kind
def one_event(archive: Archive) -> Expected:
    """The archive has one event, of a fleet of one device."""
    device = archive.devices()[0]
    kept = min(sent(archive, device))
    for name in archive.devices():
        forget(archive, name, set(sent(archive, name)) - ({kept} if name == device else set()))
    archive.edit(FLEET, lambda row: row if row["thing"] == device else None)
    return Expected((INCOMPLETE,), devices={device: ("partly", "silent")})


@kind
def clock_ahead(archive: Archive) -> Expected:
    """A device's clock is two days ahead."""
    device = archive.devices()[3]

    def ahead(row: Row) -> Row:
        if row["client_id"] != device:
            return row
        members = event(row)
        for name in ("time", "recordedtime"):
            if name in members:
                members[name] = members[name].replace("2026-03-01", "2026-03-03")
        return with_event(row, members)

    archive.edit(TAP, ahead)
    restate(archive, device)
    return Expected((PROVEN,), (Fact("clock_skew", ("device_cloud",), {"device": device}),), unseen=0)


@kind
def manifests_swapped(archive: Archive) -> Expected:
    """Two devices' manifests have each other's bodies."""
    one, other = archive.devices()[:2]
    bodies = {
        name: [event(row)["data"] for row in sent(archive, name).values() if is_manifest(row)]
        for name in (one, other)
    }
    taken = {one: iter(bodies[other]), other: iter(bodies[one])}
    archive.edit(
        TAP,
        lambda row: (
            with_event(row, {**event(row), "data": next(taken[row["client_id"]])})
            if row["client_id"] in taken and is_manifest(row)
            else row
        ),
    )
    agree(archive)
    facts = tuple(
        Fact("manifest_mismatch", ("device_cloud",), {"device": name}, count=len(bodies[name]))
        for name in (one, other)
    )
    devices = {one: ("partly", "silent"), other: ("partly", "silent")}
    return Expected((BROKEN,), facts, devices=devices)


@kind
def manifest_rows_swapped(archive: Archive) -> Expected:
    """A manifest of one device came over the connection of another: it is forged."""
    one, other = archive.devices()[:2]
    number = next(n for n, row in sent(archive, one, hour=6).items() if is_manifest(row))

    def moved(row: Row) -> Row:
        if row["client_id"] != one or number_of(row) != number:
            return row
        return {**row, "client_id": other, "topic": row["topic"].replace(one, other)}

    (manifest,) = (row for row in sent(archive, one, hour=6).values() if is_manifest(row))
    id_ = event(manifest)["id"]
    archive.edit(TAP, moved)
    archive.edit(LEDGER, lambda row: _of_client(row, one, other) if row["id"] == id_ else row)
    # Its number was seen, though over another connection: the device did send it.
    may = (
        Fact("foreign_epoch", ("device_cloud",)),
        Fact("missing_manifest", ("device_cloud",), {"device": one}),
        Fact("not_allowed", ("router",), {"id": id_}),
    )
    facts = (Fact("forged", ("device_cloud",), {"id": id_}),)
    return Expected((BROKEN,), facts, may, devices={one: ("partly",), other: ("attested", "partly")})


@kind
def manifest_digest(archive: Archive) -> Expected:
    """A manifest's digest is not that of the events which it states."""
    device = archive.devices()[2]
    row = manifest_of(archive, device, 9)
    digest = int(event(row)["data"]["statements"][0]["digest"], 16) ^ 1
    known = change_report(archive, row, stating(digest=f"{digest:032x}"))
    facts = (Fact("manifest_mismatch", ("device_cloud",), known),)
    return Expected((BROKEN,), facts, devices={device: ("attested", "partly")})


@kind
def id_altered(archive: Archive) -> Expected:
    """Tap, ledger and handovers agree on another id than the device stored."""
    device = archive.devices()[2]
    row = next(row for row in sent(archive, device, hour=10).values() if not is_report(row))
    before, after = event(row)["id"], "0" * 32

    archive.edit(TAP, lambda row: {**row, "event": row["event"].replace(before, after)}, hour=10)
    for folder in (LEDGER, HANDOVERS):
        archive.edit(folder, lambda row: {**row, "id": after} if row["id"] == before else row, hour=10)
    agree(archive)
    facts = (Fact("manifest_mismatch", ("device_cloud",), {"device": device}),)
    return Expected((BROKEN,), facts, devices={device: ("attested", "partly")})


@kind
def reused_id(archive: Archive) -> Expected:
    """A service gives two events one id; its device stores and states both."""
    device = archive.devices()[3]
    rows = sent(archive, device, hour=11)
    first = next(row for row in rows.values() if event(row)["type"] == READING)
    source = event(first)["source"]
    second = next(
        row
        for row in rows.values()
        if event(row)["source"] == source and number_of(row) > number_of(first) + 10
    )
    kept, gone = event(first)["id"], event(second)["id"]
    archive.edit(TAP, lambda row: {**row, "event": row["event"].replace(gone, kept)}, hour=11)
    archive.edit(LEDGER, lambda row: {**row, "id": kept} if row["id"] == gone else row, hour=11)
    restate(archive, device)
    facts = (Fact("reused_id", (), {"source": source, "id": kept}),)
    return Expected((BROKEN,), facts, unseen=0)


@kind
def foreign_client(archive: Archive) -> Expected:
    """One event of a device came under another client id."""
    one, other = archive.devices()[3:]
    row = next(row for row in sent(archive, one, hour=13).values() if _type(row) == READING)
    id_ = event(row)["id"]
    archive.edit(
        TAP,
        lambda row: (
            {**row, "client_id": other, "topic": row["topic"].replace(one, other)}
            if event(row)["id"] == id_
            else row
        ),
        hour=13,
    )
    archive.edit(LEDGER, lambda row: _of_client(row, one, other) if row["id"] == id_ else row, hour=13)
    facts = (Fact("foreign_epoch", ("device_cloud",)),)
    return Expected((BROKEN,), facts, devices={one: ("attested", "partly"), other: ("attested", "partly")})


def _of_client(row: Row, one: str, other: str) -> Row:
    return {**row, "client_id": other, "sender": row["sender"].replace(one, other)}


def _type(row: Row) -> str:
    return str(event(row)["type"])


def _unseen(archive: Archive, device: str) -> int:
    """Return how many numbers of a device between its least and its greatest nobody saw or states."""
    rows = sent(archive, device)
    known = set(rows)
    for row in rows.values():
        if is_manifest(row):
            stated = event(row)["data"]["statements"][0]
            known |= set(range(stated["first"], stated["last"] + 1))
    return max(rows) - min(rows) + 1 - len({number for number in known if min(rows) <= number <= max(rows)})
