"""Faults of routers: the judgement finds each on its route, and believes no end that nothing bears out."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eventplane.contract import Contract, Place, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import HEARTBEAT
from eventplane.guarantee import DROP_REASONS, FAILED, NOT_REPEATED, is_promised
from eventplane.ingest import OPERATOR
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ledger import SENT_BEFORE, Basis
from eventplane.limits import MAX_HOPS
from eventplane.reasons import REDRIVE, REPLAY, Outcome, Reason
from glue_jobs.delivery_audit.event_group import LatencyKey, ReplayRow
from glue_jobs.delivery_audit.findings import Finding
from tests.spark.small_archive import (
    ALARM,
    DAY,
    DIARY,
    HOUR_MS,
    NOON_MS,
    READING,
    SmallArchive,
    small_contract,
)
from tests.unit.glue_jobs.judging import FILES, judged

COPIES = {"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}
DIARIES = {"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"}


def test_a_lost_event_is_found_with_its_evidence(archive: SmallArchive) -> None:
    archive.send()
    lost = archive.event(ALARM)
    archive.accept(lost)
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.route("alarms")["lost"] == report.route("alarms")["expected"] == 1
    assert report.findings == [
        Finding(
            date=DAY,
            kind="lost",
            hop="router",
            device="home-1",
            epoch="e1",
            sequence=2,
            source=lost.source,
            id=lost.id,
            type=ALARM,
            route="alarms",
            destination="help.inbox",
            contract_version=archive.contract.version,
            archive_file=FILES["tap"],
            at_ms=NOON_MS,
            detail="no record",
        )
    ]


def test_one_of_two_routes_is_lost(archive: SmallArchive) -> None:
    archive.use(small_contract(copies=COPIES))
    archive.send(ALARM)
    archive.ledger = [row for row in archive.ledger if row.route != "copies"]
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert report.findings[0].route == "copies"


@pytest.mark.parametrize(
    ("type_", "recorded", "faults", "accounts"),
    [
        (DIARY, True, {}, {"": {"dropped": 1}}),
        (DIARY, False, {"lost": 1}, {}),
        (READING, True, {"lost": 1, "misrouted": 1}, {"care.inbox": {"lost": 1}}),
    ],
    ids=["rightly", "without a record", "though a route takes it"],
)
def test_an_event_is_recorded_as_unrouted(
    archive: SmallArchive, type_: str, recorded: bool, faults: dict[str, int], accounts: dict[str, Any]
) -> None:
    event = archive.event(type_)
    archive.accept(event)
    archive.ledger += [archive.record(event)] * recorded
    report = judged(archive)
    assert report.faults() == faults
    assert report.accounts() == (accounts if recorded else {"": {"lost": 1}})
    assert report.totals["unrouted"] == (faults == {})
    assert all(each.route == "(unrouted)" for each in report.findings if type_ == DIARY)


@pytest.mark.source("P-W9")
def test_a_copy_in_the_inbox_is_a_duplicate(archive: SmallArchive) -> None:
    event = archive.send()
    archive.route(event)
    archive.route(event)
    report = judged(archive)
    assert report.faults() == {"duplicated": 2}
    assert report.totals["delivered"] == 1
    assert report.inboxes() == {"care.inbox": (1, 3, 0)}


def test_a_copy_in_the_tap_expects_nothing_more(archive: SmallArchive) -> None:
    archive.accept(archive.send())
    report = judged(archive)
    assert report.faults() == {}
    assert [report.totals[name] for name in ("events", "expected", "tap_copies")] == [1, 1, 1]


@pytest.mark.source("P4")
def test_a_repeated_row_counts_once(archive: SmallArchive) -> None:
    archive.send()
    archive.send(ALARM)
    early = archive.alter(basis=Basis.BUNDLED)
    archive.ledger.append(
        replace(early, basis=None, decided_at_ms=early.decided_at_ms + 1, attempt=2, reason=SENT_BEFORE)
    )
    report = judged(archive, twice=True)
    assert report.faults() == {}
    assert report.inboxes() == {"care.inbox": (1, 1, 0), "help.inbox": (1, 1, 0)}


@pytest.mark.source("C4")
def test_what_may_have_expired_in_an_inbox_without_receipts_is_counted(archive: SmallArchive) -> None:
    archive.send(expirytime="2026-03-01T12:10:00Z")
    archive.route(archive.send(expirytime="2026-03-01T12:10:00Z"))
    archive.send()
    report = judged(archive)
    assert report.faults() == {"duplicated": 1}
    assert report.inboxes() == {"care.inbox": (3, 4, 2)}


def test_a_delivery_that_no_route_gives_is_misrouted(archive: SmallArchive) -> None:
    event = archive.send()
    archive.ledger.append(
        archive.record(event, route="alarms", destination="help.inbox", outcome=Outcome.DELIVERED)
    )
    report = judged(archive)
    assert report.faults() == {"misrouted": 1}
    assert report.totals["delivered"] == report.totals["expected"] == 1
    (finding,) = report.findings
    assert (finding.kind, finding.route, finding.destination) == ("misrouted", "alarms", "help.inbox")
    assert finding.archive_file == FILES["ledger"]


def test_a_route_s_delivery_to_another_inbox_is_misrouted_and_still_owed(archive: SmallArchive) -> None:
    archive.send()
    archive.alter(destination="help.inbox")
    report = judged(archive)
    assert report.faults() == {"lost": 1, "misrouted": 1}
    assert {each.kind: (each.route, each.destination) for each in report.findings} == {
        "lost": ("readings", "care.inbox"),
        "misrouted": ("readings -> help.inbox", "help.inbox"),
    }


def test_what_an_operator_put_back_needs_no_tap_and_is_told(archive: SmallArchive) -> None:
    (row,) = archive.route(archive.event())
    archive.ledger = [replace(row, put_back_by=OPERATOR)]
    report = judged(archive)
    assert report.found() == {("put_back", "router", row.id)}
    assert report.faults() == {}
    assert report.totals["internal"] == 1
    assert report.judgement.not_in_tap == []

    archive.ledger.append(replace(row, message_id="injected"))
    assert judged(archive).faults() == {"unexplained": 1, "duplicated": 1}


def test_a_delivery_that_the_tap_knows_nothing_of_is_for_the_devices_to_judge(archive: SmallArchive) -> None:
    archive.route(archive.event())
    report = judged(archive)
    assert report.faults() == {"unexplained": 1}
    assert report.findings == []
    (row,) = report.judgement.not_in_tap
    assert (row.client_id, row.id, row.route, row.destination) == (
        "home-1",
        "home-1-e1-1",
        "readings",
        "care.inbox",
    )


def test_what_enters_in_the_cloud_is_internal(archive: SmallArchive) -> None:
    archive.route(archive.event())
    archive.alter(entered_by="help.outbox", client_id=None)
    report = judged(archive)
    assert report.faults() == {}
    assert (report.totals["internal"], report.totals["expected"]) == (1, 0)


THEN = "1970-01-01T00:00:00Z"
NOON_40 = {"expirytime": "2026-03-01T12:00:00.040Z"}
"""When the router decides."""
AGED = {
    "outcome": "expired",
    "reason": "channel_expiry",
    "destination": "care.inbox",
    "decided_at_ms": NOON_MS + 10_000,
}


@pytest.mark.parametrize(
    ("contract", "event", "end", "verdict"),
    [
        ({}, NOON_40, {"outcome": "expired"}, "expired"),
        ({}, NOON_40, {"outcome": "expired", "route": None}, "expired"),
        ({}, {"expirytime": "2026-03-01T12:00:00.041Z"}, {"outcome": "expired"}, "lost"),
        ({}, {}, {"outcome": "expired"}, "lost"),
        # By no clock but that of its acceptance: a device's may be decades wrong.
        ({}, {"time": THEN, "expirytime": "1970-01-01T00:00:00.040Z"}, {"outcome": "expired"}, "expired"),
        ({}, {"time": THEN, "expirytime": "1970-01-01T00:00:00.041Z"}, {"outcome": "expired"}, "lost"),
        # What the core cannot read, as a leap second was once, is the router's to judge.
        ({}, {"expirytime": "2026-02-28T23:59:60Z"}, {"outcome": "expired"}, "expired"),
        ({"expiry_s": 10}, {}, AGED, "expired"),
        ({"expiry_s": 10}, {}, {**AGED, "decided_at_ms": NOON_MS + 9_999}, "lost"),
        ({"expiry_s": 10}, {}, {**AGED, "reason": None}, "lost"),
        ({}, {}, AGED, "lost"),
        ({}, {}, {"outcome": "dropped", "reason": "because"}, "dropped"),
        ({}, {}, {"outcome": "dropped", "reason": FAILED}, "lost"),
        ({"delivery_guarantee": "best_effort"}, {}, {"outcome": "dropped", "reason": FAILED}, "dropped"),
        ({}, {"routerhops": MAX_HOPS}, {"outcome": "dropped", "reason": "hop_limit"}, "dropped"),
        ({}, {"routerhops": MAX_HOPS - 1}, {"outcome": "dropped", "reason": "hop_limit"}, "lost"),
    ],
)
def test_an_end_is_believed_where_event_and_contract_bear_it_out(
    archive: SmallArchive, contract: Any, event: dict[str, Any], end: dict[str, Any], verdict: str
) -> None:
    archive.use(small_contract(inboxes={"care": contract}))
    sent = archive.event(**event)
    archive.accept(sent)
    decided = {"decided_at_ms": NOON_MS + age_ms} if (age_ms := end.get("age_ms")) else {}
    recorded = {name: value for name, value in end.items() if name != "age_ms"}
    archive.ledger.append(
        archive.record(
            sent, **{"route": "readings", **recorded, "outcome": Outcome(end["outcome"])}, **decided
        )
    )
    report = judged(archive)
    assert report.faults() == {verdict: 1}
    assert report.route("readings")[verdict] == report.route("readings")["expected"] == 1
    (finding,) = report.findings
    reason = end.get("reason") or "no reason given"
    assert finding.detail == (
        f"recorded as {end['outcome']}, {reason}; nothing bears it out" if verdict == "lost" else reason
    )


@pytest.mark.parametrize(
    ("schema_check", "event", "reason", "is_believed"),
    [
        ("known", {}, "payload_invalid", True),
        ("strict", {}, "payload_invalid", True),
        ("strict", {}, "unknown_dataschema", True),
        ("none", {}, "payload_invalid", False),
        ("known", {}, "unknown_dataschema", False),
        ("strict", {}, "because", False),
        ("strict", {}, None, False),
        ("strict", {"type": ALARM}, "payload_invalid", False),
        ("none", {"routerhops": MAX_HOPS}, "hop_limit", True),
        ("none", {"routerhops": MAX_HOPS - 1}, "hop_limit", False),
    ],
)
def test_a_refusal_is_believed_where_event_and_contract_bear_it_out(
    archive: SmallArchive, schema_check: str, event: dict[str, Any], reason: Any, is_believed: bool
) -> None:
    archive.use(small_contract(schema_check))
    archive.refuse_event(archive.event(**event), reason)
    report = judged(archive)
    assert report.faults() == ({"dead_lettered": 1} if is_believed else {"lost": 1, "dead_lettered": 1})
    route = report.route("alarms" if event.get("type") else "readings")
    assert route["dead_lettered" if is_believed else "lost"] == route["expected"] == 1
    assert report.letters() == {("cloud", reason): (1, 0)}
    assert report.totals["internal"] == 1, "the letter"
    assert report.findings[0].archive_file == FILES["ledger"]


@pytest.mark.parametrize("route", ["readings", None])
def test_a_lost_letter_is_a_loss(archive: SmallArchive, route: str | None) -> None:
    archive.use(small_contract("strict"))
    archive.refuse_event(archive.event(), "payload_invalid", route=route)
    archive.refuse_event(archive.event(), "payload_invalid", route=route)
    archive.alter(outcome=Outcome.EXPIRED)
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 2}
    assert report.findings[0].id == archive.ledger[-2].id


def test_one_route_that_ended_in_a_dead_letter_says_nothing_of_the_others(archive: SmallArchive) -> None:
    archive.use(small_contract(copies={"filter": {"exact": {"type": READING}}, "to": "help.inbox"}))
    archive.refuse_event(archive.event(), "no_room", route="copies", destination="help.inbox")
    report = judged(archive)
    assert report.faults() == {"lost": 1, "dead_lettered": 1}
    assert report.findings[0].route == "readings"


def test_a_copy_that_was_delivered_goes_before_one_that_was_refused(archive: SmallArchive) -> None:
    archive.use(small_contract("strict"))
    event = archive.event()
    archive.refuse_event(event, "payload_invalid")
    archive.route(event)
    report = judged(archive)
    assert (report.totals["delivered"], report.totals["lost"]) == (1, 0)


def test_each_event_is_judged_by_the_contract_in_force(archive: SmallArchive) -> None:
    old, new = archive.contract, small_contract(diaries=DIARIES)
    archive.send(DIARY)  # unrouted, rightly
    lost_before, lost_after = archive.event(DIARY), archive.event(DIARY)
    archive.accept(lost_before, at_ms=NOON_MS + 1)
    archive.use(new, old)
    archive.send(DIARY, at_ms=NOON_MS + 60_000)  # delivered, rightly
    archive.accept(lost_after, at_ms=NOON_MS + 120_000)
    # A router of the old version was still running: its record goes before the clock.
    archive.contract = old
    archive.send(DIARY, at_ms=NOON_MS + 180_000)
    report = judged(archive)
    assert report.faults() == {"lost": 2}
    lost = {lost_before.id: "(unrouted)", lost_after.id: "diaries"}
    assert {each.id: each.route for each in report.findings} == lost
    assert (report.totals["unrouted"], report.totals["delivered"]) == (2, 1)


def test_copies_routed_by_two_versions_expect_the_routes_of_both(archive: SmallArchive) -> None:
    event = archive.send(DIARY)
    archive.use(small_contract(diaries=DIARIES), archive.contract)
    archive.accept(event, at_ms=NOON_MS + 60_000)
    archive.route(event, at_ms=NOON_MS + 60_000)
    report = judged(archive)
    assert report.faults() == {}
    assert (report.totals["unrouted"], report.totals["delivered"]) == (1, 1)


@pytest.mark.parametrize("is_withdrawn", [True, False], ids=["withdrawn", "published"])
@pytest.mark.parametrize("copied_at", [None, 1, 2])
def test_the_last_decision_owes(archive: SmallArchive, is_withdrawn: bool, copied_at: int | None) -> None:
    own, published = archive.contract, small_contract(copies=COPIES)
    versions = (published, own) if is_withdrawn else (own, published)
    archive.use(*reversed(versions))
    event = archive.event(ALARM)
    archive.accept(event)
    for attempt, archive.contract in enumerate(versions, 1):
        decided = {"attempt": attempt, "decided_at_ms": NOON_MS + attempt * 1_000, "message_id": "m"}
        archive.ledger += [
            replace(row, **decided, reason=SENT_BEFORE if row.route == "alarms" and attempt > 1 else None)
            for row in archive.route(event)
            if row.route == "alarms" or attempt == copied_at
        ]
        archive.ledger = [row for row in archive.ledger if row.message_id == "m"]
    is_copied = copied_at == (1 if is_withdrawn else 2)
    report = judged(archive)
    assert report.faults() == ({} if is_withdrawn or is_copied else {"lost": 1})
    assert report.inboxes().keys() == {"help.inbox", *(["care.inbox"] if is_copied else [])}


def test_what_the_cloud_lost_is_sent_again_and_then_not_lost(archive: SmallArchive) -> None:
    lost, young = archive.event(), archive.event()
    archive.accept(lost)
    archive.accept(young, at_ms=NOON_MS + HOUR_MS)
    archive.send()
    # Half an hour after the younger one: it has time left.
    report = judged(archive, as_of="2026-03-01T13:30:00Z")
    assert [report.totals[name] for name in ("lost", "pending", "to_replay")] == [1, 1, 1]
    assert report.judgement.replay == [
        ReplayRow(
            date=DAY,
            sender="home-1/",
            source=lost.source,
            id=lost.id,
            type=READING,
            device="home-1",
            route="readings",
            destination="care.inbox",
            contract_version=archive.contract.version,
            entered_at_ms=NOON_MS,
            archive_file=FILES["tap"],
        )
    ]
    archive.route(young, at_ms=NOON_MS + HOUR_MS)
    archive.route(lost)
    archive.alter(reason="replay", decided_at_ms=NOON_MS + 30 * HOUR_MS)
    report = judged(archive)
    assert [report.totals[name] for name in ("lost", "pending", "replayed", "to_replay")] == [0, 0, 1, 0]
    assert report.judgement.replay == []
    assert [each.kind for each in report.findings] == ["late"]  # what a replay cannot help


@pytest.mark.parametrize("reason", [REPLAY, REDRIVE])
@pytest.mark.parametrize("was_routed", [True, False], ids=["routed", "lost at first"])
@pytest.mark.parametrize("route", ["alarms", "copies"], ids=["an old route", "a new route"])
def test_later_routes_are_not_owed(archive: SmallArchive, reason: str, was_routed: bool, route: str) -> None:
    """The simulator: an inbox was replayed after a subscription, and the audit missed old events there."""
    event = archive.event(ALARM)
    archive.accept(event)
    if was_routed:
        archive.route(event)
    archive.send()
    archive.use(
        small_contract(copies={"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}), archive.contract
    )
    archive.send(at_ms=NOON_MS + 60_000)
    to = {"alarms": "help.inbox", "copies": "care.inbox"}[route]
    later = archive.record(event, route=route, destination=to, outcome=Outcome.DELIVERED, reason=reason)
    archive.ledger.append(replace(later, decided_at_ms=NOON_MS + HOUR_MS // 2))
    report = judged(archive)
    assert report.totals["lost"] == (route == "copies" and not was_routed)  # by the contract of then
    assert (report.totals["misrouted"], report.route("alarms")["lost"]) == (0, report.totals["lost"])
    assert report.route(route)["delivered"] == 1


def test_latency_by_hop_and_priority(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.send(READING)
    archive.send(READING)
    archive.alter(decided_at_ms=NOON_MS + 5_000)
    assert judged(archive).judgement.latencies == {
        LatencyKey("device_to_cloud", "urgent", "alarms", 1_000): 1,
        LatencyKey("cloud_to_inbox", "urgent", "alarms", 40): 1,
        LatencyKey("device_to_inbox", "urgent", "alarms", 1_040): 1,
        LatencyKey("device_to_cloud", "normal", "readings", 1_000): 2,
        LatencyKey("cloud_to_inbox", "normal", "readings", 40): 1,
        LatencyKey("cloud_to_inbox", "normal", "readings", 5_000): 1,
        LatencyKey("device_to_inbox", "normal", "readings", 1_040): 1,
        LatencyKey("device_to_inbox", "normal", "readings", 6_000): 1,
    }


class TestItemsThatAreNoEvents:
    """What a device sent and no reader can take for an event."""

    def test_a_refused_item_has_a_dead_letter(self, archive: SmallArchive) -> None:
        archive.send()
        rows = archive.refuse(b'{"specversion":"1.0"')
        # The message came again: it was recorded again and the letter sent again.
        archive.ledger += [replace(row, attempt=2) for row in rows]
        report = judged(archive)
        assert report.faults() == {"dead_lettered": 1, "duplicated": 1}
        assert report.letters() == {("cloud", "not_json"): (1, 0)}
        assert report.totals["internal"] == 1
        assert report.inboxes()["help.inbox"] == (1, 2, 0)

    def test_an_unrecorded_refusal_is_lost(self, archive: SmallArchive) -> None:
        archive.refuse(b"garbage", "home-1")
        archive.refuse(b"garbage", "home-2")
        archive.ledger = archive.ledger[:2] + archive.ledger[:2]
        report = judged(archive)
        assert report.faults() == {"lost": 1, "dead_lettered": 2, "duplicated": 1}
        assert report.letters() == {("cloud", "not_json"): (2, 1)}
        finding = report.findings[0]
        assert (finding.kind, finding.device, finding.id) == ("lost", "home-2", None)
        assert finding.detail == "no record of an item refused as not_json"

    def test_dead_letters_of_devices_are_events_and_are_counted(self, archive: SmallArchive) -> None:
        archive.use(
            small_contract(letters={"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "care.inbox"})
        )
        archive.send(DEAD_LETTER_TYPE, deadletterreason="not_utf8")
        report = judged(archive)
        assert report.faults() == {"dead_lettered": 1}
        assert report.letters() == {("device", "not_utf8"): (1, 0)}
        assert report.route("letters")["delivered"] == 1


DECLARED = {"silent": None, "sure": "at_least_once", "lively": "best_effort"}
INBOXES = {"desk": "at_least_once", "wall": "best_effort"}
KITCHEN = {"exact": {"room": "kitchen"}}


@pytest.mark.source("P4", "C1")
class TestBestEffort:
    """What a router may have dropped: the audit believes it of those deliveries only."""

    def every_declaration(self, outbox: str) -> Contract:
        """All that routes, types and inboxes can declare, behind one outbox of the device."""
        services: dict[str, Any] = {
            name: {"kind": "cloud_service", "description": "d", "inbox": {"delivery_guarantee": each}}
            for name, each in INBOXES.items()
        }
        device = {"kind": "device", "description": "d", "outbox": {"delivery_guarantee": outbox}}
        routes = {
            f"{name}-to-{inbox}": {
                "filter": {"prefix": {"type": "org."}},
                "to": f"{inbox}.inbox",
                "delivery_guarantee": each,
            }
            for name, each in DECLARED.items()
            for inbox, guarantee in INBOXES.items()
            if (each, guarantee) != ("at_least_once", "best_effort")  # the compiler refuses it
        }
        types = {
            f"org.example.{name}": {"description": "d", "delivery_guarantee": each}
            for name, each in DECLARED.items()
        }
        document = {"format": 7, "name": "every", "participants": {"device": device, **services}}
        return compile_contract({**document, "event_types": types, "routes": routes}, "every")

    @pytest.mark.parametrize("outbox", ["at_least_once", "best_effort"])
    def test_only_best_effort_may_be_dropped(self, archive: SmallArchive, outbox: str) -> None:
        contract = self.every_declaration(outbox)
        archive.use(contract)
        routes = contract.routes_at(Place.CLOUD)
        dropped = dict.fromkeys((each.name for each in routes), 0)
        lost = dict(dropped)
        types = [*(f"org.example.{each}" for each in DECLARED), "org.other", HEARTBEAT]
        for number, (type_, asks) in enumerate(product(types, (False, True))):
            source = {"source": "/devices/home-1/forwarder"} if type_ == HEARTBEAT else {}
            event = archive.event(type_, **source, **({"deliveryguarantee": "best_effort"} if asks else {}))
            archive.accept(event)
            for at, row in enumerate(archive.route(event), start=-len(routes)):
                reason = DROP_REASONS[number % 2]
                archive.ledger[at] = replace(row, outcome=Outcome.DROPPED, reason=reason)
            for route in routes:
                is_kept = is_promised(contract, event, contract.device.outbox, route)
                (lost if is_kept else dropped)[route.name] += 1
        report = judged(archive)
        found = {name: report.route(name) for name in dropped}
        assert {name: each["dropped"] for name, each in found.items()} == dropped
        assert {name: each["lost"] for name, each in found.items()} == lost
        assert min(sum(lost.values()), sum(dropped.values())) > 0

    def test_what_was_delivered_and_then_not_repeated_is_delivered(self, archive: SmallArchive) -> None:
        archive.use(small_contract(inboxes={"care": {"delivery_guarantee": "best_effort"}}))
        archive.send()
        again = {"attempt": 2, "outcome": Outcome.DROPPED, "reason": NOT_REPEATED}
        archive.ledger.append(replace(archive.ledger[-1], **again))
        report = judged(archive)
        assert report.faults() == {}
        assert report.totals["delivered"] == 1

    def test_unrecorded_best_effort_is_lost(self, archive: SmallArchive) -> None:
        archive.use(small_contract(inboxes={"care": {"delivery_guarantee": "best_effort"}}))
        archive.accept(archive.event())
        assert judged(archive).faults() == {"lost": 1}


class TestInterest:
    """What nobody handles is rightly not forwarded, and nothing else is."""

    @pytest.mark.parametrize(
        ("type_", "attributes", "end", "verdict"),
        [
            (READING, {"room": "kitchen"}, "delivered", "delivered"),
            (READING, {"room": "kitchen"}, "no_interest", "lost"),
            (READING, {"room": "bath"}, "no_interest", "no_interest"),
            (READING, {"room": "bath"}, "delivered", "misrouted"),
            (READING, {"room": "bath"}, None, "lost"),
            (READING, {"room": "bath", "severitynumber": 9}, "no_interest", "no_interest"),
            # Urgent by its type, and by its own word.
            (ALARM, {"room": "bath"}, "delivered", "delivered"),
            (ALARM, {}, "no_interest", "lost"),
            (READING, {"severitynumber": 17}, "delivered", "delivered"),
            (READING, {"severitynumber": 17}, "no_interest", "lost"),
        ],
    )
    def test_only_what_nobody_wants_is_rightly_held_back(
        self, archive: SmallArchive, type_: str, attributes: Any, end: str | None, verdict: str
    ) -> None:
        announced = [new_announcement(each, [KITCHEN]) for each in ("help", "care")]
        contract, refused = with_interest(archive.contract, announced)
        assert refused == {}
        archive.use(contract)
        archive.send(READING, home="home-2", room="kitchen")  # so that the contract is in use
        archive.send(type_, **attributes)
        if end is None:
            archive.ledger.pop()
        elif end == "no_interest":
            archive.alter(outcome=Outcome.NO_INTEREST, reason=Reason.NO_INTEREST)
        report = judged(archive)
        is_fault = verdict in ("lost", "misrouted")
        assert report.faults() == ({verdict: 1} if is_fault else {})
        assert report.totals[verdict] == 1 + (verdict == "delivered")
        expected = 1 + (verdict not in ("no_interest", "misrouted"))
        assert report.totals["expected"] == expected

    def test_copies_that_met_two_contracts_may_end_by_either(self, archive: SmallArchive) -> None:
        before = archive.contract
        event = archive.send(READING, room="bath")
        contract, _ = with_interest(before, [new_announcement("care", [KITCHEN])])
        archive.use(contract, before)
        archive.accept(event)
        archive.route(event)
        archive.alter(outcome=Outcome.NO_INTEREST, reason=Reason.NO_INTEREST)
        report = judged(archive)
        assert report.faults() == {}
        assert report.route("readings")["delivered"] == 1


def test_what_an_operator_redrove_into_an_inbox_is_no_copy_of_the_plane_s(archive: SmallArchive) -> None:
    event = archive.send()
    again = archive.record(event, at_ms=NOON_MS + 26 * HOUR_MS, reason=REDRIVE, put_back_by="operator")
    delivered = archive.ledger[0]
    where = {"route": delivered.route, "destination": delivered.destination, "outcome": Outcome.DELIVERED}
    archive.ledger.append(replace(again, entered_by=delivered.destination, **where))
    report = judged(archive)
    assert (report.faults(), [each.kind for each in report.findings]) == ({}, ["put_back"])


@pytest.mark.parametrize("was_due", [True, False])
def test_a_put_back_event_was_led_there(archive: SmallArchive, was_due: bool) -> None:
    """The simulator: a router put an event into an inbox and ended before it said so. The route was gone when
    another one decided, and when an operator sent the dead letter of the inbox back."""
    copies = {"filter": {"exact": {"type": ALARM if was_due else READING}}, "to": "care.inbox"}
    later, before = archive.contract, small_contract(copies=copies)
    archive.use(before)
    archive.send(ALARM)
    archive.use(later, before)
    event = archive.send(ALARM, at_ms=NOON_MS + 60_000)
    where = {"route": "copies", "destination": "care.inbox", "outcome": Outcome.DELIVERED, "reason": REDRIVE}
    put_back = {"entered_by": "care.inbox", "put_back_by": "operator"}
    archive.ledger.append(archive.record(event, at_ms=NOON_MS + HOUR_MS, **put_back, **where))
    assert judged(archive).totals["misrouted"] == (not was_due)
