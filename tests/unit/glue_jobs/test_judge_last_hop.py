"""The last hop: what webhooks recorded of the events in their inboxes, and what that proves of the router."""

from collections import Counter
from typing import Any

import pytest

from eventplane.ledger import HandoverRecord
from eventplane.names import PLANE
from eventplane.reader_receipts import SETTLED_BEFORE, is_asked
from eventplane.reasons import REDRIVE, REPLAY, Outcome
from glue_jobs.delivery_audit.event_group import HoleCount, InboxCount, LatencyKey
from tests.spark.small_archive import (
    ALARM,
    DAY,
    DIARY,
    HOUR_MS,
    NOON_MS,
    READING,
    WEBHOOK,
    SmallArchive,
    small_contract,
)
from tests.unit.glue_jobs.judging import at_noon, judged, nothing_is_accused

NOON = NOON_MS // HOUR_MS
FIFO = {"transport": "sqs_fifo", "ordering": "source"}


@pytest.fixture
def archive(archive: SmallArchive) -> SmallArchive:
    """Alarms go to a webhook that tries for ten minutes."""
    archive.use(small_contract(inboxes={"help": WEBHOOK, "care": FIFO}))
    return archive


def handed_over_at(archive: SmallArchive, at_ms: int, **more: Any) -> HandoverRecord:
    return archive.hand_over(decided_at_ms=at_ms + 900, entered_at_ms=at_ms + 100, **more)


def test_each_fault_is_found_at_its_hop(archive: SmallArchive) -> None:
    taken, twice, refused, vanished = (archive.send(ALARM) for _ in range(4))
    expired = archive.send(ALARM, expirytime="2026-03-01T12:00:00.800Z")
    claimed = archive.send(ALARM, expirytime="2026-03-01T13:00:00Z")
    for event in (taken, twice, twice):
        archive.hand_over(event)
    archive.hand_over(refused, Outcome.DEAD_LETTERED, status=410)
    for event in (expired, claimed):
        archive.hand_over(event, Outcome.EXPIRED, status=503)
    forged = archive.hand_over(archive.event(ALARM))  # never in the inbox
    copied = archive.send(READING)
    slow = archive.send(READING, home="home-2")
    archive.move(slow, decided_at_ms=NOON_MS + 2 * HOUR_MS)
    stray = archive.send(DIARY)
    archive.ledger.append(
        archive.record(stray, route="alarms", destination="care.inbox", outcome=Outcome.DELIVERED)
    )
    archive.accept(copied)  # a copy, which the router knew

    report = judged(archive)
    assert report.found() == {
        ("duplicate", "inbox_consumer", twice.id),
        ("dead_lettered", "inbox_consumer", refused.id),
        ("lost", "inbox_consumer", vanished.id),
        ("expired", "inbox_consumer", expired.id),
        ("lost", "inbox_consumer", claimed.id),  # it had an hour left
        ("forged", "inbox_consumer", forged.id),
        ("late", "router", slow.id),
        ("unrouted_delivered", "router", stray.id),
        ("duplicate", "device_cloud", copied.id),
    }
    assert report.consumed() == {
        ("help.inbox", "delivered"): 2,
        ("help.inbox", "dead_lettered"): 1,
        ("help.inbox", "lost"): 2,
        ("help.inbox", "expired"): 1,
    }
    assert report.accounts() == {
        "help.inbox": {"handled": 2, "given up": 1, "lost": 2, "expired": 1},
        "care.inbox": {"in the inbox": 3},
    }
    assert report.judgement.counts[InboxCount("duplicated", DAY, "help.inbox")] == 1
    assert report.totals["lost"] == 0
    latencies = report.judgement.latencies
    assert latencies[LatencyKey("inbox_to_consumer", "urgent", "alarms", 800)] == 5
    samples: Counter[tuple[str, str | None]] = Counter()
    for key, count in latencies.items():
        if key.span == "cloud_to_inbox":
            samples[key.route, key.priority] += count
    strayed = ("alarms -> care.inbox", "normal")
    assert samples == {("alarms", "urgent"): 6, ("readings", "normal"): 2, strayed: 1}


GIVEN_UP = ({"given up": 1}, ["bug, by care"])
IN_INBOX: Any = ({"in the inbox": 1}, [])


@pytest.mark.parametrize(
    ("letters", "again_ms", "lost", "told"),
    [
        ([("care", 100, "")], None, False, GIVEN_UP),
        ([("care", 100, "")] * 2, None, False, GIVEN_UP),
        # A party's word is taken for its own inbox.
        ([("help", 100, ""), ("home-1/care", 100, ""), (PLANE, 100, "")], None, False, IN_INBOX),
        # A redrive and a replay put it into the inbox anew.
        ([("care", 100, "")], 200, False, IN_INBOX),
        ([("care", 100, ""), ("care", 300, ".r2")], 200, False, GIVEN_UP),
        ([("care", 100, "")], None, True, ({"lost": 1}, [])),
    ],
)
@pytest.mark.parametrize("reason", [REPLAY, REDRIVE])
def test_what_its_reader_gave_up_is_no_longer_in_the_inbox(
    archive: SmallArchive,
    letters: list[tuple[str, int, str]],
    again_ms: int | None,
    lost: bool,
    told: tuple[dict[str, int], list[str]],
    reason: str,
) -> None:
    event = archive.send(READING)
    if again_ms:
        archive.ledger += archive.ledger
        archive.alter(decided_at_ms=NOON_MS + again_ms, reason=reason)
    for by, at_ms, suffix in letters:
        archive.give_up(event, by, suffix=suffix, decided_at_ms=NOON_MS + at_ms)
    if lost:
        del archive.ledger[0]
    report = judged(archive)
    details = [each.detail for each in report.findings if each.kind == "dead_lettered"]
    assert (report.accounts()["care.inbox"], details) == told


