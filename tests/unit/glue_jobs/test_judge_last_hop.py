"""Router and last hop: copies, latecomers, handovers to webhooks, and what to send again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from eventplane.contract import Contract, compile_contract
from eventplane.envelope import Envelope
from eventplane.ledger import HandoverRecord, LedgerRecord
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.event_group import (
    InboxCount,
    LatencyKey,
    ReplayRow,
)
from tests.spark.small_archive import ALARM, DAY, DIARY, NOON_MS, READING, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import judged

HOUR_MS = 3_600_000


def last_hops() -> Contract:
    """Alarms go to a webhook, readings to a queue that keeps the order of a source."""
    document = json.loads(small_contract().canonical)
    help_inbox = document["participants"]["help"]["inbox"]
    help_inbox |= {"webhook": {"mode": "structured", "timeout_s": 5, "give_up_after_s": 600}}
    document["participants"]["care"]["inbox"] |= {"transport": "sqs_fifo", "ordering": "source"}
    return compile_contract(document, "test")


def handover(event: Envelope, outcome: Outcome = Outcome.DELIVERED, status: int = 204) -> HandoverRecord:
    return HandoverRecord(
        decided_at_ms=NOON_MS + 900,
        entered_at_ms=NOON_MS + 100,
        channel="help.inbox",
        contract_version="any",
        source=event.source,
        id=event.id,
        type=event.type,
        outcome=outcome,
        reason=None if outcome is Outcome.DELIVERED else "rejected",
        status=status,
        attempt=1,
        message_id="m",
        sender="home-1/",
    )


@pytest.fixture
def archive(archive: SmallArchive) -> SmallArchive:
    archive.contract = last_hops()
    archive.contracts = [archive.contract]
    return archive


def test_each_fault_is_found_at_its_hop(archive: SmallArchive) -> None:
    taken, twice, refused, vanished = (archive.send(ALARM) for _ in range(4))
    expired = archive.send(ALARM, expirytime="2026-03-01T12:00:00.800Z")
    claimed = archive.send(ALARM, expirytime="2026-03-01T13:00:00Z")
    archive.handovers = [
        *map(handover, (taken, twice, twice)),
        handover(refused, Outcome.DEAD_LETTERED, 410),
        *(handover(each, Outcome.EXPIRED, 503) for each in (expired, claimed)),
        handover(archive.event(ALARM)),  # never in the inbox
    ]
    copied = archive.send(READING)
    slow = archive.send(READING, home="home-2")
    move(archive, slow, decided_at_ms=NOON_MS + 2 * HOUR_MS)
    stray = archive.send(DIARY)
    wrong = archive.record(stray, route="alarms", destination="care.inbox", outcome=Outcome.DELIVERED)
    archive.ledger.append(wrong)
    archive.accept(copied)  # a copy, which the router knew

    report = judged(archive)
    found = {(each.kind, each.hop, each.id) for each in report.findings}
    assert found == {
        ("duplicate", "inbox_consumer", twice.id),
        ("dead_lettered", "inbox_consumer", refused.id),
        ("lost", "inbox_consumer", vanished.id),
        ("expired", "inbox_consumer", expired.id),
        ("lost", "inbox_consumer", claimed.id),  # it had an hour left
        ("forged", "inbox_consumer", archive.handovers[-1].id),
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


@pytest.mark.source("P4", "C1")
def test_a_webhook_may_drop_what_came_at_best_effort_and_nothing_else(archive: SmallArchive) -> None:
    lively, sure = archive.send(ALARM, deliveryguarantee="best_effort"), archive.send(ALARM)
    archive.handovers = [handover(each, Outcome.DROPPED, 503) for each in (lively, sure)]
    report = judged(archive)
    found = {(each.kind, each.hop, each.id, each.detail) for each in report.findings}
    assert found == {
        ("dropped", "inbox_consumer", lively.id, "rejected, HTTP status 503"),
        ("lost", "inbox_consumer", sure.id, "recorded as dropped, rejected; nothing bears it out"),
    }
    assert report.consumed() == {("help.inbox", "dropped"): 1, ("help.inbox", "lost"): 1}


def test_each_webhook_has_its_own_patience(archive: SmallArchive) -> None:
    document = json.loads(archive.contract.canonical)
    document["participants"]["care"]["inbox"] = {"webhook": {"timeout_s": 5, "give_up_after_s": 86_400}}
    archive.contract = compile_contract(document, "test")
    archive.contracts = [archive.contract]
    impatient, _ = archive.send(ALARM), archive.send(READING)
    # Three hours after noon, an hour of them for the records: ten minutes are over, a day is not.
    report = judged(archive, as_of="2026-03-01T15:00:00Z")
    assert [(each.kind, each.id) for each in report.findings] == [("lost", impatient.id)]
    assert report.consumed() == {("help.inbox", "lost"): 1, ("care.inbox", "pending"): 1}


def test_what_waited_too_long_for_its_endpoint_is_believed_by_the_inbox_s_expiry(
    archive: SmallArchive,
) -> None:
    document = json.loads(archive.contract.canonical)
    document["participants"]["help"]["inbox"]["expiry_s"] = 60
    archive.contract = compile_contract(document, "test")
    archive.contracts = [archive.contract]
    old, young = (archive.send(ALARM) for _ in range(2))
    archive.handovers = [
        replace(
            handover(event, Outcome.EXPIRED),
            reason="channel_expiry",
            status=None,
            decided_at_ms=NOON_MS + 100 + waited_ms,
        )
        for event, waited_ms in ((old, 60_000), (young, 59_999))
    ]
    found = {(each.kind, each.id) for each in judged(archive).findings}
    assert found == {("expired", old.id), ("lost", young.id)}


def test_what_the_cloud_lost_is_sent_again_and_then_not_lost(archive: SmallArchive) -> None:
    lost = archive.event(READING)
    archive.accept(lost)
    young = archive.event(READING, at_ms=NOON_MS + HOUR_MS)
    archive.accept(young, at_ms=NOON_MS + HOUR_MS)
    archive.send(READING)
    # Half an hour after the younger one: it has time left.
    report = judged(archive, as_of="2026-03-01T13:30:00Z")
    assert (report.totals["lost"], report.totals["pending"], report.totals["to_replay"]) == (1, 1, 1)
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
            archive_file=f"tap/date={DAY}/hour=12/rows.json.gz",
        )
    ]
    archive.route(young, at_ms=NOON_MS + HOUR_MS)
    (sent,) = archive.route(lost)
    archive.ledger[-1] = replace(sent, reason="replay", decided_at_ms=NOON_MS + 30 * HOUR_MS)
    report = judged(archive)
    assert [report.totals[name] for name in ("lost", "pending", "replayed", "to_replay")] == [0, 0, 1, 0]
    assert report.judgement.replay == []
    assert [each.kind for each in report.findings] == ["late"]  # what a replay cannot help


def move(archive: SmallArchive, event: Envelope, *, decided_at_ms: int) -> None:
    """The router decided later on `event` than it did."""

    def moved(row: LedgerRecord) -> LedgerRecord:
        times = {"received_at_ms": decided_at_ms, "decided_at_ms": decided_at_ms}
        return replace(row, **times) if row.id == event.id else row

    archive.ledger = [moved(row) for row in archive.ledger]
