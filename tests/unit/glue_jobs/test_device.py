"""One device judged: what its manifests attest, what contradicts them, and where the archive has a hole."""

import re
from collections import Counter
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pytest

from eventplane import report_reader
from eventplane.device_record import LifecycleState
from eventplane.report_reader import RULES
from glue_jobs.delivery_audit.coverage import RESTS
from glue_jobs.delivery_audit.device import MAX_FINDINGS, DeviceJudgement, judge_device, usual_ms
from glue_jobs.delivery_audit.event_group import HOUR_MS
from tests.unit.glue_jobs.home import DAY_END_MS, NOON_MS, SCOPE, Home, judged_together, steps

HOUR = NOON_MS // HOUR_MS


def found(judged: DeviceJudgement) -> list[tuple[str, str, str | None, int | None]]:
    return [(each.kind, each.hop, each.device, each.sequence) for each in judged.findings]


def figures(judged: DeviceJudgement, *names: str) -> dict[str, int]:
    """The sums over all epochs."""
    return {name: sum(row[name] for row in judged.epochs) for name in names}


def rests(judged: DeviceJudgement) -> dict[str, int]:
    return figures(judged, "manifest", "numbering", "tap", "nothing", "awaiting")


def day(home: Home) -> Home:
    """Three hours with three events and a manifest each."""
    return home.live(THREE_HOURS)


THREE_HOURS = "send 3, manifest, wait 1, send 3, manifest, wait 1, send 3, manifest, wait 1"


def until_midnight(home: Home, hour: str = "send 3, manifest, wait 1") -> Home:
    """Go on until no manifest is overdue."""
    while home.at_ms < DAY_END_MS:
        home.live(hour)
    return home


@pytest.mark.parametrize("kept", ["", "keep 2, "])
def test_a_device_whose_manifests_state_everything_is_attested(kept: str) -> None:
    hour = f"{kept}send 3, {kept}manifest, wait 1"
    judged = until_midnight(Home().live("start"), hour).judged(state=LifecycleState.PROVISIONED)
    assert (judged.standing, judged.expected, judged.findings) == ("attested", True, [])
    assert rests(judged) == {"manifest": 49, "numbering": 0, "tap": 0, "nothing": 0, "awaiting": 0}
    assert figures(judged, "events", "lost") == {"events": 49, "lost": 0}


@pytest.mark.parametrize(
    ("story", "manifest", "numbering", "tap", "nothing"),
    [
        # The reviews: 118 events of such a device were gone, 294 of the other, and it was proven.
        ("start, send 3, lose 4, send 2", 0, 6, 0, 4),
        (f"{THREE_HOURS}, send 5, lose 3, send 1", 12, 6, 0, 3),
        (f"{THREE_HOURS}, keep 2, manifest tap=False, keep 3, send 1, manifest, wait 13", 14, 0, 0, 2),
        ("simple 4", 0, 0, 4, 0),
    ],
    ids=["without manifests", "manifests stop", "a manifest is lost", "without numbers"],
)
def test_unstated_rests_on_less(story: str, manifest: int, numbering: int, tap: int, nothing: int) -> None:
    judged = Home().live(story).judged()
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


@pytest.mark.parametrize(
    ("later", "standing", "numbering"),
    [
        ("", "partly", 0),
        (", send 1", "partly", 1),
        (", send 1, manifest", "partly", 0),
        (" along=1", "partly", 1),
    ],
    ids=["nothing", "events", "a manifest", "events of its commit"],
)
def test_a_last_manifest_covers_nothing_behind_it(later: str, standing: str, numbering: int) -> None:
    """The review: the device goes on, all of that is gone, and the day is proven."""
    home = day(Home()).live(f"send 2, manifest final=True{later}")
    assert home.judged(replace(SCOPE, watermark_ms=home.at_ms)).standing == "attested"
    judged = home.judged()
    assert (judged.standing, rests(judged)["numbering"]) == (standing, numbering)
    # In an audit of all days no end of the window says until when a stopped device is expected.
    of_all = home.judged(replace(SCOPE, end_ms=None, last_ms=DAY_END_MS))
    assert of_all.standing == ("partly" if later else "attested")
    assert until_midnight(home).judged().standing == "attested"


@pytest.mark.parametrize(
    "before", ["wait 0.5", "wait 0.6, manifest, wait -0.1"], ids=["overdue", "salvaged and late"]
)
def test_a_store_that_began_anew_awaits_its_first_manifest(before: str) -> None:
    home = day(Home().live("start")).live(before)  # the last manifest of the store before
    home.begin("e2")
    home.live("start, send 2")
    judged = home.judged(replace(SCOPE, watermark_ms=home.at_ms))
    assert (judged.standing, rests(judged)["numbering"], rests(judged)["awaiting"]) == ("attested", 3, 3)
    assert home.judged(replace(SCOPE, watermark_ms=home.at_ms + HOUR_MS + 1)).standing == "partly"
    home.live("wait 1, manifest")
    assert home.judged(replace(SCOPE, watermark_ms=home.at_ms)).standing == "attested"


