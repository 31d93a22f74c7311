"""Times, values and answers that contradict each other, or that few readers understand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tests.spark.damage.archive import (
    DAY_MS,
    HANDOVERS,
    HOUR_MS,
    LEDGER,
    READING,
    TAP,
    Archive,
    Row,
    event,
    restate,
    to_line,
    with_event,
)
from tests.spark.damage.expected import (
    ARCHIVE,
    BROKEN,
    INCOMPLETE,
    NOTHING_LOST,
    PROVEN,
    Expected,
    Fact,
    kind,
)

NEXT_DAY: Final = "2026-03-02"
A_DAY_MS: Final = 24 * HOUR_MS


@kind
def entered_two_days_later(archive: Archive) -> Expected:
    """The ledger has three events two days later than the tap."""
    return _contested(archive, 1, 3, 2 * A_DAY_MS)


@kind
def entered_an_hour_earlier(archive: Archive) -> Expected:
    """The ledger has an event an hour earlier than the tap."""
    return _contested(archive, 2, 1, -HOUR_MS)


@kind
def entered_a_year_later(archive: Archive) -> Expected:
    """The ledger has an event a year later than the tap."""
    return _contested(archive, 3, 1, 365 * A_DAY_MS)


@kind
def accepted_an_hour_later(archive: Archive) -> Expected:
    """The tap has an event an hour later than the ledger."""
    return _accepted(archive, 4, HOUR_MS)


@kind
def accepted_a_year_earlier(archive: Archive) -> Expected:
    """The tap has an event a year earlier than the ledger."""
    return _accepted(archive, 6, -365 * A_DAY_MS)


@kind
def impossible_entry(archive: Archive) -> Expected:
    """The ledger has events before 1970, behind the year 9999, and at no time at all."""
    rows = _decisions(archive, 5)[:3]
    times = dict(zip((row["id"] for row in rows), (-1, 10**15, None), strict=True))
    archive.edit(
        LEDGER, lambda each: {**each, "entered_at_ms": times.get(each["id"], each["entered_at_ms"])}, 5
    )
    return _contradicted(*times, quarantined=(3,))


@kind
def impossible_answer(archive: Archive) -> Expected:
    """Webhooks' rows have outcomes to which the endpoint's answers cannot have led."""
    answers: list[dict[str, Any]] = [
        {"status": 500},
        {"outcome": "dead_lettered", "reason": "endpoint_refused", "status": 204},
        {"outcome": "dead_lettered", "reason": "endpoint_refused", "status": 1_000},
        {"attempt": 0},
    ]
    ids = list(dict.fromkeys(row["id"] for row in archive.rows(HANDOVERS)))[-len(answers) :]
    changed = dict(zip(ids, answers, strict=True))
    archive.edit(HANDOVERS, lambda each: {**each, **changed.get(each["id"], {})})
    return _contradicted(*ids, quarantined=(len(ids),))


@kind
def fast_router(archive: Archive) -> Expected:
    """A router's clock is ten minutes ahead of the webhook's that it hands events to."""
    row = next(iter(archive.rows(HANDOVERS, 7)))
    ahead = {"decided_at_ms": row["decided_at_ms"] + 600_000}
    archive.edit(LEDGER, lambda each: {**each, **ahead} if each["id"] == row["id"] else each, 7)
    return Expected(
        (PROVEN,), (), (Fact("clock_skew", ("router",), {"id": row["id"]}, count=None),), unseen=0
    )


@kind
def expired_in_another_form(archive: Archive) -> Expected:
    """A router expires events with time left, which their expiry says in forms that few readers take."""
    forms = "2026-03-02T12:00:00+23:59", "2026-12-31t23:59:60.123456789z", "2026-03-02T00:00:00-18:01"
    rows = _expired(archive, 8, forms, reason="expirytime")
    facts = tuple(Fact("lost", ("router",), {"id": row["id"], "route": row["route"]}) for row in rows)
    totals = {**NOTHING_LOST, "lost": 3, "to_replay": 3}
    return Expected((BROKEN,), facts, totals=totals, unseen=0)


@kind
def expiry_unreadable(archive: Archive) -> Expected:
    """A router expires an event whose expiry is no time."""
    (row,) = _expired(archive, 9, ["tomorrow"])
    fact = Fact("not_understood", ARCHIVE, {"id": row["id"]})
    return Expected((INCOMPLETE,), (fact,), quarantined=(1,), unseen=0)


@kind
def reused_id_on_the_next_day(archive: Archive) -> Expected:
    """An id comes again on the next day with other data."""
    row = _again_on_the_next_day(archive, 10, {"value": "another"})
    reused = Fact("reused_id", ("device_cloud",), {"id": row["id"], "date": "2026-03-01"})
    # The ledger's row of that day is a copy, and one number names two events.
    may = (
        Fact("content_mismatch", ARCHIVE, {"id": row["id"]}),
        Fact("manifest_mismatch", ("device_cloud",), {"device": row["client_id"]}),
        Fact("contradiction", ("device_cloud",), {"device": row["client_id"]}),
    )
    return Expected((BROKEN,), (reused,), may, devices={row["client_id"]: ("partly",)})


@kind
def copy_on_the_next_day(archive: Archive) -> Expected:
    """A copy of an event comes again on the next day."""
    _again_on_the_next_day(archive, 11, {})
    return Expected((PROVEN,), unseen=0)


def _decisions(archive: Archive, hour: int) -> list[Row]:
    """Return the delivered readings of the hour, which have one route."""
    return [row for row in archive.rows(LEDGER, hour) if row["type"] == READING]


def _expired(archive: Archive, hour: int, texts: Sequence[str], **ended: str) -> list[Row]:
    """Let readings have expiries of these texts and end as expired; return the router's rows as they were."""
    rows = _decisions(archive, hour)[: len(texts)]
    expiry = dict(zip((row["id"] for row in rows), texts, strict=True))

    def mortal(each: Row) -> Row:
        members = event(each)
        text = expiry.get(members["id"])
        return with_event(each, {**members, "expirytime": text}) if text else each

    archive.edit(TAP, mortal, hour)
    ended = {"outcome": "expired", **ended}
    archive.edit(LEDGER, lambda each: {**each, **ended} if each["id"] in expiry else each, hour)
    for device in sorted({row["client_id"] for row in rows}):
        restate(archive, device)
    return rows


