"""Roll a contract out by stages: which devices a stage has, what their events show, and whether that is harm.

All is computed from evidence of the archive, so that the same evidence gives the same decision. A stage is
compared with the other devices in the same time, and with its own devices before. Where little happens,
little is claimed: chance explains all that is not rarer than `RARE`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from math import ceil, exp, lgamma, log
from typing import Final, NamedTuple

from contract.rehearsal import RehearsalTally
from eventplane.contract.publication import KEY
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.errors import EventPlaneError
from eventplane.records import NEW, RecordKind
from eventplane.values import quantile

RARE: Final = 1e-5
"""Harm is what chance alone would show less often. Ours: a stage is looked at some hundred times, at some ten
figures."""

FALLS: Final = 0.5
"""A type of event is missed from here on: this share of what was expected. Ours."""

LEAST_EXPECTED: Final = 10.0
"""Events of a type that are expected before their absence says something. Ours."""

FOLLOWING: Final = 0.9
"""The share of the devices that are heard that follows a contract before its stage can pass. Ours."""

WHOLE: Final = 100.0

_GROUP: Final = "group "


class RolloutPhase(StrEnum):
    """The state of a roll-out."""

    WATCHING = "watching"
    UNPROVEN = "unproven"
    GOING_BACK = "going back"
    WENT_BACK = "went back"
    DONE = "done"

    @property
    def is_over(self) -> bool:
        """True if another roll-out may begin."""
        return self in (RolloutPhase.WENT_BACK, RolloutPhase.DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLimits:
    """The needs of a stage before it passes; `limit_s` is when a person is asked about one that lacks it.

    A device is silent after `silent_s` without an event. `accepted` are the keys of findings that are wanted,
    in which `*` stands for any text.
    """

    watch_s: int = 3_600
    events: int = 100
    alarms: int = 3
    limit_s: int = 86_400
    silent_s: int = 900
    accepted: tuple[str, ...] = ()

    def refused(self, found: Iterable[StageFinding]) -> list[StageFinding]:
        """Return what is not accepted, alarms first: harm to them cannot be."""
        left = (
            each
            for each in found
            if each.is_alarm or not any(fnmatchcase(each.key, key) for key in self.accepted)
        )
        return sorted(left, key=lambda each: not each.is_alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRollout:
    """A roll-out of the contract `version` in place of `former`, in the deployment of the contract `base`.

    `judged_by` is the version of `former` with what participants subscribed, '' where the archive has none.
    Its `stage`, an index into `stages`, began at `stage_ms`; times are Unix milliseconds. `why` it is in its
    phase, in lines, and `findings` the keys of what was found. At the last look, `looked_ms`, the stages had
    `devices`, of which some had `stored` the contract and were `following` it, with `events` and `alarms`;
    they `lacked` something to pass. Going back, `stored` counts those that still have it.
    """

    base: str
    version: str
    former: str
    judged_by: str
    stages: tuple[str, ...]
    limits: StageLimits
    began_ms: int
    stage_ms: int
    stage: int = 0
    phase: RolloutPhase = RolloutPhase.WATCHING
    why: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    looked_ms: int = 0
    devices: int = 0
    stored: int = 0
    following: int = 0
    events: int = 0
    alarms: int = 0
    lacked: tuple[str, ...] = ()
    revision: int = field(default=NEW, compare=False)

    @property
    def name(self) -> str:
        """Its name, another one for each attempt with a contract."""
        return f"{self.version}/{self.began_ms}"

    @property
    def reached(self) -> tuple[str, ...]:
        """The stages so far."""
        return self.stages[: self.stage + 1]

    def has(self, thing: str, groups: Collection[str]) -> bool:
        """Return whether a device is in one of the stages so far."""
        return any(is_in(each, self.version, thing, groups) for each in self.reached)


ROLLOUT_KEY: Final = "rollout"

ROLLOUT: Final = RecordKind(type=ContractRollout, key=(KEY,), derived={KEY: lambda _: ROLLOUT_KEY})
"""How the contract table keeps the one roll-out of a plane."""


@dataclass(frozen=True, slots=True)
class Member:
    """A device that was sent the contract of a roll-out as the state `number`; `before` is what it followed:
    the version that the cloud had sent it, None for that of its image.
    """

    thing: str
    number: int
    before: str | None


@dataclass(frozen=True, slots=True)
class MemberPage:
    """Some devices of a `rollout`, page by page from 0. A page is written once."""

    rollout: str
    page: int
    members: tuple[Member, ...]
    revision: int = field(default=NEW, compare=False)


MEMBERS_A_PAGE: Final = 1_000
"""Most devices of a page. Ours: with the longest names half of the size of an item."""


def page_id(rollout: str, page: int) -> str:
    """Return the key of a page of members."""
    return f"{ROLLOUT_KEY}/{rollout}/{page}"


MEMBERS: Final = RecordKind(
    type=MemberPage, key=(KEY,), derived={KEY: lambda each: page_id(each.rollout, each.page)}
)
"""How the contract table keeps what devices followed before the roll-out."""


def group_of(stage: str) -> str | None:
    """Return the group of devices that a stage is; None for a share of all."""
    return stage.removeprefix(_GROUP) if stage.startswith(_GROUP) else None


class StageError(EventPlaneError):
    """The stages of a roll-out are none."""

    problem: str
    message = "{problem}; name shares that grow up to 100, such as --shares 1,5,25,100"


def stages_of(groups: Sequence[str], shares: Sequence[float]) -> tuple[str, ...]:
    """Return the stages: groups of devices, then shares of the fleet in percent. Raises `StageError`."""
    if not shares or shares[-1] != WHOLE:
        raise StageError("the last share is not all devices")
    if any(not 0 < low < high for low, high in zip((0.001, *shares), (*shares, WHOLE + 1), strict=True)):
        raise StageError("the shares do not grow")
    return (*(f"{_GROUP}{each}" for each in groups), *(f"{each:g} %" for each in shares))


def is_in(stage: str, version: str, thing: str, groups: Collection[str]) -> bool:
    """Return whether a device of these groups is in a stage. Who is in a share is in each larger one."""
    if (group := group_of(stage)) is not None:
        return group in groups
    digest = hashlib.sha256(f"{version}\n{thing}".encode()).digest()
    return int.from_bytes(digest[:8]) < float(stage.partition(" ")[0]) / WHOLE * 2**64


# Evidence


@dataclass
class DevicesHeard:
    """The events that some devices sent in `seconds`, counted by the archive.

    `types` counts their events, `ended` by what became of those that reached nobody, in which the devices are
    named. Of alarms `up_ms` are the times from device to cloud, `decided_ms` those to the routers' decision;
    of other events `waits` counts both in tenths of seconds, by name and type, then by device ('' for any).
    `last_ms` is when each device was heard last.
    """

    seconds: float = 0.0
    types: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    up_ms: list[int] = field(default_factory=list)
    decided_ms: list[int] = field(default_factory=list)
    waits: dict[tuple[str, str], dict[str, Counter[int]]] = field(default_factory=dict)
    last_ms: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """The number of events."""
        return self.types.total()

    def waited(self, name: str, type: str, thing: str, ms: int) -> None:
        """Count how long an event took that is no alarm."""
        self.waits.setdefault((name, type), {}).setdefault(thing, Counter())[ms // 100] += 1

    def ends(self, what: str, thing: str, example: str, count: int = 1) -> None:
        """Count events of a device that ended without a reader."""
        self.ended.setdefault(what, Counter())[thing] += count
        self.examples.setdefault(what, example)


@dataclass
class StageEvidence:
    """The archive's evidence of a stage's devices and of the others, each since the stage began and before.

    `following` have sent an event under the new contract, `events` of them with `alarms`; `rejected` says why
    a device does not take it. `tally` compares the ends of those events by both contracts. `decided` of the
    routers' decisions went by the new one.
    """

    stage: DevicesHeard = field(default_factory=DevicesHeard)
    before: DevicesHeard = field(default_factory=DevicesHeard)
    others: DevicesHeard = field(default_factory=DevicesHeard)
    others_before: DevicesHeard = field(default_factory=DevicesHeard)
    tally: RehearsalTally = field(default_factory=RehearsalTally)
    following: set[str] = field(default_factory=set)
    events: int = 0
    alarms: int = 0
    decided: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    audited: Sequence[str] = ()
    """Promises that are broken to devices of the stage, by the audit of today."""

    @property
    def heard(self) -> set[str]:
        """The stage's devices that were heard, before or since."""
        return {*self.before.last_ms, *self.stage.last_ms}


