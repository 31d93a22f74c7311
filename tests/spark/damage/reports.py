"""Devices whose reports no version understands, or that contradict themselves."""

from typing import Any, Final

from tests.spark.damage.archive import (
    ALARM,
    CLIMATE,
    DAY_MS,
    DEVICE_PREFIX,
    HANDOVERS,
    HOUR_MS,
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
    manifest_of,
    number_of,
    restate,
    sent,
    stating,
    to_line,
    with_event,
)
from tests.spark.damage.expected import BROKEN, INCOMPLETE, NOTHING_LOST, PROVEN, Expected, Fact, kind

WITHOUT_MANIFEST: Final = ("partly",)


def _report(archive: Archive, device: str, hour: int, name: str, data: Any) -> dict[str, Any]:
    """Let a device have sent a report in the place of a reading."""
    row = next(row for row in sent(archive, device, hour).values() if event(row)["type"] == READING)
    before, manifest = event(row), event(manifest_of(archive, device, hour))
    like = next(each for each in archive.rows(LEDGER, hour) if each["id"] == manifest["id"])
    named = {"id": f"{before['deviceepoch']}-r{hour}", "type": f"{DEVICE_PREFIX}{name}.v1"}
    placed = {key: before[key] for key in ("deviceepoch", "devicesequence", "recordedtime") if key in before}
    report = with_event(row, {**manifest, **placed, **named, "data": data})
    archive.edit(TAP, lambda each: report if each == row else each)
    times = ("decided_at_ms", "entered_at_ms", "received_at_ms", "message_id")
    archive.edit(
        LEDGER,
        lambda each: (
            {**like, **named, **{key: each[key] for key in times}} if each["id"] == before["id"] else each
        ),
    )
    restate(archive, device)
    return {"device": device, "id": named["id"], "sequence": number_of(row)}


def _incomplete(kind: str, members: dict[str, Any], devices: tuple[str, ...] = ()) -> Expected:
    """Return that one finding lowers the verdict and names no hop as the cause of a loss."""
    fact = Fact(kind, ("device_cloud",), members)
    return Expected((INCOMPLETE,), (fact,), devices={members["device"]: devices} if devices else {}, unseen=0)


@kind
def newer_manifests(archive: Archive) -> Expected:
    """All manifests of a device have a member that this version does not know."""
    device = archive.devices()[0]

    def newer(row: Row) -> Row:
        members = event(row)
        if row["client_id"] != device or not is_manifest(row):
            return row
        return with_event(row, {**members, "data": stating(ranges=[[1, 2]])(members["data"])})

    count = archive.edit(TAP, newer)
    restate(archive, device)
    fact = Fact("not_understood", ("device_cloud",), {"device": device}, count=count)
    return Expected((INCOMPLETE,), (fact,), devices={device: ("partly", "silent")}, unseen=0)


@kind
def counts_more(archive: Archive) -> Expected:
    """A manifest counts ten events more than there are numbers in its range."""
    row = manifest_of(archive, archive.devices()[2], 4)
    count = event(row)["data"]["statements"][0]["count"] + 10
    return _incomplete("contradiction", change_report(archive, row, stating(count=count)), WITHOUT_MANIFEST)


@kind
def range_reversed(archive: Archive) -> Expected:
    """The range of a manifest ends before it begins."""
    row = manifest_of(archive, archive.devices()[2], 8)
    stated = event(row)["data"]["statements"][0]
    change = stating(first=stated["last"], last=stated["first"])
    return _incomplete("contradiction", change_report(archive, row, change), WITHOUT_MANIFEST)


@kind
def manifests_overlap(archive: Archive) -> Expected:
    """A manifest states five numbers of the one before as well."""
    row = manifest_of(archive, archive.devices()[3], 5)
    stated = event(row)["data"]["statements"][0]
    change = stating(first=stated["first"] - 5, count=stated["count"] + 5)
    return _incomplete("contradiction", change_report(archive, row, change), WITHOUT_MANIFEST)