@pytest.mark.parametrize("problem", ["manifest tap=False", "manifest digest=7"], ids=["lost", "wrong"])
@pytest.mark.parametrize(("hour", "standing"), [(10, "attested"), (34, "partly"), (58, "attested")])
def test_a_bad_manifest_costs_its_day(problem: str, hour: int, standing: str) -> None:
    hours = ["send 3, manifest, wait 1"] * 72
    hours[hour] = f"send 3, {problem}, wait 1"
    home = Home().live("wait -36, start, wait 0.5").live(", ".join(hours))
    assert home.judged(day_only=True).standing == standing


@pytest.mark.parametrize("lost", [range(40, 48), range(40, 61), range(40, 64)], ids=str)
@pytest.mark.parametrize(
    "problem", ["", ", send 1, manifest last=9999999 stated=1"], ids=["lost", "lost, then wrong"]
)
def test_a_day_whose_end_nobody_states_is_not_attested(lost: range, problem: str) -> None:
    """The gap ends on the next day, which has the finding; a day later the manifests are whole again."""
    hours = ["send 3, manifest, wait 1"] * 96
    for hour in lost:
        hours[hour] = "lose 3, manifest tap=False, wait 1"
    home = Home().live("wait -36, start, wait 0.5").live(", ".join(hours))
    assert home.judged(day_only=True).standing == "partly"


def test_a_store_that_begins_on_the_next_day_excuses_no_manifest() -> None:
    home = Home().live("wait -36, start, wait 0.5").live(", ".join(["send 3, manifest, wait 1"] * 40))
    home.live("wait 20")
    home.begin("e2")
    home.live("start, send 3")
    assert home.judged(day_only=True).standing == "partly"


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


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        # One of three, and nobody can tell which.
        (
            "start, send 2, lose 1, keep 2, send 1, manifest acknowledged_to=0",
            [("lost", "device_cloud", None, "1 events; stated by manifest")],
        ),
        (
            "send 1, lose 2, manifest acknowledged_to=2",
            [("lost", "iot_rule", 2, "acknowledged by IoT Core"), ("lost", "device_cloud", 3, "stated by")],
        ),
        # A later manifest, here number 6, settles what was acknowledged, and none knows of itself.
        (
            f"start, lose 2, manifest acknowledged_to=0, lose 1, manifest acknowledged_to={10**9}",
            [("lost", "iot_rule", number, "acknowledged") for number in (2, 3, 5)],
        ),
        # Two of three were lost, of which two were acknowledged: one of these at least.
        (
            "send 1, lose 3, send 1, manifest count=4 acknowledged_to=3",
            [("lost", "iot_rule", None, "1 events"), ("lost", "device_cloud", None, "1 events")],
        ),
        (
            "send 1, lose 2, expire 2, manifest",
            [
                ("lost", "device_cloud", 3, "stated by"),
                ("expired", "device_cloud", 2, "because, reported by"),
            ],
        ),
        (
            f"{THREE_HOURS}, send 3, manifest tap=False, {THREE_HOURS}",
            [
                ("lost", "device_cloud", 16, "stated by manifest"),
                ("missing_manifest", "device_cloud", None, "no manifest states the numbers 12 to 15"),
            ],
        ),
        # The review: bodies of two devices swapped, 2,400 events lost on device_cloud.
        (
            f"{THREE_HOURS}, send 3, manifest epoch=e2 last=1000 count=1000, {THREE_HOURS}",
            [("manifest_mismatch", "device_cloud", 16, "it states the epoch e2, and came in the epoch e1")],
        ),
        # The second states what the third should, and the third what the second should.
        (
            f"{THREE_HOURS}, send 3, manifest first=16 last=19 count=4, "
            f"send 3, manifest first=12 last=15 count=4, {THREE_HOURS}",
            [
                ("manifest_mismatch", "device_cloud", 16, "it states number 19, which is not before its own"),
                (
                    "manifest_mismatch",
                    "device_cloud",
                    20,
                    "the numbers up to 15, and not the report 16 before",
                ),
            ],
        ),
        ("send 3, manifest digest=7", [("manifest_mismatch", "device_cloud", 4, "its digest is not")]),
        ("send 3, manifest digest=7 older=True", []),
        ("send 3, manifest digest=7 rule=sha256", [("manifest_mismatch", "device_cloud", 4, "its digest")]),
        ("send 3, manifest digest=7 rule=sha512", [("not_understood", "device_cloud", 4, "by a rule")]),
        ("send 2, send 1 altered=True, manifest", [("manifest_mismatch", "device_cloud", 4, "its digest")]),
        # Digests of versions up to 0.3.0 cover the identity alone.
        ("send 2, send 1 altered=True, manifest rule=sha256", []),
        ("send 3, manifest count=2", [("manifest_mismatch", "device_cloud", 4, "2 events, and 3 came")]),
        # It does not fill the disk.
        (
            f"send 1, manifest last={10**15} count={10**15}",
            [("manifest_mismatch", "device_cloud", 2, "it states")],
        ),
    ],
)
def test_stated_and_lacking_is_found(story: str, expected: list[tuple[str, str, int | None, str]]) -> None:
    judged = Home().live(story).judged()
    assert [each[:2] + each[3:] for each in found(judged)] == [each[:3] for each in expected]
    for finding, (*_, detail) in zip(judged.findings, expected, strict=True):
        assert detail in str(finding.detail)
    assert figures(judged, "lost")["lost"] == sum(kind == "lost" for kind, *_ in expected)
    assert judged.standing == "partly"


