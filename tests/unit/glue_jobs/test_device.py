"""One device judged: what its manifests attest, what contradicts them, and where the archive has a hole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eventplane.fleet import LifecycleState
from eventplane.reasons import Outcome
from glue_jobs.delivery_audit.device import DeviceJudgement, judge_device, usual_ms
from glue_jobs.delivery_audit.event_group import HOUR_MS
from tests.unit.glue_jobs.home import DAY_END_MS, NOON_MS, SCOPE, Home

HOUR = NOON_MS // HOUR_MS


def found(judged: DeviceJudgement) -> list[tuple[str, str, str | None, int | None]]:
    return [(each.kind, each.hop, each.device, each.sequence) for each in judged.findings]


def figures(judged: DeviceJudgement, *names: str) -> dict[str, int]:
    """The sums over all epochs."""
    return {name: sum(row[name] for row in judged.epochs) for name in names}


def rests(judged: DeviceJudgement) -> dict[str, int]:
    return figures(judged, "manifest", "numbering", "tap", "nothing", "awaiting")


def day(home: Home, hours: int = 3) -> Home:
    """Three events and a manifest an hour, until the end of the day."""
    for _ in range(hours):
        home.send(3)
        home.manifest()
        home.wait(1)
    return home


def until_midnight(home: Home) -> Home:
    """Go on until no manifest is overdue."""
    while home.at_ms < DAY_END_MS:
        day(home, 1)
    return home


def test_a_device_whose_manifests_state_everything_is_attested() -> None:
    home = Home()
    home.started()
    until_midnight(home)
    judged = home.judged(state=LifecycleState.PROVISIONED)
    assert (judged.standing, judged.expected, judged.findings) == ("attested", True, [])
    assert rests(judged) == {"manifest": 49, "numbering": 0, "tap": 0, "nothing": 0, "awaiting": 0}
    assert figures(judged, "events", "lost") == {"events": 49, "lost": 0}


def without_manifests(home: Home) -> None:
    """The review: 118 events of such a device were gone, and the audit called it proven."""
    home.started()
    home.send(3)
    home.send(4, tap=False)
    home.send(2)


def manifests_stop(home: Home) -> None:
    """The review: manifests stopped at noon, 294 events were gone, and it was proven."""
    day(home)
    home.send(5)
    home.send(3, tap=False)
    home.send(1)


def without_numbers(home: Home) -> None:
    home.simple(4)


@pytest.mark.parametrize(
    ("story", "manifest", "numbering", "tap", "nothing"),
    [(without_manifests, 0, 6, 0, 4), (manifests_stop, 12, 6, 0, 3), (without_numbers, 0, 0, 4, 0)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_no_manifest_states_rests_on_less(
    story: Callable[[Home], None], manifest: int, numbering: int, tap: int, nothing: int
) -> None:
    home = Home()
    story(home)
    judged = home.judged()
    assert judged.standing == "partly"
    expected = {"manifest": manifest, "numbering": numbering, "tap": tap, "nothing": nothing}
    assert rests(judged) == {**expected, "awaiting": 0}


def test_events_younger_than_a_manifest_interval_await_it() -> None:
    home = day(Home())
    home.send(5)
    judged = home.judged(replace(SCOPE, watermark_ms=home.at_ms))
    assert judged.standing == "attested"
    assert rests(judged) == {"manifest": 12, "numbering": 5, "tap": 0, "nothing": 0, "awaiting": 5}
    assert home.judged(replace(SCOPE, watermark_ms=home.at_ms + HOUR_MS)).standing == "partly"


def test_a_device_that_stopped_cleanly_owes_no_further_manifest() -> None:
    home = day(Home())
    home.send(2)
    home.manifest(final=True)
    assert home.judged().standing == "attested"
    assert rests(home.judged())["numbering"] == 0
    home.send(1)  # it started again
    assert home.judged().standing == "partly"


def test_an_expected_device_that_sends_nothing_is_silent() -> None:
    judged = Home().judged(state=LifecycleState.PROVISIONED)
    assert (judged.standing, judged.expected, len(judged.epochs)) == ("silent", True, 1)
    assert Home().judged(state=LifecycleState.PROVISIONED, since_ms=DAY_END_MS - 1).standing == "silent"
    assert Home().judged(state=LifecycleState.PROVISIONED, since_ms=DAY_END_MS).standing is None
    assert Home().judged(state=LifecycleState.QUARANTINED).standing is None


def test_a_device_that_the_registry_does_not_know_is_unregistered() -> None:
    home = until_midnight(Home())
    assert home.judged(replace(SCOPE, has_fleet=True)).standing == "unregistered"
    assert (
        home.judged(replace(SCOPE, has_fleet=True), state=LifecycleState.QUARANTINED).standing == "attested"
    )


def test_a_stated_number_that_never_came_is_lost() -> None:
    home = Home()
    home.started()
    home.send(2)
    home.send(1, tap=False)
    home.send(2, uplink=False, tap=False)
    home.send(1)
    home.manifest(acknowledged_to=0)
    judged = home.judged()
    # One of three, and nobody can tell which.
    assert found(judged) == [("lost", "device_cloud", "home-1", None)]
    home = Home()
    home.send(1)
    home.send(2, tap=False)
    home.manifest(acknowledged_to=2)
    assert found(home.judged()) == [
        ("lost", "iot_rule", "home-1", 2),
        ("lost", "device_cloud", "home-1", 3),
    ]
    early = home.judged(replace(SCOPE, watermark_ms=NOON_MS - 1))
    assert found(early) == []
    assert figures(early, "lost", "pending") == {"lost": 0, "pending": 2}


def test_a_later_manifest_settles_what_was_acknowledged_and_none_knows_of_itself() -> None:
    home = Home()
    home.started()
    home.send(2, tap=False)
    home.manifest(acknowledged_to=0)
    home.send(1, tap=False)
    home.manifest(acknowledged_to=10**9)
    # The second manifest is number 6.
    assert [each[:2] + each[3:] for each in found(home.judged())] == [
        ("lost", "iot_rule", 2),
        ("lost", "iot_rule", 3),
        ("lost", "iot_rule", 5),
    ]
    home = Home()
    home.send(1)
    home.send(3, tap=False)
    home.send(1)
    home.manifest(count=4, acknowledged_to=3)
    # Two of three were lost, of which two were acknowledged: one of these at least.
    judged = home.judged()
    assert [(hop, number) for _, hop, _, number in found(judged)] == [
        ("iot_rule", None),
        ("device_cloud", None),
    ]
    assert figures(judged, "lost", "acknowledged_lost") == {"lost": 2, "acknowledged_lost": 1}


def test_what_the_device_gave_up_is_explained() -> None:
    home = Home()
    home.send(1)
    home.send(2, tap=False)
    home.discarded(Outcome.EXPIRED, (2, 2))
    home.manifest()
    assert found(home.judged()) == [
        ("lost", "device_cloud", "home-1", 3),
        ("expired", "device_cloud", "home-1", 2),
    ]


def test_a_missing_manifest_is_found() -> None:
    home = day(Home())
    home.send(3)
    home.manifest(tap=False)
    day(home)
    judged = home.judged()
    assert found(judged) == [
        ("lost", "device_cloud", "home-1", 16),
        ("missing_manifest", "device_cloud", "home-1", None),
    ]
    assert judged.findings[1].detail == "no manifest states the numbers 12 to 15"
    assert rests(judged)["numbering"] == 3


def test_manifests_of_two_devices_that_are_swapped_accuse_nobody_of_losses() -> None:
    """The review: bodies of two devices swapped, 2,400 events lost on device_cloud."""
    home = day(Home())
    home.send(3)
    home.manifest(epoch="e2", last=1_000, count=1_000)
    day(home)
    judged = home.judged()
    assert found(judged) == [("manifest_mismatch", "device_cloud", "home-1", 16)]
    assert judged.findings[0].detail == "it states the epoch e2, and came in the epoch e1"
    assert figures(judged, "lost")["lost"] == 0
    assert judged.standing == "partly"


def test_manifests_of_one_device_that_are_swapped_contradict_themselves() -> None:
    home = day(Home())
    # The second states what the third should, and the third what the second should.
    home.send(3)
    own = home.number
    home.manifest(first=own + 1, last=own + 4, count=4)
    home.send(3)
    home.manifest(first=12, last=own, count=own - 11)
    day(home)
    details = [each.detail for each in home.judged().findings]
    assert details == [
        "it states number 19, which is not before its own",
        "it states the numbers up to 15, and not the report 16 before it",
    ]


@pytest.mark.parametrize("older", [False, True])
def test_a_digest_that_is_not_that_of_the_events_is_a_contradiction(older: bool) -> None:
    home = Home()
    home.send(3)
    home.manifest(digest=7, older=older)
    judged = home.judged()
    assert found(judged) == ([] if older else [("manifest_mismatch", "device_cloud", "home-1", 4)])
    assert judged.standing == "partly"


def test_a_manifest_that_states_fewer_events_than_came_is_a_contradiction() -> None:
    home = Home()
    home.send(3)
    home.manifest(count=2)
    assert [each.detail for each in home.judged().findings] == ["it states 2 events, and 3 came"]


def test_a_forged_range_does_not_fill_the_disk() -> None:
    home = Home()
    home.send(1)
    home.manifest(last=10**15, count=10**15)
    assert found(home.judged()) == [("manifest_mismatch", "device_cloud", "home-1", 2)]


def test_an_event_under_another_client_is_seen_and_named() -> None:
    """The review: one event under another client id is lost and an epoch_change, though the tap has it."""
    home = day(Home())
    home.send(1)
    home.send(1, under="home-2")
    day(home)
    judged = home.judged(replace(SCOPE, owners={"e1": ("home-1",)}))
    assert found(judged) == [("foreign_epoch", "device_cloud", "home-2", 14)]
    assert judged.findings[0].detail == "1 events in the epoch of home-1"


def test_two_devices_with_the_same_store_are_named() -> None:
    """A spool that was copied to another device goes on in the same epoch."""
    copy = day(Home("home-2"))
    judged = copy.judged(replace(SCOPE, owners={"e1": ("home-1", "home-2")}))
    assert found(judged) == [("foreign_epoch", "device_cloud", "home-2", 1)]


def test_a_new_epoch_is_a_change_and_the_old_one_s_tail_is_unattested() -> None:
    home = day(Home())
    home.send(2)
    home.begin("e2")
    home.started("recovered", lost_epoch="e1")
    until_midnight(home)
    judged = home.judged()
    assert found(judged) == [("epoch_change", "device_cloud", "home-1", 1)]
    assert (judged.findings[0].epoch, judged.findings[0].detail) == ("e2", "recovered; epoch before: e1")
    assert (judged.standing, rests(judged)["numbering"]) == ("partly", 2)


GONE = replace(SCOPE, gone=frozenset({HOUR + 5}))


class TestHoles:
    """What the ledger has of a device and the tap has not."""

    def test_a_digest_proves_that_the_ledger_s_event_is_the_missing_one(self) -> None:
        home = day(Home())
        home.send(2)
        home.send(1, tap=False, ledger=True)
        until_midnight(home)
        judged = home.judged()
        assert judged.findings == []
        assert judged.holes == {HOUR + 3: 1}
        assert judged.recovered == {("2026-03-01", "doors", "doors.inbox"): 1}
        assert figures(judged, "lost", "unrecorded") == {"lost": 0, "unrecorded": 1}

    def test_a_digest_proves_that_the_ledger_s_event_is_another_one(self) -> None:
        home = day(Home())
        home.send(1, tap=False)
        home.in_ledger(("voice", "//home-1", "forged"))
        until_midnight(home)
        assert found(home.judged()) == [
            ("lost", "device_cloud", "home-1", 13),
            ("forged", "router", "home-1", None),
        ]

    def test_an_event_of_the_ledger_is_forged_where_the_device_misses_none(self) -> None:
        home = day(Home())
        home.in_ledger(("voice", "//home-1", "forged"))
        until_midnight(home)
        judged = home.judged()
        assert found(judged) == [("forged", "router", "home-1", None)]
        assert judged.holes == {}

    def test_what_is_younger_than_the_watermark_may_still_come_to_the_tap(self) -> None:
        home = day(Home())
        home.in_ledger(("voice", "//home-1", "late"))
        judged = home.judged(replace(SCOPE, watermark_ms=home.at_ms - 1))
        assert (judged.findings, judged.holes) == ([], {})

    @staticmethod
    def twelve_hours(*, in_ledger: bool, older: bool = False, forged: bool = False) -> Home:
        """Three events and a manifest an hour, of which the tap has none in the sixth hour."""
        home = Home()
        home.started()
        for number in range(12):
            here = number != 5
            if forged and number == 4:
                home.in_ledger(("voice", "//home-1", "forged"))
            home.send(3, tap=here, ledger=in_ledger and not here)
            home.manifest(tap=here, ledger=in_ledger and not here, older=older)
            home.wait(1)
        return home

    @pytest.mark.parametrize("older", [False, True])
    def test_an_hour_of_the_tap_that_is_gone_is_no_loss(self, older: bool) -> None:
        """The review: a tap hour deleted, 250 forged, 5 lost, though the ledger proves that they arrived."""
        judged = self.twelve_hours(in_ledger=True, older=older).judged(GONE)
        assert (judged.findings, judged.holes, judged.standing) == ([], {HOUR + 5: 4}, "partly")

    def test_a_forged_event_beside_a_hole_takes_nobody_s_place_in_it(self) -> None:
        judged = self.twelve_hours(in_ledger=True, forged=True).judged()
        assert [(each.kind, each.id) for each in judged.findings] == [("forged", "forged")]
        assert judged.holes == {HOUR + 5: 4}

    def test_an_hour_that_is_gone_everywhere_is_no_loss(self) -> None:
        """The review: tap, ledger and handovers of an hour gone: 5 of 250 are called lost."""
        home = self.twelve_hours(in_ledger=False)
        assert found(home.judged())[0][0] == "lost"
        first = judge_device(home.gathered(), SCOPE, [HOUR + 5, HOUR + 30])
        assert first.silences == [(HOUR + 5, True)]
        judged = home.judged(GONE)
        assert (judged.findings, judged.holes, judged.standing) == ([], {HOUR + 5: 4}, "partly")
        assert rests(judged)["nothing"] == 3

    def test_a_real_loss_in_another_hour_stays_lost(self) -> None:
        home = Home()
        home.started()
        for hour in range(12):
            home.send(1, tap=hour not in (3, 5), ledger=hour == 5)
            home.send(1)
            home.manifest()
            home.wait(1)
        judged = home.judged(GONE)
        assert [each[:2] for each in found(judged)] == [("lost", "device_cloud")]
        assert judged.holes == {HOUR + 5: 1}

    def test_what_follows_the_last_manifest_may_be_in_a_hole(self) -> None:
        """The last object of the tap is gone: nothing that came later would show a gap."""
        home = day(Home())
        home.wait(-1)
        home.at_ms += 60_000
        home.send(1, tap=False, ledger=True)
        judged = home.judged()
        assert (judged.findings, judged.holes) == ([], {HOUR + 2: 1})


def test_a_device_that_nobody_knows_but_the_ledger_is_forged() -> None:
    ghost = Home("ghost")
    ghost.in_ledger(("voice", "//ghost", "e"))
    judged = ghost.judged()
    assert found(judged) == [("forged", "router", "ghost", None)]
    assert judged.standing is None


def test_counts_of_the_router_s_hop_join_the_hours_and_copies_the_largest_epoch() -> None:
    home = day(Home(), 1)
    home.begin("e2")
    home.started("recovered", lost_epoch="e1")
    home.at_ms = NOON_MS
    counts = [("late", HOUR, 2), ("tap_copies", HOUR, 1)]
    judged = judge_device(home.gathered()._replace(counts=counts), SCOPE)
    assert [*judged.hours[0].values()][1:] == [NOON_MS, NOON_MS + HOUR_MS, 4, 0, 2, 0, 0]
    assert {each["epoch"]: each["tap_copies"] for each in judged.epochs} == {"e1": 1, "e2": 0}


def test_losses_and_what_is_pending_count_in_the_hour_of_the_manifest() -> None:
    home = Home()
    home.send(2)
    home.send(1, tap=False)
    home.wait(1)
    home.manifest()
    assert [(each["events"], each["lost"]) for each in home.judged().hours] == [(2, 0), (1, 1)]
    young = home.judged(replace(SCOPE, watermark_ms=NOON_MS))
    assert [(each["events"], each["pending"]) for each in young.hours] == [(2, 0), (1, 1)]


def test_what_a_full_store_refused_is_dropped_on_the_device() -> None:
    home = Home()
    home.refused("voice.outbox", 7)
    judged = home.judged()
    (finding,) = judged.findings
    assert (finding.kind, finding.sequence, finding.type) == ("dropped", None, "org.example.alarm.v1")
    assert finding.detail == "7 not stored: spool_full, from voice.outbox"
    assert figures(judged, "not_stored") == {"not_stored": 7}


def test_a_report_in_another_device_s_name_is_forged_and_not_believed() -> None:
    home = Home()
    home.send(1)
    home.send(1, tap=False)
    home.manifest(thing="home-2")
    judged = home.judged()
    assert found(judged) == [("forged", "device_cloud", "home-1", 3)]
    assert figures(judged, "stated", "lost") == {"stated": 0, "lost": 0}


@pytest.mark.parametrize(
    ("travel_ms", "samples", "said"),
    [
        (-9_000, 1, None),
        (-9_001, 1, "10001 ms ahead, by 1 events"),
        (11_000, 20, None),
        (11_001, 20, "10001 ms behind, by 20 events"),
        (11_001, 19, None),  # a few late events look the same
    ],
)
def test_a_clock_is_measured_by_the_quickest_event_against_the_fleet_s(
    travel_ms: int, samples: int, said: str | None
) -> None:
    home = Home()
    home.started()
    rows = home.gathered()
    hour = rows.hours[0]._replace(quickest=(travel_ms, NOON_MS, "tap/2"), samples=samples)
    judged = judge_device(rows._replace(hours=[hour]), replace(SCOPE, usual_ms=1_000))
    assert [each.detail for each in judged.findings] == ([said] if said else [])
    assert [(each.kind, each.archive_file) for each in judged.findings] == [("clock_skew", "tap/2")] * bool(
        said
    )
    assert judged.epochs[0]["skew_ms"] == 1_000 - travel_ms


@pytest.mark.parametrize(("median_ms", "usual"), [(None, 0), (-5.0, 0), (700.5, 700), (60_000.0, 10_000)])
def test_the_usual_way_up_is_the_fleet_s_within_reason(median_ms: float | None, usual: int) -> None:
    assert usual_ms(median_ms) == usual


def test_only_the_window_s_events_count() -> None:
    home = Home()
    home.wait(11.5)
    home.send(2)
    home.wait(1)
    home.send(2)
    home.manifest()
    judged = home.judged(day_only=True)
    assert rests(judged)["manifest"] == 2
    assert judged.standing == "attested"
