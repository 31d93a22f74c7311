"""One frame in tap and ledger: joined in every window, compared, and not judged by a wrong clock."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final

import pytest

from eventplane.ingest import OPERATOR
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.event_group import LatencyKey
from glue_jobs.delivery_audit.findings import INCOMPLETE_KINDS
from glue_jobs.delivery_audit.rules import Window
from tests.spark.small_archive import ALARM, DAY, HOUR_MS, NOON_MS, WEBHOOK, SmallArchive, small_contract
from tests.unit.glue_jobs.judging import FILES, judged, nothing_is_accused

DAY_MS: Final = 24 * HOUR_MS
MINUTE_MS: Final = 60_000
THIS, NEXT = (Window(date.fromisoformat(DAY) + timedelta(days=days)) for days in (0, 1))
MIDNIGHT_MS: Final = NOON_MS + 12 * HOUR_MS


@pytest.mark.parametrize("other_ms", [1, HOUR_MS, -HOUR_MS, 2 * DAY_MS, -2 * DAY_MS, 365 * DAY_MS])
@pytest.mark.parametrize("window", [Window(), THIS], ids=str)
def test_another_time_is_no_loss(archive: SmallArchive, other_ms: int, window: Window) -> None:
    event = archive.send()
    archive.alter(entered_at_ms=NOON_MS + other_ms)
    report = judged(archive, window=window)
    assert report.faults() == {}
    assert report.totals["delivered"] == report.totals["expected"] == 1
    assert nothing_is_accused(report)
    assert report.judgement.not_in_tap == []
    (finding,) = report.findings
    assert (finding.kind, finding.hop, finding.id) == ("contradiction", "archive", event.id)
    assert finding.kind in INCOMPLETE_KINDS
    assert finding.archive_file == FILES["ledger"]
    assert (finding.detail or "").startswith("accepted 2026-03-01T12:00:00.000Z by the tap, entered ")
    assert report.judgement.latencies.keys() <= {LatencyKey("device_to_cloud", "normal", "readings", 1_000)}


@pytest.mark.parametrize("accepted_ms", [NOON_MS + HOUR_MS, NOON_MS - 2 * DAY_MS, 253_402_300_799_999])
def test_the_tap_may_be_wrong_as_well(archive: SmallArchive, accepted_ms: int) -> None:
    archive.send()
    archive.tap[-1] = replace(archive.tap[-1], accepted_at_ms=accepted_ms)
    report = judged(archive)
    assert (report.faults(), nothing_is_accused(report)) == ({}, True)
    assert [each.kind for each in report.findings] == ["contradiction"]


def test_one_route_of_two_may_contradict(archive: SmallArchive) -> None:
    archive.use(small_contract(copies={"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}))
    archive.send(ALARM)
    archive.alter(entered_at_ms=NOON_MS - HOUR_MS)
    report = judged(archive)
    assert report.faults() == {}
    assert [each.kind for each in report.findings] == ["contradiction"]
    # The other one without any record is lost all the same.
    archive.ledger.pop(0)
    assert judged(archive).faults() == {"lost": 1}


@pytest.mark.parametrize(
    "members",
    [
        {"entered_at_ms": -1},
        {"entered_at_ms": None},
        {"entered_at_ms": 10**15},
        {"decided_at_ms": None},
        {"received_at_ms": -1},
        {"received_at_ms": NOON_MS - 6_000},
        {"attempt": 0},
    ],
)
def test_what_cannot_be_is_a_contradiction(archive: SmallArchive, members: dict[str, Any]) -> None:
    archive.send()
    archive.alter(**members)
    report = judged(archive)
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert nothing_is_accused(report)
    assert [(each.kind, each.hop) for each in report.findings] == [("contradiction", "archive")]


def test_how_a_frame_with_two_times_ended_is_not_understood(archive: SmallArchive) -> None:
    archive.send(expirytime="2026-03-01T12:30:00Z")
    archive.alter(outcome=Outcome.EXPIRED, entered_at_ms=NOON_MS + HOUR_MS)
    report = judged(archive)
    assert report.faults() == {"not_understood": 1}
    assert nothing_is_accused(report)
    assert {each.kind for each in report.findings} == {"contradiction", "not_understood"}


def test_what_an_operator_put_back_has_a_time_of_its_own(archive: SmallArchive) -> None:
    event = archive.event()
    archive.accept(event)
    archive.route(event, at_ms=NOON_MS + HOUR_MS)
    archive.alter(put_back_by=OPERATOR)
    assert judged(archive).findings == []


class TestDaysAround:
    """What belongs to the window is decided once tap and ledger are joined."""

    def test_a_day_of_the_ledger_alone_is_reported(self, archive: SmallArchive) -> None:
        archive.send()
        archive.alter(entered_at_ms=MIDNIGHT_MS + HOUR_MS)
        report = judged(archive, window=NEXT)
        (finding,) = report.findings
        assert (finding.kind, finding.date) == ("contradiction", "2026-03-02")
        assert (report.faults(), report.totals["internal"], report.judgement.not_in_tap) == ({}, 0, [])

    def test_what_the_ledger_alone_has_belongs_to_its_entry(self, archive: SmallArchive) -> None:
        archive.route(archive.event(), at_ms=MIDNIGHT_MS)
        assert judged(archive, window=THIS).judgement.counts == {}
        assert judged(archive, window=NEXT).faults() == {"unexplained": 1}

    @pytest.mark.parametrize("has_other_data", [False, True])
    def test_an_id_comes_again_next_day(self, archive: SmallArchive, has_other_data: bool) -> None:
        first = archive.send(at_ms=MIDNIGHT_MS - 1)
        data = {"value": "another"} if has_other_data else first.data()
        again = archive.event(id=first.id, source=first.source, data=data, at_ms=MIDNIGHT_MS + 1)
        archive.accept(again, at_ms=MIDNIGHT_MS + 1)
        archive.route(again, at_ms=MIDNIGHT_MS + 1)
        for window in (THIS, NEXT):
            report = judged(archive, window=window)
            assert report.totals["delivered"] == report.totals["events"] == 1
            found = [(each.kind, each.date, each.detail) for each in report.findings]
            assert found == [("reused_id", str(window), "2 different payloads")] * has_other_data
        # All days together have the copy.
        kinds = {each.kind for each in judged(archive).findings}
        assert kinds == ({"reused_id"} if has_other_data else {"duplicate"})

    def test_a_line_of_the_next_day_excuses_and_is_not_counted(self, archive: SmallArchive) -> None:
        archive.send(at_ms=MIDNIGHT_MS - 1)
        row = archive.alter(outcome="postponed", entered_at_ms=MIDNIGHT_MS + 5)
        report = judged(archive, window=THIS)
        assert report.faults() == {"not_understood": 1}
        assert report.rows() == {("tap", None): 1}
        assert row.outcome == "postponed"


UNREAD: Final = ["expirytime", "recordedtime", "routerhops", "severitynumber", "deliveryguarantee"]


@pytest.mark.parametrize("name", UNREAD)
def test_what_the_core_would_not_read_is_not_understood(archive: SmallArchive, name: str) -> None:
    archive.send()
    archive.alter(outcome=Outcome.EXPIRED)
    report = judged(archive, tap={"unread": f"unreadable_{name}"})
    assert report.faults() == {"not_understood": 1, "quarantined": 1}
    assert nothing_is_accused(report)
    assert report.judgement.not_in_tap == []
    assert [(each.kind, each.hop, each.detail) for each in report.findings] == [
        ("not_understood", "archive", f"unreadable_{name}")
    ]


def test_an_event_without_a_readable_number_is_judged_but_for_its_order(archive: SmallArchive) -> None:
    archive.send()
    unread = {"unread": "unreadable_devicesequence", "sequence": None}
    report = judged(archive, tap=unread)
    assert report.totals["delivered"] == 1
    assert [(each.kind, each.detail) for each in report.findings] == [("not_understood", unread["unread"])]
    archive.ledger.clear()
    assert judged(archive, tap=unread).faults() == {"lost": 1}


class TestClocks:
    """A clock that the report calls wrong is no evidence of another hop's fault."""

    @pytest.fixture
    def archive(self, archive: SmallArchive) -> SmallArchive:
        archive.use(small_contract(inboxes={"help": WEBHOOK}))
        return archive

    @pytest.mark.parametrize("ahead_ms", [10 * MINUTE_MS, 365 * DAY_MS])
    def test_a_fast_router_accuses_nobody(self, archive: SmallArchive, ahead_ms: int) -> None:
        archive.send(ALARM)
        archive.hand_over()
        archive.alter(decided_at_ms=NOON_MS + ahead_ms)
        report = judged(archive)
        assert [(each.kind, each.hop) for each in report.findings] == [("clock_skew", "router")]
        assert report.consumed() == {("help.inbox", "delivered"): 1}

    def test_nor_for_how_long_it_waits(self, archive: SmallArchive) -> None:
        archive.send(ALARM)
        archive.alter(decided_at_ms=NOON_MS + 365 * DAY_MS)
        assert judged(archive).consumed() == {("help.inbox", "lost"): 1}

    @pytest.mark.parametrize(
        ("left_ms", "attempt", "received", "verdict"),
        [
            # Five minutes left, ten ahead: by the queue's clock it was decided within three.
            (5 * MINUTE_MS, 1, True, "lost"),
            (3 * MINUTE_MS + 21, 1, True, "lost"),
            # It may have expired before it was decided.
            (3 * MINUTE_MS + 20, 1, True, "not_understood"),
            (21, 1, True, "not_understood"),
            # It had expired when its message was received.
            (20, 1, True, "expired"),
            # The queue does not say when a message was received again, older routers not at all.
            (5 * MINUTE_MS, 2, True, "expired"),
            (5 * MINUTE_MS, 1, False, "expired"),
        ],
    )
    def test_what_a_router_ten_minutes_ahead_expires_is_judged_by_the_queue_s_clock(
        self, archive: SmallArchive, left_ms: int, attempt: int, received: bool, verdict: str
    ) -> None:
        expiry = f"2026-03-01T12:{left_ms // MINUTE_MS:02}:{left_ms % MINUTE_MS / 1_000:06.3f}Z"
        archive.send(ALARM, expirytime=expiry)
        more: dict[str, Any] = {} if received else {"received_at_ms": None}
        archive.alter(
            outcome=Outcome.EXPIRED, decided_at_ms=NOON_MS + 10 * MINUTE_MS, attempt=attempt, **more
        )
        report = judged(archive)
        assert report.faults() == {verdict: 1}
        assert len(report.judgement.replay) == (verdict == "lost")
        skewed = ["clock_skew"] * (attempt == 1 and received)
        assert sorted(each.kind for each in report.findings) == sorted([verdict, *skewed])

    def test_a_router_that_is_behind_makes_no_contract_stale(self, archive: SmallArchive) -> None:
        old, new = archive.contract, small_contract(inboxes={"help": WEBHOOK, "care": {"expiry_s": 9}})
        archive.use(new, old)
        for minutes in range(0, 120, 5):
            at_ms = NOON_MS + minutes * MINUTE_MS
            archive.contract = old if minutes < 60 else new
            archive.send(at_ms=at_ms)
            if minutes >= 60:
                archive.alter(decided_at_ms=at_ms - 50 * MINUTE_MS)
        assert {each.kind for each in judged(archive).findings} == {"causality"}

    def test_a_router_that_is_behind_may_have_expired_what_it_says(self, archive: SmallArchive) -> None:
        archive.send(ALARM, expirytime="2026-03-01T12:00:30Z")
        behind = {"received_at_ms": NOON_MS + 60_000, "decided_at_ms": NOON_MS + 20_000}
        archive.alter(outcome=Outcome.EXPIRED, **behind)
        assert judged(archive).faults() == {"expired": 1}