def test_what_is_young_is_pending_and_not_lost() -> None:
    early = Home().live("send 1, lose 2, manifest").judged(replace(SCOPE, watermark_ms=NOON_MS - 1))
    assert found(early) == []
    assert figures(early, "lost", "pending", "acknowledged_lost") == {
        "lost": 0,
        "pending": 2,
        "acknowledged_lost": 0,
    }


def test_an_event_under_another_client_is_seen_and_named() -> None:
    """The review: one event under another client id is lost and an epoch_change, though the tap has it."""
    home = Home().live(f"{THREE_HOURS}, send 1, send 1 under=home-2, {THREE_HOURS}")
    judged = home.judged(replace(SCOPE, owners={"e1": ("home-1",)}))
    assert found(judged) == [("foreign_epoch", "device_cloud", "home-2", 14)]
    assert judged.findings[0].detail == "1 events in the epoch of home-1"


def test_a_new_epoch_is_a_change_and_the_old_one_s_tail_is_unattested() -> None:
    home = day(Home()).live("send 2")
    home.begin("e2")
    home.started("recovered", lost_epoch="e1")
    judged = until_midnight(home).judged()
    assert found(judged) == [("epoch_change", "device_cloud", "home-1", 1)]
    assert (judged.findings[0].epoch, judged.findings[0].detail) == ("e2", "recovered; epoch before: e1")
    assert (judged.standing, rests(judged)["numbering"]) == ("partly", 2)


GONE = replace(SCOPE, gone=frozenset({HOUR + 5}))


class TestHoles:
    """What the ledger has of a device and the tap has not."""

    @pytest.mark.parametrize("rule", RULES)
    def test_a_digest_proves_that_the_ledger_s_event_is_the_missing_one(self, rule: str) -> None:
        home = day(Home()).live(f"send 2, lose 1 ledger=True, manifest rule={rule}")
        judged = until_midnight(home).judged()
        assert judged.findings == []
        assert judged.holes == {HOUR + 3: 1}
        assert judged.recovered == {("2026-03-01", "doors", "doors.inbox"): 1}
        assert figures(judged, "lost", "unrecorded") == {"lost": 0, "unrecorded": 1}

    @pytest.mark.parametrize("rule", RULES)
    def test_a_digest_proves_that_the_ledger_s_event_is_another_one(self, rule: str) -> None:
        home = day(Home()).live("lose 1")
        home.in_ledger(("voice", "//home-1", "forged"))
        until_midnight(home.live(f"manifest rule={rule}"))
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
        home = Home().live("start")
        for number in range(12):
            where = {"tap": number != 5, "ledger": in_ledger and number == 5}
            if forged and number == 4:
                home.in_ledger(("voice", "//home-1", "forged"))
            home.send(3, **where)
            home.manifest(**where, older=older)
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
        home = Home().live("start")
        for hour in range(12):
            home.send(1, tap=hour not in (3, 5), ledger=hour == 5)
            home.send(1)
            home.manifest()
            home.wait(1)
        judged = home.judged(GONE)
        assert [each[:2] for each in found(judged)] == [("lost", "device_cloud")]
        assert judged.holes == {HOUR + 5: 1}

    @pytest.mark.parametrize(
        ("damaged", "kinds"), [({HOUR}, set()), ({HOUR + 1}, {"forged"}), (set(), {"forged"})]
    )
    def test_a_damaged_hour_may_have_had_it(self, damaged: set[int], kinds: set[str]) -> None:
        home = Home()
        home.send(3, tap=False, ledger=True)
        home.manifest(tap=False, ledger=True)
        judged = until_midnight(day(home.live("wait 1"))).judged(replace(SCOPE, damaged=frozenset(damaged)))
        assert {each.kind for each in judged.findings} == kinds

    @pytest.mark.parametrize(
        ("start", "kinds"),
        [
            ("start, send 3", {"forged"}),
            ("lose 1 ledger=True, send 3", set()),
            ("start birth=recovered lost_epoch=e0, send 3", {"epoch_change"}),
        ],
        ids=["from number 1 on", "without number 1", "after another epoch"],
    )
    def test_a_damaged_hour_lacks_lesser_numbers(self, start: str, kinds: set[str]) -> None:
        home = Home().live(start)
        home.in_ledger(("voice", "//home-1", "stray"))
        until_midnight(day(home.live("manifest, wait 1")))
        judged = home.judged(replace(SCOPE, damaged=frozenset({HOUR})))
        assert {each.kind for each in judged.findings} == kinds

    def test_what_follows_the_last_manifest_may_be_in_a_hole(self) -> None:
        """The last object of the tap is gone: nothing that came later would show a gap."""
        home = day(Home()).live("wait -1")
        home.at_ms += 60_000
        judged = home.live("lose 1 ledger=True").judged()
        assert (judged.findings, judged.holes) == ([], {HOUR + 2: 1})