@pytest.mark.source("P4", "C1")
def test_a_webhook_may_drop_what_came_at_best_effort_and_nothing_else(archive: SmallArchive) -> None:
    for more in ({"deliveryguarantee": "best_effort"}, {}):
        archive.hand_over(archive.send(ALARM, **more), Outcome.DROPPED, status=503)
    report = judged(archive)
    assert {(each.kind, each.id, each.detail) for each in report.findings} == {
        ("dropped", "home-1-e1-1", "rejected, HTTP status 503"),
        ("lost", "home-1-e1-2", "recorded as dropped, rejected; nothing bears it out"),
    }
    assert report.consumed() == {("help.inbox", "dropped"): 1, ("help.inbox", "lost"): 1}


def test_each_webhook_has_its_own_patience(archive: SmallArchive) -> None:
    patient = {"webhook": {"timeout_s": 5, "give_up_after_s": 86_400}}
    archive.use(small_contract(inboxes={"help": WEBHOOK, "care": patient}))
    archive.send(ALARM)
    archive.send(READING)
    # An hour is for the records, one for a pause of the endpoint.
    report = judged(archive, as_of="2026-03-01T14:00:00Z")
    assert report.consumed() == {("help.inbox", "pending"): 1, ("care.inbox", "pending"): 1}
    # Three hours after noon ten minutes are over, a day is not.
    report = judged(archive, as_of="2026-03-01T15:00:00Z")
    assert report.consumed() == {("help.inbox", "lost"): 1, ("care.inbox", "pending"): 1}


@pytest.mark.parametrize(
    ("waited_ms", "reason", "kind"),
    [(60_000, "channel_expiry", "expired"), (59_999, "channel_expiry", "lost"), (60_000, "because", "lost")],
)
def test_waiting_ends_by_expiry(archive: SmallArchive, waited_ms: int, reason: str, kind: str) -> None:
    archive.use(small_contract(inboxes={"help": {**WEBHOOK, "expiry_s": 60}}))
    archive.send(ALARM)
    at_ms = NOON_MS + 100 + waited_ms
    archive.hand_over(outcome=Outcome.EXPIRED, reason=reason, status=None, decided_at_ms=at_ms)
    assert [each.kind for each in judged(archive).findings] == [kind]


