"""The audit: neither order nor second objects change a judgement; ranges of numbers behave as sets."""

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventplane.device_reports import SHA256, SHA256_EVENT
from eventplane.ingest import OPERATOR
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.reasons import Outcome
from eventplane.report_reader import DIGESTS, Range, length, merged
from glue_jobs.delivery_audit.contracts import ContractHistory, Use
from glue_jobs.delivery_audit.event_group import (
    EXPECTED,
    NO_ROUTE,
    REPLAY,
    BadRow,
    EventGroup,
    HandoverRow,
    Judgement,
    LedgerRow,
    RouteCount,
    RowCount,
    Ruling,
    TapRow,
)
from glue_jobs.delivery_audit.judge import judge
from glue_jobs.delivery_audit.number_ranges import (
    MAX_NUMBERED,
    SeenNumbers,
    clipped,
    one_by_one,
    overlap,
    pack_events,
    without,
)
from glue_jobs.delivery_audit.rules import Rules, Watermark, Window
from tests.spark.small_archive import ALARM, DIARY, NOON_MS, READING, small_contract
from tests.unit.glue_jobs.judging import hour, in_two_objects

CONTRACTS = [
    small_contract(),
    small_contract("strict", copies={"filter": {"prefix": {"type": "org."}}, "to": "help.inbox"}),
]
VERSIONS = [each.version for each in CONTRACTS]
HISTORY = ContractHistory((Use(CONTRACTS[0], NOON_MS - 1_000), Use(CONTRACTS[1], NOON_MS + 60_000)))
SENDERS = {"home-1": "home-1/", "home-2": "home-2/"}
times = st.sampled_from([NOON_MS - 10_000, NOON_MS, NOON_MS + 40, NOON_MS + 400_000])
routes_taken = {
    ALARM: ("alarms", "alarms copies"),
    READING: ("readings", "copies readings"),
    DIARY: (NO_ROUTE, "copies"),
}