def test_a_device_that_nobody_knows_but_the_ledger_is_forged() -> None:
    ghost = Home("ghost")
    ghost.in_ledger(("voice", "//ghost", "e"))
    judged = ghost.judged()
    assert found(judged) == [("forged", "router", "ghost", None)]
    assert judged.standing is None


def test_counts_of_the_router_s_hop_join_the_hours_and_copies_the_largest_epoch() -> None:
    home = Home().live("send 3, manifest")
    home.begin("e2")
    home.started("recovered", lost_epoch="e1")
    home.at_ms = NOON_MS
    counts = [("late", HOUR, 2), ("tap_copies", HOUR, 1)]
    judged = judge_device(home.gathered()._replace(counts=counts), SCOPE)
    assert [*judged.hours[0].values()][1:] == [NOON_MS, NOON_MS + HOUR_MS, 5, 0, 2, 0, 0]
    assert {each["epoch"]: each["tap_copies"] for each in judged.epochs} == {"e1": 1, "e2": 0}


def test_losses_and_what_is_pending_count_in_the_hour_of_the_manifest() -> None:
    home = Home().live("send 2, lose 1, wait 1, manifest")
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
    judged = Home().live("send 1, lose 1, manifest thing=home-2").judged()
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
def test_the_quickest_event_measures_clocks(travel_ms: int, samples: int, said: str | None) -> None:
    rows = Home().live("start").gathered()
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
    judged = Home().live("wait 11.5, send 2, wait 1, send 2, manifest").judged(day_only=True)
    assert rests(judged)["manifest"] == 2
    assert judged.standing == "attested"


Change = Callable[[Any], Any]


def with_(**members: Any) -> Change:
    return lambda data: {**data, **members}


def stating(**members: Any) -> Change:
    return lambda data: {**data, "statements": [{**data["statements"][0], **members}]}


def giving_up(**members: Any) -> Change:
    return lambda data: {**data, "deliveries": [{**data["deliveries"][0], **members}]}