def test_a_handover_proves_that_the_ledger_lacks_a_record(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.hand_over()
    archive.ledger.clear()
    report = judged(archive)
    assert report.faults() == {"unrecorded": 1}
    assert report.findings == []
    assert report.consumed() == {("help.inbox", "delivered"): 1}
    assert report.judgement.counts[HoleCount("ledger", NOON)] == 1


def test_one_handover_does_not_prove_two_deliveries(archive: SmallArchive) -> None:
    copies = {"filter": {"exact": {"type": ALARM}}, "to": "help.inbox"}
    archive.use(small_contract(inboxes={"help": WEBHOOK}, copies=copies))
    archive.send(ALARM)
    archive.hand_over()
    archive.ledger = [row for row in archive.ledger if row.route == "alarms"]
    report = judged(archive)
    assert report.faults() == {"lost": 1}
    assert (report.route("alarms")["delivered"], report.route("copies")["lost"]) == (1, 1)


def test_a_handover_where_the_record_has_another_end_is_forged(archive: SmallArchive) -> None:
    archive.send(ALARM, expirytime="2026-03-01T12:00:00Z")
    archive.hand_over()
    archive.alter(outcome=Outcome.EXPIRED)
    report = judged(archive)
    assert report.faults() == {"expired": 1}
    assert report.consumed() == {}
    assert {each[:2] for each in report.found()} == {("expired", "router"), ("forged", "inbox_consumer")}


def test_a_handover_of_an_unknown_event_is_forged_unless_the_ledger_has_a_hole(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.hand_over()
    archive.hand_over(id="unknown", sender="help")
    assert [each.kind for each in judged(archive).findings] == ["forged"]
    report = judged(archive, damaged=at_noon("ledger"))
    assert report.findings == []
    assert report.judgement.counts[HoleCount("ledger", NOON)] == 1


def test_a_delivery_whose_handover_lies_in_a_hole_is_unrecorded_at_its_end(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.send(ALARM, at_ms=NOON_MS - 600_000)  # tried until the hole
    lost = archive.send(ALARM, at_ms=NOON_MS - 2 * HOUR_MS)
    report = judged(archive, damaged=at_noon("handovers"))
    assert report.consumed() == {("help.inbox", "unrecorded"): 2, ("help.inbox", "lost"): 1}
    assert [(each.kind, each.id) for each in report.findings] == [("lost", lost.id)]
    assert report.judgement.counts[HoleCount("handovers", NOON)] == 2


def test_a_handover_that_is_not_understood_accuses_nobody(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.hand_over(outcome="postponed")  # type: ignore[arg-type]
    report = judged(archive)
    assert report.consumed() == {("help.inbox", "not_understood"): 1}
    assert nothing_is_accused(report)
    assert [(each.kind, each.hop) for each in report.findings] == [("not_understood", "inbox_consumer")]


def test_a_handover_before_its_event_was_in_the_inbox_is_found(archive: SmallArchive) -> None:
    archive.send(ALARM)
    handed_over_at(archive, NOON_MS - 6_000)
    (finding,) = judged(archive).findings
    assert (finding.kind, finding.hop) == ("causality", "inbox_consumer")
    assert finding.detail == "handed over 5140 ms before it was put into the inbox"


def test_rows_that_lie_in_two_objects_count_once(archive: SmallArchive) -> None:
    archive.send(ALARM)
    archive.hand_over()
    archive.send(READING)
    archive.refuse(b"garbage")
    assert judged(archive, twice=True).judgement == judged(archive).judgement


READER = {"receipts": True, "retention_s": 3600}


def test_a_program_shows_by_receipts_what_it_took_and_what_it_never_took(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"help": READER}))
    taken, again, given_up, vanished = (archive.send(ALARM) for _ in range(4))
    expired = archive.send(ALARM, expirytime="2026-03-01T12:00:00.800Z")
    for event in (taken, again):
        archive.hand_over(event, status=None)
    archive.hand_over(again, status=None, reason=SETTLED_BEFORE, attempt=2)
    archive.hand_over(given_up, Outcome.DEAD_LETTERED, status=None, reason="no_such_home")
    archive.hand_over(expired, Outcome.EXPIRED, status=None, reason=None)
    report = judged(archive)
    assert report.found() == {
        ("dead_lettered", "inbox_consumer", given_up.id),
        ("lost", "inbox_consumer", vanished.id),
        ("expired", "inbox_consumer", expired.id),
    }
    assert report.accounts() == {"help.inbox": {"handled": 2, "given up": 1, "lost": 1, "expired": 1}}


def test_what_a_queue_still_keeps_is_in_the_inbox(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"help": {**READER, "retention_s": 14 * 86_400}}))
    archive.send(ALARM)
    taken = archive.send(ALARM)
    archive.hand_over(taken, status=None)
    report = judged(archive, as_of="2026-03-10T00:00:00Z")
    assert report.found() == set()
    assert report.accounts() == {"help.inbox": {"in the inbox": 1, "handled": 1}}


def test_of_a_share_only_that_is_missed(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"help": {**READER, "receipts_percent": 40}}))
    sent = [archive.send(ALARM) for _ in range(30)]
    asked = {each.id for each in sent if is_asked(each.source, each.id, 40)}
    assert 0 < len(asked) < 30
    assert judged(archive).found() == {("lost", "inbox_consumer", each) for each in asked}


def test_before_a_contract_asks_for_receipts_none_is_missed(archive: SmallArchive) -> None:
    before = small_contract()
    archive.use(before)
    archive.send(ALARM)
    archive.use(small_contract(inboxes={"help": READER}), before)
    missed = archive.send(ALARM)
    assert judged(archive).found() == {("lost", "inbox_consumer", missed.id)}


def test_a_status_is_needed_of_a_webhook(archive: SmallArchive) -> None:
    archive.hand_over(archive.send(ALARM), status=None)
    assert {kind for kind, *_ in judged(archive).found()} == {"contradiction"}


def test_of_an_inbox_that_was_a_webhook_each_contract_says_what_is_missed(archive: SmallArchive) -> None:
    before = archive.contract
    missed = archive.send(ALARM)
    archive.use(small_contract(inboxes={"help": {**READER, "retention_s": 14 * 86_400}}), before)
    waiting = archive.send(ALARM)
    # As long as one of them waits for: a receipt may still come for an hour that both were in force.
    assert judged(archive, as_of="2026-03-10T00:00:00Z").found() == set()
    found = judged(archive, as_of="2026-03-20T00:00:00Z").found()
    assert found == {("lost", "inbox_consumer", each.id) for each in (missed, waiting)}


def test_a_receipt_of_what_was_settled_before_leaves_it_given_up(archive: SmallArchive) -> None:
    archive.use(small_contract(inboxes={"care": READER}))
    for is_letter in (True, False):
        event = archive.send(READING)
        archive.hand_over(event, status=None, reason=SETTLED_BEFORE, channel="care.inbox")
        if is_letter:
            archive.give_up(event, "care", decided_at_ms=NOON_MS + 100)
    assert judged(archive).accounts()["care.inbox"] == {"given up": 1, "handled": 1}