@kind
def acknowledged_back(archive: Archive) -> Expected:
    """A manifest takes back what the ones before state as acknowledged."""
    row = manifest_of(archive, archive.devices()[4], 6)
    return _incomplete("contradiction", change_report(archive, row, stating(acknowledged_to=1)))


def _waits(archive: Archive, hours: int) -> tuple[str, int]:
    """Let an alarm wait at home by all manifests of some `hours`; return its device and number."""
    device = archive.devices()[2]
    number, row = next(each for each in sent(archive, device).items() if event(each[1])["type"] == ALARM)
    first = (row["accepted_at_ms"] - DAY_MS) // HOUR_MS
    for hour in range(first, min(first + hours, 24)):
        at_home = stating(1, acknowledged_to=number - 1, pending=[number])
        change_report(archive, manifest_of(archive, device, hour), at_home)
    return device, number


@kind
def nobody_at_home(archive: Archive) -> Expected:
    """An alarm waits for the siren of a home until the day ends."""
    device, number = _waits(archive, 24)
    known = {"device": device, "sequence": number, "destination": "siren.inbox"}
    fact = Fact("lost", ("device_inbox",), known)
    return Expected((BROKEN,), (fact,), totals={**NOTHING_LOST, "lost": 1}, unseen=0)


@kind
def late_at_home(archive: Archive) -> Expected:
    """An alarm waits for the siren of a home for four hours, and then it rings."""
    _waits(archive, 4)
    return Expected((PROVEN,), unseen=0)


@kind
def names_a_finding(archive: Archive) -> Expected:
    """A device gives up a number, with a finding of the audit as its outcome."""
    device = archive.devices()[0]
    gone = next(
        number for number, row in sorted(sent(archive, device, 9).items()) if event(row)["type"] == CLIMATE
    )
    ended = {"destination": "device.outbox", "outcome": "forged", "reason": "r", "count": 1}
    data = {"deliveries": [{**ended, "ranges": [[gone, gone]]}], "not_stored": []}
    members = _report(archive, device, 10, "discarded", data)
    forget(archive, device, {gone})
    return _incomplete("not_understood", members)


@kind
def birth_as_object(archive: Archive) -> Expected:
    """A report of a store's birth has objects where words belong."""
    data = {"birth": {"of": []}, "epoch": "e", "lost_epoch": {"e": 1}}
    return _incomplete("not_understood", _report(archive, archive.devices()[1], 11, "started", data))


@kind
def many_ranges(archive: Archive) -> Expected:
    """A device gives up three million numbers in many ranges of one report."""
    ended = {"destination": "device.outbox", "outcome": "expired", "reason": "r", "count": 1}
    ranges = [[number * 1_000 + 1_000_000, number * 1_000 + 1_000_999] for number in range(3_000)]
    data = {"deliveries": [{**ended, "ranges": ranges}], "not_stored": []}
    return _incomplete("not_understood", _report(archive, archive.devices()[2], 12, "discarded", data))


@kind
def numbers_unread(archive: Archive) -> Expected:
    """The numbers of a device's readings of an hour cannot be read."""
    device, hour = archive.devices()[3], 14
    readings = [row for row in sent(archive, device, hour).values() if event(row)["type"] == READING]
    ids = {event(row)["id"] for row in readings}

    def unread(row: Row) -> Row:
        members = event(row)
        # Python reads it, the plane does not.
        number = f"+{members['devicesequence']}"
        return with_event(row, {**members, "devicesequence": number}) if members["id"] in ids else row

    archive.edit(TAP, unread, hour)
    restate(archive, device)
    said = f"{len(ids)} events with a number that cannot be read"
    of_hour = Fact("not_understood", ("device_cloud",), {"device": device}, said=said)
    of_each = Fact("not_understood", ("archive",), {"device": device}, said="unreadable_", count=len(ids))
    return Expected((INCOMPLETE,), (of_hour, of_each), devices={device: ("partly",)}, unseen=0)