def _contested(archive: Archive, hour: int, count: int, by_ms: int) -> Expected:
    ids = {row["id"] for row in _decisions(archive, hour)[:count]}
    archive.edit(
        LEDGER,
        lambda each: {**each, "entered_at_ms": each["entered_at_ms"] + by_ms} if each["id"] in ids else each,
        hour,
    )
    return _contradicted(*ids)


def _accepted(archive: Archive, hour: int, by_ms: int) -> Expected:
    row = _decisions(archive, hour)[0]

    def other(each: Row) -> Row:
        is_it = event(each)["id"] == row["id"]
        return {**each, "accepted_at_ms": each["accepted_at_ms"] + by_ms} if is_it else each

    archive.edit(TAP, other, hour)
    # The device's clock is judged by the tap's.
    may = Fact("clock_skew", ("device_cloud",), {"device": row["client_id"]})
    return replace(_contradicted(row["id"]), may=(may,))


def _contradicted(*ids: str, quarantined: tuple[int, ...] = (0,)) -> Expected:
    facts = tuple(Fact("contradiction", ARCHIVE, {"id": id_}) for id_ in ids)
    return Expected((INCOMPLETE,), facts, quarantined=quarantined, unseen=0)


def _again_on_the_next_day(archive: Archive, hour: int, data: Row) -> Row:
    """Copy an event's rows into the first hour of the next day; its data is changed by `data`."""
    row = _decisions(archive, hour)[0]
    shift_ms = DAY_MS + A_DAY_MS + HOUR_MS // 2 - row["entered_at_ms"]

    def moved(each: Row) -> Row:
        names = "accepted_at_ms", "archived_at_ms", "decided_at_ms", "entered_at_ms", "received_at_ms"
        times = {name: each[name] + shift_ms for name in names if name in each}
        return {**each, **times, "message_id": f"{each['message_id']}-again"}

    for folder in (TAP, LEDGER):
        again = []
        for each in archive.rows(folder, hour):
            members = event(each) if folder == TAP else each
            if members["id"] != row["id"]:
                continue
            if folder == TAP and data:
                each = with_event(each, {**members, "data": {**members["data"], **data}})
            again.append(to_line(moved(each)))
        path = archive.root / archive.hour_name(folder, 0, NEXT_DAY) / f"again-{hour}.json.gz"
        archive.write(path, again)
    return row