NOT_UNDERSTOOD: list[tuple[str, Change]] = [
    ("manifest", with_(newer=1)),
    ("manifest", with_(key_digest=["sha3"])),
    ("manifest", with_(epoch={"e": 1})),
    ("manifest", with_(interval_s=-1)),
    ("manifest", with_(final="yes")),
    ("manifest", with_(statements={})),
    ("manifest", lambda data: {"epoch": data["epoch"]}),
    ("manifest", lambda _: None),
    ("manifest", stating(ranges=[[1, 2]])),
    ("manifest", stating(first=1.5)),
    ("manifest", stating(last=10**30)),
    ("manifest", stating(count=True)),
    *(("manifest", stating(first=each)) for each in ("7", "\u0667", True, 7.0, [7], None)),
    *(("manifest", with_(interval_s=each)) for each in ("3600", 3_600.0, True, 0)),
    *(("manifest", with_(final=each)) for each in (1, 0, 1.0, "true", None, [])),
    *(
        ("manifest", stating(digest=each))
        for each in (
            "no digits",
            "",
            "7",
            "-" + "7" * 31,
            "0x" + "7" * 30,
            " " + "7" * 31,
            "7_" * 15 + "77",
            "\u0667" * 32,
            "7" * 33,
            "A" * 32,
        )
    ),
    ("manifest", lambda data: {**data, "statements": data["statements"] * 2_001}),
    ("start", with_(birth={"of": "venus"})),
    ("start", with_(birth="lost")),
    ("start", with_(lost_epoch=["e0"])),
    ("start", with_(epoch="e" * 129)),
    ("expire 3", giving_up(outcome="lost")),
    ("expire 3", giving_up(outcome="forged")),
    ("expire 3", giving_up(outcome="delivered")),
    ("expire 3", giving_up(outcome={})),
    ("expire 3", giving_up(reason="r" * 129)),
    ("expire 3", giving_up(ranges=[[1]])),
    ("expire 3", giving_up(ranges=[[1, 2**63]])),
    ("expire 3", giving_up(ranges=[[3, 3]] * 2_001)),
    ("expire 3", with_(not_stored=[{"channel": "c", "type": "t", "reason": "r", "count": "many"}])),
    ("expire 3", lambda _: [[[[]]]]),
    ("expire 3", lambda _: reduce(lambda inner, _: [inner], range(99), [])),
]
CONTRADICTIONS: list[tuple[str, Change]] = [
    ("manifest", stating(count=10**9)),
    ("manifest", stating(count=-3)),
    ("manifest", stating(count=0)),
    ("manifest", stating(first=9, last=1)),
    ("manifest", lambda data: {**data, "statements": data["statements"] * 2}),
    ("start", with_(epoch="e9")),
    ("start", with_(lost_epoch="e1")),
    ("start", with_(birth="recovered", lost_epoch="e0")),
    ("expire 3", giving_up(ranges=[[3, 2]])),
    ("expire 3", giving_up(ranges=[[-3, 3]])),
    ("expire 3", giving_up(ranges=[[0, 3]])),
    ("expire 3", giving_up(count=-1)),
    ("start", with_(salvaged=-1)),
    ("start", with_(lost=-1)),
    ("expire 3", with_(not_stored=[{"channel": "c", "type": "t", "reason": "r", "count": -1}])),
]