@kind
def one_number_twice(archive: Archive) -> Expected:
    """Two manifests of a device have one number, and state other things."""
    row = manifest_of(archive, archive.devices()[4], 15)
    members = event(row)
    other = {**members, "id": f"{members['id']}-2", "data": stating(count=1)(members["data"])}
    _add_beside(archive, 15, row, other, "twice")
    known = {"device": row["client_id"], "sequence": number_of(row)}
    fact = Fact("contradiction", ("device_cloud",), known, count=2)
    return Expected((INCOMPLETE,), (fact,), devices={row["client_id"]: ("partly",)}, unseen=0)


@kind
def stops_and_goes_on(archive: Archive) -> Expected:
    """A manifest is the last one, the device goes on, and all of that is gone."""
    device = archive.devices()[0]
    row = manifest_of(archive, device, 12)
    change_report(archive, row, lambda data: {**data, "final": True})
    forget(archive, device, {number for number in sent(archive, device) if number > number_of(row)})
    return Expected((INCOMPLETE,), devices={device: ("partly",)}, unseen=0)


@kind
def new_client_id(archive: Archive) -> Expected:
    """A device goes on with its store under another client id from noon on."""
    old = archive.devices()[1]
    new = f"{old}-b"

    def renamed(row: Row) -> Row:
        at_ms = row.get("accepted_at_ms") or row["entered_at_ms"]
        if at_ms < hour_ms(12) or row.get("client_id", row.get("sender", "").partition("/")[0]) != old:
            return row
        names = ("client_id", "topic", "sender")
        changed = {name: row[name].replace(old, new, 1) for name in names if row.get(name)}
        if "event" in row:
            members = event(row)
            source = members["source"].replace(f"/devices/{old}/", f"/devices/{new}/")
            return with_event({**row, **changed}, {**members, "source": source})
        changed["source"] = row["source"].replace(f"/devices/{old}/", f"/devices/{new}/")
        return {**row, **changed}

    for folder in (TAP, LEDGER, HANDOVERS):
        archive.edit(folder, renamed)
    restate(archive, old, also=new)
    return Expected((PROVEN,), devices={new: ("unregistered",)}, unseen=0)


@kind
def epoch_imitated(archive: Archive) -> Expected:
    """A device sends a manifest of its own in the epoch of another one."""
    one, other = archive.devices()[2:4]
    epoch = event(manifest_of(archive, one, 16))["deviceepoch"]
    row = manifest_of(archive, other, 16)
    members = {**event(row), "id": "imitated", "deviceepoch": epoch, "devicesequence": "000000900000"}
    nothing = stating(first=900_000, last=899_999, count=0, acknowledged_to=1, digest="0" * 32)
    members["data"] = {**nothing(members["data"]), "epoch": epoch}
    _add_beside(archive, 16, row, members, "imitated")
    fact = Fact("foreign_epoch", ("device_cloud",), {"device": other, "epoch": epoch})
    change = Fact("epoch_change", ("device_cloud",), {"device": other})
    return Expected((BROKEN,), (fact,), (change,), devices={other: ("attested", "partly")}, unseen=0)


def _add_beside(archive: Archive, hour: int, row: Row, members: Row, message_id: str) -> None:
    """Add another event, in a message of its own, and a decision like that about the event of `row`."""
    _add(archive, TAP, {**with_event(row, members), "message_id": message_id, "index": 0})
    decision = next(each for each in archive.rows(LEDGER, hour) if each["id"] == event(row)["id"])
    _add(archive, LEDGER, {**decision, "id": members["id"], "message_id": message_id})
    agree(archive)


def _add(archive: Archive, folder: str, row: Row) -> None:
    """Add a row to the object that has its hour's first rows."""
    past_ms = (row.get("archived_at_ms") or row["decided_at_ms"]) - DAY_MS
    path = archive.objects(folder, past_ms // HOUR_MS)[0]
    archive.write(path, [*archive.lines(path), to_line(row)])