@st.composite
def tap_rows(draw: st.DrawFn) -> TapRow:
    type_ = draw(st.sampled_from(sorted(routes_taken)))
    return TapRow(
        accepted_at_ms=draw(times),
        message_id=draw(st.sampled_from(["m1", "m2", "m3"])),
        place=draw(st.integers(0, 1)),
        archived_at_ms=draw(times),
        file="tap/date=2026-03-01/hour=12/rows",
        client_id=draw(st.sampled_from(sorted(SENDERS))),
        service=None,
        source="//s",
        id="1",
        type=type_,
        expires_at_ms=draw(st.sampled_from([None, NOON_MS])),
        asks_best_effort=draw(st.booleans()),
        data_digest=draw(st.sampled_from([1, 2])),
        digest=draw(st.sampled_from(["1" * 16, "2" * 16])),
        routes=routes_taken[type_],
        unknown_members=draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def ledger_rows(draw: st.DrawFn) -> LedgerRow:
    client = draw(st.sampled_from([*sorted(SENDERS), None]))
    route = draw(st.sampled_from([None, "alarms", "readings", "copies", "ghosts"]))
    return LedgerRow(
        decided_at_ms=draw(times),
        entered_at_ms=draw(times),
        entered_by="device.outbox" if client else "care.outbox",
        contract_version=draw(st.sampled_from([*VERSIONS, VERSIONS[0], "unknown"])),
        source="//s",
        id="1",
        type=draw(st.sampled_from([ALARM, READING])),
        priority="normal",
        client_id=client,
        route=route,
        destination=route and draw(st.sampled_from(["help.inbox", "care.inbox"])),
        outcome=draw(st.sampled_from([*map(str, Outcome), "delivered", "delivered", "postponed"])),
        reason=draw(st.sampled_from([None, REPLAY, SENT_BEFORE, "payload_invalid", "best_effort_failed"])),
        attempt=draw(st.sampled_from([1, 2])),
        message_id="q",
        sender=SENDERS[client] if client else "care",
        received_at_ms=draw(st.sampled_from([None, NOON_MS])),
        basis=draw(st.sampled_from([None, *map(str, Basis)])),
        put_back_by=draw(st.sampled_from([None, OPERATOR])),
        digest=draw(st.sampled_from([None, "1" * 16, "2" * 16])),
        file="ledger/date=2026-03-01/hour=12/rows",
    )


@st.composite
def handover_rows(draw: st.DrawFn) -> HandoverRow:
    return HandoverRow(
        decided_at_ms=draw(times),
        entered_at_ms=draw(times),
        channel=draw(st.sampled_from(["help.inbox", "care.inbox"])),
        contract_version=VERSIONS[0],
        source="//s",
        id="1",
        type=ALARM,
        outcome=draw(st.sampled_from(["delivered", "expired", "dropped", "dead_lettered", "postponed"])),
        reason=None,
        status=204,
        attempt=1,
        message_id="q",
        sender=draw(st.sampled_from([*SENDERS.values(), "care"])),
        file="handovers/date=2026-03-01/hour=12/rows",
    )


bad_rows = st.builds(
    BadRow,
    archive=st.sampled_from(["tap", "ledger", "handovers"]),
    date=st.just("2026-03-01"),
    file=st.just("a"),
    reason=st.just("unreadable_line"),
    text=st.sampled_from(['{"route": "readings"', '{"route": "readings"}', "[]", None]),
    sender=st.sampled_from([None, "home-1/"]),
    source=st.just("//s"),
    id=st.just("1"),
)
groups = st.builds(
    EventGroup,
    tap=st.lists(tap_rows(), max_size=3),
    ledger=st.lists(ledger_rows(), max_size=5),
    handovers=st.lists(handover_rows(), max_size=3),
    bad=st.lists(bad_rows, max_size=1),
    items=st.just(()),
    dead_letters=st.just(frozenset()),
)
every_rules = st.builds(
    Rules,
    history=st.just(HISTORY),
    watermark=st.sampled_from([Watermark(NOON_MS + 86_400_000), Watermark(NOON_MS, 3_600)]),
    window=st.just(Window()),
    damaged=st.sampled_from(
        [{}, {"ledger": frozenset({hour("2026-03-01T12")}), "handovers": frozenset({hour("2026-03-01T12")})}]
    ),
)


def outcome_of(group: EventGroup, rules: Rules) -> dict[str, Any]:
    """The judgement, its lists in no order."""
    made = judge(group, rules)
    lists = {
        name: Counter(getattr(made, name)) for name in ("findings", "replay", "quarantine", "not_in_tap")
    }
    return {**lists, "counts": made.counts, "latencies": made.latencies}


@given(groups, every_rules, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(group: EventGroup, rules: Rules, random: Any) -> None:
    lists = {name: list(getattr(group, name)) for name in ("tap", "ledger", "handovers", "bad")}
    for rows in lists.values():
        random.shuffle(rows)
    assert outcome_of(group._replace(**lists), rules) == outcome_of(group, rules)


@given(groups, every_rules)
def test_rows_in_a_second_object_change_nothing(group: EventGroup, rules: Rules) -> None:
    once, twice = outcome_of(group, rules), outcome_of(in_two_objects(group), rules)
    assert twice["counts"] == once["counts"]
    assert twice["latencies"] == once["latencies"]
    for name in ("findings", "replay", "quarantine", "not_in_tap"):
        assert _without_files(twice[name]) == _without_files(once[name])


def _without_files(rows: Counter[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row, count in rows.items():
        name = next(each for each in row._fields if each in ("archive_file", "file"))
        found[row._replace(**{name: ""})] += count
    return found


@given(groups, every_rules)
def test_each_route_has_one_verdict(group: EventGroup, rules: Rules) -> None:
    made = judge(group, rules)
    verdicts: Counter[str] = Counter()
    expected = 0
    for key, count in made.counts.items():
        if isinstance(key, RouteCount) and key.measure in set(Ruling):
            verdicts[key.measure] += count
        elif isinstance(key, RouteCount) and key.measure == "expected":
            expected += count
    seen = {row.client_id for row in group.tap if not row.unknown_members}
    # Each event of the tap is due somewhere: on its routes, or as unrouted.
    assert sum(verdicts.values()) >= len(seen)
    assert sum(verdicts[each] for each in EXPECTED) >= expected
    rows = sum(count for key, count in made.counts.items() if isinstance(key, RowCount))
    places = {(row.message_id, row.place, row.client_id) for row in group.tap}
    assert rows == len(places) + len(group.ledger) + len(group.handovers) + len(group.bad)
    assert len(made.replay) <= verdicts[Ruling.LOST]


@given(groups, every_rules)
def test_a_judgement_into_another_adds_up(group: EventGroup, rules: Rules) -> None:
    into = judge(group, rules)
    judge(group, rules, into)
    twice = Judgement()
    twice.add(judge(group, rules), times=2)
    assert into.counts == twice.counts
    assert into.latencies == twice.latencies


RANGES = st.lists(st.tuples(st.integers(-5, 40), st.integers(0, 8)).map(lambda each: (each[0], sum(each))))


def numbers(ranges: list[Range]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(RANGES, RANGES)
def test_ranges_are_sets(some: list[Range], others: list[Range]) -> None:
    assert numbers(merged(some)) == numbers(some)
    assert numbers(without(some, others)) == numbers(some) - numbers(others)
    assert numbers(overlap(some, others)) == numbers(some) & numbers(others)
    assert all(clipped(merged(some), each) == overlap(some, [each]) for each in others)


@given(RANGES)
def test_merged_ranges_are_sorted_and_apart(some: list[Range]) -> None:
    found = merged(some)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
    assert length(found) == len(numbers(some))


@given(RANGES)
def test_ranges_are_split_one_by_one(some: list[Range]) -> None:
    assert list(one_by_one(merged(some))) == [(number, number) for number in sorted(numbers(some))]


def test_a_forged_range_stays_one() -> None:
    assert list(one_by_one([(1, MAX_NUMBERED + 1)])) == [(1, MAX_NUMBERED + 1)]


COPIES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.sampled_from([-(1 << 63), -7, 0, 9])))


@given(COPIES, st.lists(st.integers(0, 31), min_size=2, max_size=2).map(sorted))
def test_seen_numbers_are_a_set(events: list[tuple[int, int, int]], ends: list[int]) -> None:
    """Copies in one hour or another count once, in the first; a number with two digests is two events."""
    span = ends[0], ends[1]
    by_hour: dict[int, list[tuple[int, int, int]]] = {}
    for at_hour, number, digest in events:
        by_hour.setdefault(at_hour, []).append((number, 5, digest))
    seen = SeenNumbers((at_hour, pack_events(those)) for at_hour, those in by_hour.items())
    within = {(number, digest) for _, number, digest in events if span[0] <= number <= span[1]}
    assert seen.ranges == merged((number, number) for _, number, _ in events)
    assert seen.events(span) == len(within)
    assert seen.digest(span, SHA256_EVENT) == sum(digest for _, digest in within) % DIGESTS
    assert seen.digest(span, SHA256) == 5 * len(within) % DIGESTS
    assert length(each for each, _ in seen.runs) == len({number for _, number, _ in events})
    first: dict[tuple[int, int], int] = {}
    for at_hour, number, digest in sorted(events):
        first.setdefault((number, digest), at_hour)
    for (low, high), at_hour in seen.runs:
        hours = {(one, at) for (one, _), at in first.items()}
        assert all((number, at_hour) in hours for number in range(low, high + 1))