@pytest.mark.parametrize(
    ("kind", "story", "change"),
    [
        *(("not_understood", *each) for each in NOT_UNDERSTOOD),
        *(("contradiction", *each) for each in CONTRADICTIONS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_strange_report_names_no_cause(kind: str, story: str, change: Change) -> None:
    """The reviews: it ends the audit of the fleet, names its own finding, or is a loss at device or rule.

    What it may explain is not lost, and what the manifests beside it attest stays so.
    """
    home = Home().live("start, send 1, lose 1, send 3, manifest, wait 0.5").live(story).alter(change)
    sequence = home.number
    judged = until_midnight(home.live("send 2, manifest, wait 0.5")).judged()
    expected = [("lost", "device_cloud", "home-1", 3)] if "expire" not in story else []
    assert found(judged) == [*expected, (kind, "device_cloud", "home-1", sequence)]
    assert judged.findings[-1].archive_file == "tap/1"
    assert judged.standing == ("partly" if story == "manifest" else "attested")
    assert figures(judged, "unrecorded") == {"unrecorded": 1 - len(expected)}


def test_of_a_manifest_with_digests_of_an_unknown_rule_all_else_counts() -> None:
    home = Home().live("start, send 2, lose 1, manifest rule=sha512, wait 1")
    judged = until_midnight(home).judged()
    assert [each[0] for each in found(judged)] == ["lost", "not_understood"]
    assert judged.standing == "attested"


def test_manifests_that_exclude_each_other_attest_nothing() -> None:
    """Two state the same numbers, two have the same number, and one takes its acknowledgement back."""
    home = Home().live("start, send 3, manifest, wait 1, send 3, manifest first=2 last=8 count=4, wait 1")
    home.live("send 2, manifest, wait 1")
    judged = home.judged()
    assert found(judged) == [("contradiction", "device_cloud", "home-1", 9)]
    assert rests(judged)["numbering"] == 3
    home = Home().live("start, send 3, manifest, manifest")
    home.number -= 1
    judged = until_midnight(home.live("manifest, wait 1")).judged()
    assert found(judged) == [("contradiction", "device_cloud", "home-1", 6)] * 2
    home = Home().live(
        "start, send 3, lose 1, manifest acknowledged_to=4, send 3, lose 1, manifest acknowledged_to=1"
    )
    judged = until_midnight(home).judged()
    assert found(judged) == [
        ("lost", "device_cloud", "home-1", 5),
        ("lost", "device_cloud", "home-1", 10),
        ("contradiction", "device_cloud", "home-1", 11),
    ]


def test_numbers_that_cannot_be_read_are_neither_lost_nor_forged() -> None:
    """The review: an hour of them gives 49 lost."""
    home = day(Home().live("start")).live("send 4 readable=False, lose 1, manifest, wait 1")
    judged = until_midnight(home).judged()
    assert [each[:2] for each in found(judged)] == [
        ("lost", "device_cloud"),
        ("not_understood", "device_cloud"),
    ]
    assert judged.findings[1].detail == "4 events with a number that cannot be read"
    assert (judged.holes, judged.standing) == ({}, "partly")
    assert figures(judged, "lost", "unrecorded") == {"lost": 1, "unrecorded": 4}


def test_a_copy_of_an_event_whose_number_cannot_be_read_explains_no_other() -> None:
    home = day(Home().live("start")).live("send 1 readable=False, wait 1, lose 1, manifest, wait 1")
    first = next(each for each in home.events if each.number is None)
    home.events.append(first._replace(at_ms=first.at_ms + HOUR_MS))
    assert figures(until_midnight(home).judged(), "lost", "unrecorded") == {"lost": 1, "unrecorded": 1}


def test_a_manifest_whose_number_cannot_be_read_is_not_missing() -> None:
    home = day(Home().live("start")).live("send 4, manifest, wait 1")
    event = home.events[-1]
    *place, _, text = event.report or ()
    home.events[-1] = event._replace(number=None, report=(*place, None, text))
    judged = until_midnight(home).judged()
    assert [each.kind for each in judged.findings] == ["not_understood", "not_understood"]
    assert (judged.standing, judged.holes) == ("partly", {})


class TestNewClient:
    """A device that got another client id on the same store, and others that look like it."""

    OWNERS = replace(SCOPE, owners={"e1": ("home-1", "home-2")})

    @staticmethod
    def moved() -> Home:
        home = Home().live(f"start, {THREE_HOURS}, send 2")
        home.client_id = "home-2"
        return until_midnight(home.live("send 2, manifest, wait 1"))

    @pytest.mark.parametrize("client_id", ["home-1", "home-2"])
    def test_it_keeps_its_numbers(self, client_id: str) -> None:
        """The review: one event is lost at the rule, and the epoch is foreign."""
        rows = self.moved().gathered()._replace(client_id=client_id)
        judged = judge_device(rows, self.OWNERS)
        assert (judged.findings, judged.standing) == ([], "attested")
        own = sum(each.number is not None and each.client_id == client_id for each in self.moved().events)
        assert rests(judged) == {"manifest": own, "numbering": 0, "tap": 0, "nothing": 0, "awaiting": 0}

    @pytest.mark.parametrize(
        "story",
        [
            "send 2, wait 1, move, wait 1, send 2, manifest, wait 2, lose 2, wait 2, send 1, manifest",
            "lose 2 ledger=True, send 1, manifest, move, send 2, manifest",
            "lose 2, send 1, manifest, send 1, wait 1, move, send 2, manifest, wait 1",
            "send 2, manifest, wait 1, lose 3, manifest tap=False, wait 1, send 2, manifest, move, send 1",
            "send 2, move, send 2, manifest, wait 1, lose 3, manifest tap=False, wait 1, send 2, manifest",
            "send 2, move, send 2, manifest, wait 1, lose 3 ledger=True, send 1, manifest",
            "send 2, move, send 2, manifest, lose 2, expire 3, send 2, manifest",
            "send 2, move, send 2, manifest, send 1, move, send 2, manifest, lose 1, manifest",
            "keep 3, send 1, move, keep 3, send 2, manifest, keep 2, send 3, manifest tap=False",
        ],
    )
    @pytest.mark.parametrize("hidden", [frozenset(), {HOUR + 4}], ids=["", "gone"])
    def test_each_number_of_its_store_counts_for_one_id(self, story: str, hidden: frozenset[int]) -> None:
        """Holes, silences and unseen numbers counted for both."""
        scope = replace(SCOPE, gone=hidden)
        start = f"start, {THREE_HOURS}"
        one = until_midnight(Home().live(start).live(story.replace("move, ", "")))
        absent = {*range(HOUR, HOUR + 12)}.difference(each.at_ms // HOUR_MS for each in one.events)
        whole = judged_together(one, scope=scope, absent=absent).values()
        parts = judged_together(until_midnight(Home().live(start).live(story)), scope=scope, absent=absent)
        assert sums(parts.values()) == sums(whole)
        kinds = (
            Counter(each.kind for device in some for each in device.findings)
            for some in (parts.values(), whole)
        )
        assert next(kinds) == next(kinds)

    @pytest.mark.parametrize("loss", ["lose 1", "lose 1 ledger=True"])
    def test_a_loss_at_the_change_is_judged_once_and_accuses_no_id(self, loss: str) -> None:
        """No digest proves the store of both ids then: the later one states what came under the earlier."""
        home = Home().live(f"start, {THREE_HOURS}, send 1, {loss}, send 1, move, send 2, manifest, wait 1")
        parts = judged_together(until_midnight(home))
        findings = [each for device in parts.values() for each in device.findings]
        assert [(each.kind, each.device) for each in findings] == [("contradiction", None)]
        assert "home-1 sent" in str(findings[0].detail)
        assert "epoch of home-1-b" in str(findings[0].detail)
        assert sums(parts.values())["holes"] == ("ledger" in loss)

    def test_a_copied_store_is_one_contradiction_that_names_both_and_accuses_neither(self) -> None:
        """Both go on in the epoch, at the same time and with the same numbers."""
        one = Home().live(f"start, {THREE_HOURS}, send 2")
        other = deepcopy(one)
        other.client_id, other.events = "home-2", []
        alone = until_midnight(one).judged()
        both = judged_together(one, until_midnight(other.live("send 3")))
        findings = [each for device in both.values() for each in device.findings]
        assert [(each.kind, each.device) for each in findings] == [("contradiction", None)]
        assert {"home-1", "home-2"} <= {*re.findall(r"home-\d", str(findings[0].detail))}
        assert said(both["home-1"]) == said(alone)
        assert figures(both["home-2"], "lost") == {"lost": 0}

    @pytest.mark.long
    @pytest.mark.parametrize(
        "true", ["send 2", "lose 2, send 2", "send 2, move", "lose 3, send 1, manifest, move"]
    )
    @pytest.mark.parametrize("number", [0, 5, 15, 10**6])
    @pytest.mark.parametrize(
        "lie",
        [
            "send 1",
            "send 3, manifest",
            "send 9",
            "wait -13, send 1, manifest, wait 12, send 2, manifest",
            "send 1, manifest first=1 last=14 count=14",
            "start birth=recovered lost_epoch=e0, send 1, manifest first=14 last=14 count=1",
            "send 1, manifest digest=7 acknowledged_to=999",
            "send 1, expire 14, expire 15",
            "send 1, manifest thing=home-1",
            "send 80, manifest",
        ],
    )
    def test_foreign_words_change_nothing(self, true: str, number: int, lie: str) -> None:
        """A liar fills holes, is the first, has more numbers, is one of several, or comes between two ids."""
        home = Home().live(f"start, {THREE_HOURS}, {true}, send 2, manifest, wait 1")
        alone = judged_together(until_midnight(home))
        liars = [Home(name, "e1") for name in ("liar-1", "liar-2")]
        for each in liars:
            each.number = number
            each.live(lie)
        for some in (liars[:1], liars):
            both = judged_together(home, *some)
            for name, judged in alone.items():
                assert said(both[name]) == said(judged)
            others = [
                each for device in both.values() for each in device.findings if each.device not in alone
            ]
            kinds = {each.kind for each in others}
            assert kinds & {"foreign_epoch", "contradiction"}
            assert "lost" not in kinds

    @pytest.mark.long
    @pytest.mark.parametrize("story", ["send 1", "send 1, manifest"])
    @pytest.mark.parametrize("is_one", [True, False], ids=["many liars", "many epochs"])
    def test_false_claims_make_an_audit_a_few_times_longer_at_most(self, story: str, *, is_one: bool) -> None:
        """One liar claims the epochs of all devices, or many claim that of one."""

        def homes(size: int) -> list[Home]:
            devices = [Home(f"home-{number}", f"e{number}").live(THREE_HOURS) for number in range(size)]
            liars = [
                Home(f"liar-{number}", "e0") if is_one else Home("liar", home.epoch)
                for number, home in enumerate(devices)
            ]
            for each in liars:
                each.number = 10**6
            return [*devices, *(each.live(story) for each in liars)]

        few, many = (steps(partial(judged_together, *homes(size))) for size in (20, 160))
        assert many < 12 * few

    def test_an_imitation_that_attests_nothing_is_foreign(self) -> None:
        home = until_midnight(Home().live(f"start, {THREE_HOURS}"))
        liar = Home("home-2").live("wait 1")
        liar.number = 999
        judged = judged_together(home, liar.live("send 1, manifest digest=7"))
        assert ("foreign_epoch", "device_cloud", "home-2", 1000) in found(judged["home-2"])


def said(judged: DeviceJudgement) -> DeviceJudgement:
    """The judgement, with the findings that name the device itself only."""
    own = [each for each in judged.findings if each.device == judged.client_id]
    return judged._replace(findings=own)


def sums(judged: Collection[DeviceJudgement]) -> Counter[str]:
    """All that is counted of a store under its client ids."""
    found = Counter(holes=sum(sum(each.holes.values()) for each in judged))
    for each in judged:
        found.update(figures(each, "stated", "missing", "lost", "unrecorded", "explained", *RESTS))
        found.update(f"silent at {hour}: {is_missing}" for hour, is_missing in each.silences)
        found.update(f"recovered on {day}" for day, *_ in each.recovered.elements())
        found.update(events=sum(hour["events"] for hour in each.hours))
    return +found


def test_a_device_that_cannot_be_judged_is_named_and_ends_nothing() -> None:
    rows = day(Home()).gathered(state=LifecycleState.PROVISIONED)
    judged = judge_device(
        rows._replace(hours=[rows.hours[0]._replace(events=b"odd"), *rows.hours[1:]]), SCOPE
    )
    assert [(each.kind, each.hop, each.device, each.archive_file) for each in judged.findings] == [
        ("not_understood", "device_cloud", "home-1", "tap/1")
    ]
    assert (judged.standing, judged.expected, rests(judged)["tap"]) == ("partly", True, 8)


@pytest.mark.parametrize(
    ("bound", "most", "beyond"),
    [("MAX_HOUR_REPORTS", 3, 2), ("MAX_HOUR_BYTES", 1_700, 2), ("MAX_HOUR_ENTRIES", 6, 2)],
)
def test_too_many_are_one(monkeypatch: pytest.MonkeyPatch, bound: str, most: int, beyond: int) -> None:
    monkeypatch.setattr(report_reader, bound, most)
    home = Home().live(
        "send 1, manifest, send 1, manifest, send 1, manifest, send 1, manifest, send 1, manifest"
    )
    judged = until_midnight(home.live("wait 1")).judged()
    assert found(judged) == [("not_understood", "device_cloud", "home-1", 12 - 2 * beyond)]
    assert judged.standing == "partly"


def gaps(size: int) -> Home:
    return Home().live(", ".join(["send 1, lose 1, manifest"] * size))


def overlapping_ranges(size: int) -> Home:
    home = Home().live(f"send 1, lose {size}, send 1, expire 2")
    return home.alter(giving_up(ranges=[[2 + number, 1 + size] for number in range(size)])).live("manifest")


def overlapping_manifests(size: int) -> Home:
    return Home().live(", ".join(["send 1, manifest first=1"] * size))


def epochs(size: int) -> Home:
    home = Home()
    for number in range(size):
        home.begin(f"e{number}")
        home.live(f"start birth=recovered lost_epoch=e{number - 1}, send 1, lose 1, manifest")
    return home


def numbers_of_two_hours(size: int) -> Home:
    return Home().live(", ".join(["send 1, wait 1, send 1, wait -1"] * size)).live("manifest")


def holes(size: int) -> Home:
    return Home().live(", ".join(["send 1, lose 1 ledger=True, manifest older=True"] * size))


@pytest.mark.parametrize(
    "story", [gaps, overlapping_ranges, overlapping_manifests, epochs, numbers_of_two_hours, holes]
)
def test_a_judgement_takes_steps_linear_in_what_a_device_says(story: Callable[[int], Home]) -> None:
    """The review: n manifests over n gaps grow with the square."""
    counts = [("tap_copies", HOUR, 1)] * 10
    few, many = (
        steps(partial(judge_device, story(size).gathered()._replace(counts=counts), SCOPE))
        for size in (50, 400)
    )
    assert many < 12 * few


def test_no_report_makes_more_findings_than_are_kept() -> None:
    """The review: 5.8 kB of a report gave 2,987,017 findings."""
    home = Home().live("start")
    ranges = [[number * 20_000 + 2, number * 20_000 + 10_001] for number in range(300)]
    home.live("expire 2").alter(giving_up(ranges=ranges))
    home.number = 10**7
    home.live(
        f"send 1, manifest first=2 last={10**7} count={10**7 - 1}, " + ", ".join(["lose 9, manifest"] * 2_000)
    )
    judged = home.judged()
    assert len(judged.findings) <= MAX_FINDINGS
    assert {each.kind for each in judged.findings} >= {"expired", "lost"}
    assert "more findings of this kind" in str(judged.findings[-1].detail)


def test_sums_of_what_a_device_states_stay_within_64_bits() -> None:
    home = Home()
    for _ in range(9):
        home.refused("voice.outbox", 2**62)
    assert home.judged().epochs[0]["not_stored"] == 2**62