class StageFinding(NamedTuple):
    """Harm that a gate found, called `key`; only what does not concern alarms can be accepted."""

    key: str
    text: str
    is_alarm: bool = False

    def __str__(self) -> str:
        return self.text if self.is_alarm else f"{self.text} (if that is wanted: --accept {self.key})"


def at_least(count: int, mean: float) -> float:
    """Return how likely so many or more are, where `mean` are expected (Poisson)."""
    return 1.0 if count <= mean else _sum(mean, range(count, count + ceil(20 * (count + 1))))


def at_most(count: int, mean: float) -> float:
    """Return how likely so few or less are, where `mean` are expected (Poisson)."""
    return 1.0 if count >= mean else _sum(mean, range(count, -1, -1))


def _sum(mean: float, counts: Iterable[int]) -> float:
    """Return the sum of the likelihoods, which fall; what adds nothing is left out."""
    total = 0.0
    for each in counts:
        part = exp(each * log(mean) - mean - lgamma(each + 1))
        total += part
        if part < total * 1e-12:
            break
    return total


# Gates


def harm(evidence: StageEvidence, limits: StageLimits, now_ms: int) -> list[StageFinding]:
    """Return what is worse by the new contract, alarms first, without what is accepted."""
    gates: tuple[Iterator[StageFinding], ...] = (
        worse(evidence.tally),
        _rejected(evidence.rejected),
        _late(evidence, "up_ms", "from the device to the cloud"),
        _late(evidence, "decided_ms", "until a router has decided"),
        _later(evidence, "up_ms", "from the device to the cloud"),
        _later(evidence, "decided_ms", "until a router has decided"),
        _ended(evidence),
        _silent(evidence, limits, now_ms),
        _missed(evidence),
        (
            StageFinding(f"audit:{each.partition(':')[0]}", f"the audit of today finds {each}")
            for each in evidence.audited
        ),
    )
    return limits.refused(each for gate in gates for each in gate)


