"""A roll-out's stages and gates: what is harm, what chance explains, and what a stage lacks."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from contract.rehearsal import Change, Effect, Example, RehearsalTally
from contract.rollout import (
    StageError,
    StageEvidence,
    StageLimits,
    at_least,
    at_most,
    harm,
    is_in,
    lacking,
    stages_of,
)
from eventplane.dead_letter import DEAD_LETTER_TYPE

LIMITS = StageLimits()
NOW_MS = 10_000_000
ALARM, READING = "org.example.alarm.v1", "org.example.reading.v1"
THINGS = [f"home-{number}" for number in range(2_000)]


def test_a_larger_share_has_the_smaller_one() -> None:
    shares = [{each for each in THINGS if is_in(f"{share} %", "v1", each, ())} for share in (1, 5, 25, 100)]
    for small, large in pairwise(shares):
        assert small < large
    assert 70 < len(shares[1]) < 130
    assert len(shares[3]) == len(THINGS)
    # Not the same homes are the first each time.
    assert shares[1] != {each for each in THINGS if is_in("5 %", "v2", each, ())}


def test_a_group_is_a_stage() -> None:
    assert stages_of(["canary"], [5.0, 100.0]) == ("group canary", "5 %", "100 %")
    assert is_in("group canary", "v", "home-1", {"canary"})
    assert not is_in("group canary", "v", "home-1", {"other"})


@pytest.mark.parametrize(
    "shares", [[], [1.0, 5.0], [5.0, 1.0, 100.0], [100.0, 100.0], [-1.0, 100.0], [101.0]]
)
def test_shares_that_do_not_grow_to_all(shares: list[float]) -> None:
    with pytest.raises(StageError, match="--shares"):
        stages_of((), shares)


def test_likelihoods() -> None:
    assert at_least(0, 3.0) == at_most(5, 5.0) == 1.0
    assert at_least(1, 0.5) == pytest.approx(0.393469, abs=1e-6)
    assert at_most(0, 2.0) == pytest.approx(0.135335, abs=1e-6)
    assert at_least(500, 20.0) < 1e-100
    assert at_most(10, 5_000.0) < 1e-100


def quiet() -> StageEvidence:
    """An hour of ten devices in the stage and forty others, in which nothing is wrong, and one before."""
    evidence = StageEvidence(events=300, alarms=10, decided=280)
    for population, first, number in (
        (evidence.stage, 0, 10),
        (evidence.before, 0, 10),
        (evidence.others, 10, 50),
        (evidence.others_before, 10, 50),
    ):
        things = THINGS[first:number]
        population.seconds = 3_600.0
        population.types = Counter({READING: 30 * len(things), ALARM: len(things)})
        population.up_ms, population.decided_ms = [100] * len(things), [150] * len(things)
        population.last_ms = dict.fromkeys(things, NOW_MS - 60_000)
    evidence.following = {*THINGS[:10]}
    return evidence


def keys(evidence: StageEvidence, limits: StageLimits = LIMITS) -> list[str]:
    return [each.key for each in harm(evidence, limits, NOW_MS)]


def test_nothing_is_wrong() -> None:
    assert harm(quiet(), LIMITS, NOW_MS) == []
    assert lacking(quiet(), LIMITS, 3_600.0) == []


def change(
    kind: Effect, before: str, after: str, *, is_reader: bool = False, type: str = ALARM
) -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        found = Change(kind, "desk.inbox", type, before, after, type == ALARM, is_reader)
        evidence.tally.changed(found, 1, [Example("home-1/bell", "/bell", "1")])

    return act


def refuses(evidence: StageEvidence) -> None:
    evidence.rejected = dict.fromkeys(THINGS[:4], "it takes alarms away")


def ends(what: str, devices: int, each: int) -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        for thing in THINGS[:devices]:
            evidence.stage.ends(what, thing, "1 of /bell", each)

    return act


def silent(count: int) -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        for thing in THINGS[:count]:
            del evidence.stage.last_ms[thing]
            evidence.before.last_ms[thing] = NOW_MS - 2_000_000

    return act


def missed(type: str, count: int) -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        evidence.stage.types[type] = count

    return act


def late(name: str, count: int, ms: int) -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        getattr(evidence.stage, name)[:count] = [ms] * count

    return act


def later(devices: int, ms: int, name: str = "up_ms") -> Callable[[StageEvidence], None]:
    def act(evidence: StageEvidence) -> None:
        for _ in range(3):
            for at, thing in enumerate(THINGS[:10]):
                evidence.stage.waited(name, READING, thing, ms if at < devices else 5_000)
            for _ in range(50):
                evidence.others.waited(name, READING, "", 5_000)

    return act


def audited(evidence: StageEvidence) -> None:
    evidence.audited = ["lost: 1, such as 1 of /bell"]


HARM = {
    "alarm:fewer:desk.inbox": change(Effect.FEWER, "route", "no route takes it", is_reader=True),
    "alarm:refused:desk.inbox": change(Effect.REFUSED, "allowed", "payload_invalid"),
    "alarm:expiry:desk.inbox": change(Effect.EXPIRY, "never", "60 s"),
    "alarm:guarantee:desk.inbox": change(Effect.GUARANTEE, "at_least_once", "best_effort"),
    "alarm:order:desk.inbox": change(Effect.ORDER, "source", "none"),
    "alarm:priority:desk.inbox": change(Effect.PRIORITY, "urgent", "normal"),
    "rejected:home-0": refuses,
    "late:up_ms": late("up_ms", 10, 120_000),
    "late:decided_ms": late("decided_ms", 10, 120_000),
    f"{READING}:fewer:desk.inbox": change(
        Effect.FEWER, "route", "no route takes it", is_reader=True, type=READING
    ),
    f"{READING}:refused:desk.inbox": change(Effect.REFUSED, "allowed", "payload_invalid", type=READING),
    f"{READING}:priority:desk.inbox": change(Effect.PRIORITY, "normal", "low", type=READING),
    f"late:{READING}": later(9, 60_000),
    "ended:dead lettered: payload_invalid": ends("dead lettered: payload_invalid", 5, 2),
    "silent": silent(8),
    f"missed:{READING}": missed(READING, 30),
    "audit:lost": audited,
}


@pytest.mark.parametrize("key", HARM)
def test_harm(key: str) -> None:
    evidence = quiet()
    HARM[key](evidence)
    assert keys(evidence) == [key]


@pytest.mark.parametrize(
    "act",
    [
        # An alarm loses one of two routes to the same reader.
        change(Effect.FEWER, "a, b", "a"),
        change(Effect.MORE, "no route takes it", "a", is_reader=True),
        change(Effect.EXPIRY, "never", "86400 s"),
        change(Effect.EXPIRY, "60 s", "300 s"),
        change(Effect.PRIORITY, "normal", "urgent"),
        change(Effect.GUARANTEE, "best_effort", "at_least_once"),
        change(Effect.PRIORITY, "low", "normal", type=READING),
        # There are fewer dead letters.
        change(Effect.FEWER, "route", "no route takes it", is_reader=True, type=DEAD_LETTER_TYPE),
        # What chance alone may show.
        ends("dead lettered: payload_invalid", 1, 50),
        ends("dead lettered: payload_invalid", 2, 1),
        silent(1),
        missed(READING, 260),
        missed(ALARM, 6),
        late("up_ms", 1, 120_000),
        # A home that was offline, and twice as long as before.
        later(1, 600_000),
        later(10, 10_000),
    ],
)
def test_no_harm(act: Callable[[StageEvidence], None]) -> None:
    evidence = quiet()
    act(evidence)
    assert keys(evidence) == []


def test_what_was_so_before_is_no_harm() -> None:
    evidence = quiet()
    ends("expired: by_channel", 5, 40)(evidence)
    for thing in THINGS[:5]:
        evidence.before.ends("expired: by_channel", thing, "0 of /bell", 1)
    assert keys(evidence) == []


def test_what_happens_to_all_is_no_harm() -> None:
    evidence = quiet()
    missed(READING, 30)(evidence)
    silent(8)(evidence)
    evidence.others.types[READING] = 120
    for thing in THINGS[10:42]:
        evidence.others.last_ms[thing] = evidence.others_before.last_ms[thing] = NOW_MS - 2_000_000
    assert keys(evidence) == []


def test_a_single_device_that_falls_silent() -> None:
    evidence = quiet()
    evidence.before.last_ms = {"home-0": NOW_MS - 2_000_000}
    evidence.stage.last_ms = {}
    assert keys(evidence) == ["silent"]


def test_what_is_wanted_is_accepted_but_no_harm_to_alarms() -> None:
    evidence = quiet()
    audited(evidence)
    refuses(evidence)
    (alarm, wanted) = harm(evidence, LIMITS, NOW_MS)
    assert str(wanted).endswith("(if that is wanted: --accept audit:lost)")
    assert "4 devices, such as home-0, do not take the contract" in str(alarm)
    for accepted in (wanted.key, "audit:*"):
        assert keys(evidence, StageLimits(accepted=(accepted, alarm.key))) == [alarm.key]


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda each: setattr(each, "events", 99), "99 of 100 events"),
        (lambda each: setattr(each, "alarms", 0), "0 of 3 alarms"),
        (lambda each: setattr(each, "decided", 0), "no router can use it"),
        (lambda each: each.following.difference_update(THINGS[:2]), "8 of 10 devices that are heard follow"),
    ],
)
def test_a_stage_lacks(act: Callable[[StageEvidence], None], words: str) -> None:
    evidence = quiet()
    act(evidence)
    (found,) = lacking(evidence, LIMITS, 3_600.0)
    assert words in found


def test_a_stage_is_too_short() -> None:
    assert lacking(quiet(), LIMITS, 600.0) == ["3,000 s of 3,600 s are left"]


def test_nothing_is_known() -> None:
    assert harm(StageEvidence(), LIMITS, NOW_MS) == []
    assert len(lacking(StageEvidence(tally=RehearsalTally()), LIMITS, 0.0)) == 3
