"""The resources of an environment, by its synthesized templates: what runs, what asks, what watches."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contract import load_contract

if TYPE_CHECKING:
    from stacks.environment import Environment
    from tests.infrastructure.templates import Resource

DAY_H: Final = 24
MONTH_H: Final = 30 * DAY_H
MONTH_MIN: Final = 60 * MONTH_H
MONTH_S: Final = 60 * MONTH_MIN

_NAMED: Final = {
    "AWS::Lambda::Function": "FunctionName",
    "AWS::Lambda::Alias": "FunctionName",
    "AWS::Lambda::Version": "FunctionName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::Glue::Job": "Name",
}
"""Resources that others refer to, and the property that has or leads to their name."""

_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_MINUTES: Final = {"minute": 1, "hour": 60, "day": 60 * DAY_H}
_CRON: Final = re.compile(r"cron\(\S+ (\S+) .*\)")


@dataclass(frozen=True, slots=True)
class PricedFunction:
    """A function: its name without project and environment, and its size."""

    name: str
    memory_mib: int
    is_traced: bool


@dataclass(frozen=True, slots=True)
class EventSource:
    """`function` gets `batch_size` messages of `queue` at a time, or fewer after `window_s`."""

    function: str
    queue: str
    batch_size: int
    window_s: int
    max_concurrency: int


@dataclass(frozen=True, slots=True)
class PricedSchedule:
    """`function` is called with the JSON text `input`, `calls` times a month."""

    function: str
    input: str
    calls: float

    @property
    def key(self) -> tuple[str, str]:
        return self.function, self.input


@dataclass(frozen=True, slots=True)
class Job:
    """A Glue job that starts `runs` times a month on `dpu` workers of 4 vCPU."""

    name: str
    runs: float
    dpu: int
    is_flexible: bool


class PricedPlane:
    """The stacks of an environment. Names are without project and environment (`router-device`)."""

    def __init__(self, of: str | Environment) -> None:
        # The constructs start a process of Node.js when they are imported: only a synthesis needs it.
        from stacks.config import environment
        from stacks.environment import PROJECT
        from tests.infrastructure.templates import Templates

        self.environment = environment(of) if isinstance(of, str) else of
        self._name_of = re.compile(rf"{PROJECT}-{self.environment.name}-([\w-]+)")
        self._templates = Templates(self.environment, load_contract())
        self.functions = {each.name: each for each in self._functions()}
        self.mappings = tuple(self._mappings())
        self.schedules = tuple(self._schedules())
        self.jobs = tuple(self._jobs())

    def of(self, *types: str) -> list[Resource]:
        """All resources of these types."""
        return self._templates.of(*types)

    @property
    def alarm_metrics(self) -> int:
        """The units by which CloudWatch bills alarms: each metric that one reads, a query as one."""
        return sum(_metrics(each.properties) for each in self.of("AWS::CloudWatch::Alarm"))

    @property
    def provisioned_gb(self) -> float:
        """Memory that waits for calls, GB."""
        found = 0.0
        for each in self.of("AWS::Lambda::Alias", "AWS::Lambda::Version"):
            number = each.find("ProvisionedConcurrencyConfig", "ProvisionedConcurrentExecutions") or 0
            found += number * self.functions[self._name(each, "FunctionName")].memory_mib / 1024
        return found

    @property
    def job_metrics(self) -> float:
        """Metrics made of logs of jobs, each by the share of a month's hours in which it gets a value."""
        runs = {each.name: each.runs for each in self.jobs}
        jobs = (each for each in self.of("AWS::Glue::Job") if each.find("DefaultArguments", "--METRICS"))
        made = {each.name: each.find("DefaultArguments", "--METRICS").split(",") for each in jobs}
        return sum(min(1.0, runs[name] / MONTH_H) * len(names) for name, names in made.items())

    def _functions(self) -> Iterator[PricedFunction]:
        for each in self.of("AWS::Lambda::Function"):
            traced = each.find("TracingConfig", "Mode") == "Active"
            yield PricedFunction(self._name(each, "FunctionName"), each.find("MemorySize") or 128, traced)

    def _mappings(self) -> Iterator[EventSource]:
        for each in self.of("AWS::Lambda::EventSourceMapping"):
            if each.find("Enabled") is not False:
                yield EventSource(
                    self._name(each, "FunctionName"),
                    self._name(each, "EventSourceArn"),
                    each.find("BatchSize") or 10,
                    each.find("MaximumBatchingWindowInSeconds") or 0,
                    each.find("ScalingConfig", "MaximumConcurrency") or 1_000,
                )

    def _schedules(self) -> Iterator[PricedSchedule]:
        for each in self.of("AWS::Scheduler::Schedule", "AWS::Events::Rule"):
            expression = each.find("ScheduleExpression")
            if expression and each.find("State") in (None, "ENABLED"):
                for target in each.find("Targets") or [each.find("Target")]:
                    function = self._behind(each.stack, target["Arn"])
                    yield PricedSchedule(function, target.get("Input", "{}"), runs(expression))

    def _jobs(self) -> Iterator[Job]:
        starts: Counter[str] = Counter()
        for each in self.of("AWS::Glue::Trigger"):
            for action in each.find("Actions"):
                starts[self._behind(each.stack, action["JobName"])] += runs(each.find("Schedule"))
        for each in self.of("AWS::Glue::Job"):
            name = self._name(each, "Name")
            # A G.1X worker is one DPU, a G.2X two.
            size = {"G.1X": 1, "G.2X": 2}[each.find("WorkerType")]
            is_flexible = each.find("ExecutionClass") == "FLEX"
            yield Job(name, starts[name], size * each.find("NumberOfWorkers"), is_flexible)

    def _name(self, resource: Resource, by: str) -> str:
        return self._behind(resource.stack, resource.find(by))

    def _behind(self, stack: str, reference: Any) -> str:
        """The name that a reference leads to: through resources of its `stack`, or by an ARN."""
        text = json.dumps(reference)
        for each in self.of(*_NAMED):
            if each.stack == stack and f'"{each.id}"' in text:
                return self._name(each, _NAMED[each.type])
        name = self._name_of.search(text)
        assert name is not None, f"{text} has no name of ours"  # noqa: S101 - a mistake in this file
        return name[1]


def runs(schedule: str) -> float:
    """Return how often a month `rate(...)` or `cron(...)` starts something: by its hours, once in each."""
    if rate := _RATE.fullmatch(schedule):
        return MONTH_MIN / (int(rate[1]) * _MINUTES[rate[2]])
    hours = _CRON.fullmatch(schedule)
    if not hours:
        raise ValueError(f"{schedule} is neither rate(...) nor cron(...)")
    return 30.0 * sum(map(_hours, hours[1].split(",")))


def _hours(field: str) -> int:
    if field == "*":
        return DAY_H
    first, _, last = field.partition("-")
    return int(last or first) - int(first) + 1


def _metrics(alarm: Mapping[str, Any]) -> int:
    if "Metrics" not in alarm:
        return 1
    return max(1, sum("MetricStat" in each for each in alarm["Metrics"]))