@pytest.mark.parametrize(
    ("outcome", "members"),
    [
        (Outcome.DELIVERED, {"status": 500}),
        (Outcome.DELIVERED, {"status": None}),
        (Outcome.DELIVERED, {"status": 302}),
        (Outcome.DEAD_LETTERED, {"status": 204}),
        (Outcome.EXPIRED, {"status": 200}),
        (Outcome.DEAD_LETTERED, {"status": 0}),
        (Outcome.DEAD_LETTERED, {"status": 600}),
        (Outcome.DELIVERED, {"attempt": 0}),
        (Outcome.DELIVERED, {"attempt": -1}),
        (Outcome.DELIVERED, {"attempt": None}),
        (Outcome.DELIVERED, {"decided_at_ms": -1}),
    ],
)
def test_contradictions_prove_none(archive: SmallArchive, outcome: Outcome, members: dict[str, Any]) -> None:
    archive.use(small_contract(inboxes={"help": WEBHOOK}))
    archive.send(ALARM)
    archive.hand_over(outcome=outcome, **members)
    report = judged(archive)
    assert report.consumed() == {("help.inbox", "not_understood"): 1}
    assert nothing_is_accused(report)
    assert [(each.kind, each.hop, each.destination) for each in report.findings] == [
        ("contradiction", "archive", "help.inbox")
    ]


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.DELIVERED, 299), (Outcome.DEAD_LETTERED, None), (Outcome.DEAD_LETTERED, 599)],
)
def test_possible_answers_are_believed(archive: SmallArchive, outcome: Outcome, status: int | None) -> None:
    archive.use(small_contract(inboxes={"help": WEBHOOK}))
    archive.send(ALARM)
    archive.hand_over(outcome=outcome, status=status)
    assert judged(archive).consumed() == {("help.inbox", str(outcome)): 1}