def worse(tally: RehearsalTally) -> Iterator[StageFinding]:
    """Yield what loses a reader, is refused, or is worth less on its way by the new contract."""
    for change, count in tally.changes.items():
        # Of dead letters there may be fewer.
        if change.type != DEAD_LETTER_TYPE and (why := change.harm):
            examples = ", ".join(f"{each.id} of {each.source}" for each in tally.examples[change])
            what, of = ("alarms", "alarm") if change.is_alarm else ("events", change.type)
            text = f"{count:,} {what} {change.type} {why}, for example {examples}"
            yield StageFinding(f"{of}:{change.kind}:{change.to}", text, change.is_alarm)


def _rejected(rejected: Mapping[str, str]) -> Iterator[StageFinding]:
    for why in sorted({*rejected.values()}):
        things = sorted(thing for thing, each in rejected.items() if each == why)
        first = things[0] if len(things) == 1 else f"{len(things)} devices, such as {things[0]},"
        yield StageFinding(f"rejected:{things[0]}", f"{first} do not take the contract: {why}", True)


def _late(evidence: StageEvidence, name: str, way: str) -> Iterator[StageFinding]:
    """Alarms that take longer than nearly all did."""
    now, *known_of = (getattr(each, name) for each in (evidence.stage, evidence.before, evidence.others))
    if not now or not (known := [*known_of[0], *known_of[1]]):
        return
    bound_ms = 2 * quantile(sorted(known), 0.99) + 1_000
    late, usual = (sum(each > bound_ms for each in those) for those in (now, known))
    if at_least(late, len(now) * (usual + 1) / (len(known) + 1)) < RARE:
        most = f"{max(now) / 1_000:.1f} s at most, before {max(known) / 1_000:.1f} s"
        yield StageFinding(f"late:{name}", f"{late:,} of {len(now):,} alarms are late {way}: {most}", True)


def _later(evidence: StageEvidence, name: str, way: str) -> Iterator[StageFinding]:
    """Types of other events that take longer on most devices than nearly all did: one may be offline."""
    known_of = evidence.before, evidence.others, evidence.others_before
    types = sorted((type, devices) for (each, type), devices in evidence.stage.waits.items() if each == name)
    for type, devices in types:
        known = Counter[int]()
        for population in known_of:
            for waits in population.waits.get((name, type), {}).values():
                known.update(waits)
        if not known:
            continue
        bound = 2 * quantile(sorted(known.elements()), 0.99) + 10
        count = sum(_late_in(some, bound) >= some.total() / 2 for some in devices.values())
        # So many late events are half of the events of at most twice as many devices.
        mean = len(devices) * 2 * (_late_in(known, bound) + 1) / (known.total() + 1)
        if at_least(count, mean) < RARE:
            late_s, known_s = max(map(max, devices.values())) / 10, max(known) / 10
            text = (
                f"{type} of {count} of {len(devices)} devices are late {way}: {late_s} s, before {known_s} s"
            )
            yield StageFinding(f"late:{type}", text)


