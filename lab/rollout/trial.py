"""One roll-out, by the real programs in virtual time.

The registry has a thousand homes. Those of the stages that are reached run, and some of the others; the rest
are members of the fleet that nothing is sent to, so that the shares are those of a thousand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final

from contract.promises import less_promised
from contract.publish import Baseline, PublishError
from contract.rollout import ContractRollout, RolloutPhase, StageFinding, StageLimits, is_in, stages_of
from eventplane.contract import Contract
from eventplane.downlink import table as downlink_table
from eventplane.envelope import Envelope, write_event
from eventplane.records import Records
from eventplane.sqs_binding import to_message
from eventplane.values import timestamp_of_ms
from eventplane_aws.tables import DynamoDbTables
from glue_jobs.delivery_audit.report import report
from glue_jobs.delivery_audit.small import audit_small
from lab.histories.cloud import BUCKET, CloudModel
from lab.histories.engine import Engine
from lab.histories.history import DATA, HOME, TRUSTING
from lab.histories.oracles.audited import request_of
from lab.histories.search import shipped, silence_logs
from lab.histories.story import SENDERS
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import Wiring
from lab.rollout.changes import HARMFUL, HARMLESS, UNNOTICED, UNSEEN
from operations.archive import BucketArchive
from operations.rollout import RolloutPlane, RolloutRunner
from parts.simulate.home import SCRATCH, HomeModel
from parts.simulate.timeline import START_S
from tests.small_contract import with_changes

Compare = Callable[[Contract, Contract], list[StageFinding]]
Visit = Callable[["TrialFleet"], object]

LOOKS_S: Final = 60.0
"""Between two steps of the roll-out."""

BOUND: Final = 5.0
"""A harmful change is stopped before more than so many percent of the homes have it."""

PER_HOUR: Final = {
    "org.eventplane.alarm.keyword.v1": 3.0,
    "org.eventplane.alarm.clinical.v1": 3.0,
    "org.eventplane.health.reading.v1": 12.0,
    "org.eventplane.activity.motion.v1": 12.0,
    "org.eventplane.climate.reading.v1": 6.0,
}
"""Events an hour of a home. Assumed; alarms more often than people call, so that an hour says something."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A fleet of `homes`, of which those in `shares` (percent) run and `others` beside them; seconds."""

    homes: int = 1_000
    shares: tuple[float, ...] = (1.0, 5.0)
    others: int = 20
    before_s: float = 900.0
    stage_s: float = 900.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The end of a roll-out: `reached` percent of the fleet had the contract, and what was found.

    `is_restored` says whether all homes follow what they followed before, and one version is in force.
    """

    name: str
    phase: RolloutPhase | None
    reached: float
    findings: tuple[str, ...]
    why: tuple[str, ...]
    is_restored: bool


class TrialFleet:
    """The plane of `former` and its fleet, in which `new` is rolled out; `compare` as of `RolloutRunner`."""

    def __init__(
        self, trial: Trial, former: Contract, new: Contract, compare: Compare = less_promised
    ) -> None:
        self._trial, self._former, self._new = trial, former, new
        self.engine = Engine()
        self._random = Random(trial.seed)
        weather = CurrentFaults(self.engine, self._random)
        things = [f"home-{number + 1}" for number in range(trial.homes)]
        self.cloud = CloudModel(self.engine, former, weather, things)
        Wiring(self.cloud).start()
        self.stages = stages_of((), [*(each for each in trial.shares if each < 100.0), 100.0])
        last = f"{trial.shares[-1]:g} %"
        members = [each for each in things if is_in(last, new.version, each, ())]
        self.running = [*members, *[each for each in things if each not in members][: trial.others]]
        self.homes: dict[str, HomeModel] = {}
        self.plane = self._plane()
        self.runner = RolloutRunner(self.plane, compare)
        self.limits = StageLimits(watch_s=int(trial.stage_s), limit_s=int(3 * trial.stage_s))
        self.problem = ""

    def _plane(self) -> RolloutPlane:
        cloud, tables = self.cloud, DynamoDbTables(self.cloud.dynamodb, self.cloud.weather.draw)
        return RolloutPlane(
            Baseline(
                self._former.version, cloud.inboxes, "contracts", frozenset(), frozenset(cloud.receipts)
            ),
            tables,
            lambda: [*cloud.registry.all()],
            Records(tables, "desired", downlink_table.DESIRED),
            BucketArchive(cloud.s3, BUCKET),
            self._send,
            self._audit,
            lambda: datetime.fromtimestamp(self.engine.now_ms / 1_000, UTC),
        )

    def _send(self, sender: str, event: Envelope) -> None:
        body = to_message(event, {}).body
        self.cloud.sqs.send_message(QueueUrl=self.cloud.outboxes[sender], MessageBody=body)

    def _audit(self) -> Mapping[str, Any]:
        audit = audit_small(request_of(self.cloud, self.engine.now_ms))
        return report(audit, audit.chain, [], [])

    def run(self, name: str, visit: Visit = lambda _: None) -> TrialResult:
        """Roll out until it is over, or has passed the last share that runs; `visit` follows each step."""
        trial, engine = self._trial, self.engine
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            for thing in self.running:
                draw = self._random.randbytes
                self.homes[thing] = HomeModel(
                    engine, thing, self._former, self.cloud.iot.broker, Path(folder), draw, TRUSTING, HOME
                )
                self._live(thing, trial.before_s + (len(trial.shares) * 4 + 1) * trial.stage_s)
            engine.run(trial.before_s)
            try:
                self.start()
            except PublishError as error:
                self.problem = str(error)
            while not (self.problem or self._is_over()):
                self.runner.step()
                visit(self)
                engine.run(engine.now_s + LOOKS_S)
            result = self._result(name)
            for home in self.homes.values():
                home.is_frozen = True
                if home.forwarder is not None:
                    home.forwarder.spool.close()
            engine.close()
        return result

    def start(self) -> ContractRollout:
        """Begin the roll-out, or go on with it."""
        return self.runner.start(self._new, self._former, "", self.stages, self.limits)

    def _is_over(self) -> bool:
        if (rollout := self.runner.found()) is None:
            return True
        is_waiting = rollout.phase is RolloutPhase.UNPROVEN
        return rollout.phase.is_over or is_waiting or rollout.stage == len(self._trial.shares)

    def _live(self, thing: str, until_s: float) -> None:
        """Let the services of a home speak, as often as they do."""
        for kind, per_hour in PER_HOUR.items():
            at_s, number = 0.0, 0
            while (at_s := at_s + self._random.expovariate(per_hour / 3_600)) < until_s:
                number += 1
                service = SENDERS[kind]
                attributes = {"id": f"{thing}-{kind}-{number}", "source": f"/{thing}/{service}", "type": kind}
                time = timestamp_of_ms(round(1_000 * (START_S + at_s)))
                event = write_event({**attributes, "time": time}, DATA[kind])
                self.engine.at(at_s, partial(self._say, thing, service, event))

    def _say(self, thing: str, service: str, event: Envelope) -> None:
        self.homes[thing].services[service].say(event)

    def _result(self, name: str) -> TrialResult:
        rollout = self.runner.found()
        if rollout is None:
            return TrialResult(name, None, 0.0, ("refused",), (self.problem,), True)
        return TrialResult(
            name,
            rollout.phase,
            _share(rollout),
            rollout.findings,
            rollout.why,
            self._is_restored(),
        )

    def _is_restored(self) -> bool:
        head = self.runner.head()
        followed = {home.forwarder.contract.version for home in self.homes.values() if home.forwarder}
        is_one = head is None or (head.candidate is None and head.version == self._former.version)
        return is_one and followed == {self._former.version}


def _share(rollout: ContractRollout) -> float:
    return float(rollout.stages[rollout.stage].partition(" ")[0])


@dataclass(frozen=True, slots=True)
class Tried:
    """A change, how its roll-out ended, and whether the comparison of promises had refused to begin it."""

    result: TrialResult
    is_refused: bool
    is_right: bool
    cpu_s: float


def tried(trial: Trial, name: str) -> Tried:
    """Return how the roll-out of a change of the shipped contract ends; metrics and logs are discarded."""
    silence_logs()
    is_harmful, began_s = name in HARMFUL, process_time()
    new = with_changes(shipped(), {**HARMFUL, **HARMLESS}[name])
    first, *_ = trial.shares
    with redirect_stdout(StringIO()):  # the functions print their metrics
        # Most harm is seen in the first stage, and the homes of the next one need not run for that.
        result = None
        if is_harmful:
            result = TrialFleet(replace(trial, shares=(first,)), shipped(), new, uncompared).run(name)
        if result is None or not is_stopped(result):
            result = TrialFleet(trial, shipped(), new, uncompared if is_harmful else less_promised).run(name)
    is_right = is_stopped(result) if is_harmful else result.reached > BOUND and not result.findings
    return Tried(result, bool(less_promised(shipped(), new)), is_right, process_time() - began_s)


def uncompared(*_: Contract) -> list[StageFinding]:
    """Compare nothing, so that the gates alone are tried."""
    return []


def compared() -> tuple[list[str], list[str]]:
    """Return which changes that no event shows are judged wrongly: harmful ones, and harmless ones."""
    missed, wrong = list[str](), list[str]()
    for key, (base, change) in UNSEEN.items():
        former = with_changes(shipped(), base)
        if key not in {each.key for each in less_promised(former, with_changes(former, change))}:
            missed.append(key)
    for base, change in UNNOTICED:
        former = with_changes(shipped(), base)
        if less_promised(former, with_changes(former, change)):
            wrong.append(", ".join(change))
    return missed, wrong


def is_stopped(result: TrialResult) -> bool:
    """Return whether a roll-out was stopped in time, and all is as it was."""
    return bool(result.findings) and result.reached <= BOUND and result.is_restored