def _late_in(waits: Counter[int], bound: float) -> int:
    return sum(count for wait, count in waits.items() if wait > bound)


def _ended(evidence: StageEvidence) -> Iterator[StageFinding]:
    """Events that reach nobody, each reason for itself; devices that always had it are left out."""
    stage, known = evidence.stage, (evidence.before, evidence.others, evidence.others_before)
    for what, things in sorted(stage.ended.items()):
        chronic = evidence.before.ended.get(what, Counter())
        new = {thing: count for thing, count in things.items() if thing not in chronic}
        count = sum(new.values())
        usual = sum(each.ended[what].total() for each in known if what in each.ended)
        mean = stage.events * (usual + 1) / (sum(each.events for each in known) + 1)
        is_one = len(new) < 2 and len(evidence.following) > 2  # one home's own trouble
        if new and not is_one and at_least(count, mean) < RARE:
            yield StageFinding(
                f"ended:{what}",
                f"{count:,} events of {len(new)} devices are {what}, {mean:.1f} were to be expected; for "
                f"example {stage.examples[what]}",
            )


def _silent(evidence: StageEvidence, limits: StageLimits, now_ms: int) -> Iterator[StageFinding]:
    def silent(before: DevicesHeard, since: DevicesHeard) -> list[str]:
        heard = before.last_ms | since.last_ms
        return sorted(each for each in before.last_ms if now_ms - heard[each] > 1_000 * limits.silent_s)

    stage = silent(evidence.before, evidence.stage) if evidence.stage.seconds > limits.silent_s else []
    known, of = silent(evidence.others_before, evidence.others), len(evidence.before.last_ms)
    mean = of * (len(known) + 1) / (len(evidence.others_before.last_ms) + 2)
    if stage and (len(stage) == of or at_least(len(stage), mean) < RARE):
        names = ", ".join(stage[:3])
        yield StageFinding(
            "silent", f"{len(stage)} of {of} devices are silent that spoke before: {names}", True
        )


def _missed(evidence: StageEvidence) -> Iterator[StageFinding]:
    """Types of events that the stage's devices hardly send any more."""
    stage, before = evidence.stage, evidence.before
    if not before.seconds:
        return
    for type, count in sorted(before.types.items()):
        expected = count / before.seconds * stage.seconds * _trend(evidence, type)
        if expected >= LEAST_EXPECTED and at_most(stage.types[type], FALLS * expected) < RARE:
            text = f"{stage.types[type]:,} events {type} came, {expected:.0f} were to be expected"
            yield StageFinding(f"missed:{type}", text)


def _trend(evidence: StageEvidence, type: str) -> float:
    """Return how much of a type the other devices send now, compared with before; 1 where that is unknown."""
    now, before = evidence.others, evidence.others_before
    if before.types[type] < LEAST_EXPECTED or not before.seconds or not now.seconds:
        return 1.0
    return min(1.0, now.types[type] / now.seconds / (before.types[type] / before.seconds))


def lacking(evidence: StageEvidence, limits: StageLimits, seconds: float) -> list[str]:
    """Return what a stage of so many seconds lacks to pass, in words; nothing where it can."""
    found = []
    if seconds < limits.watch_s:
        found.append(f"{limits.watch_s - seconds:,.0f} s of {limits.watch_s:,} s are left")
    if evidence.events < limits.events:
        found.append(f"{evidence.events:,} of {limits.events:,} events under the new contract")
    if evidence.alarms < limits.alarms:
        found.append(f"{evidence.alarms:,} of {limits.alarms:,} alarms under the new contract")
    if evidence.events and not evidence.decided:
        found.append("a decision by it: no router can use it, see the metric ContractRefused")
    heard = evidence.heard
    following = heard & evidence.following
    if len(following) < FOLLOWING * len(heard):
        waiting = ", ".join(sorted(heard - following)[:3])
        found.append(f"{len(following)} of {len(heard)} devices that are heard follow it, not {waiting}")
    return found
