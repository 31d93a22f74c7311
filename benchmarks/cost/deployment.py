"""What an environment deploys, by its synthesized templates: what runs, what asks, what watches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contract import load_contract

if TYPE_CHECKING:
    from stacks.environment import Environment

CONTEXT: Final = {
    **json.loads(Path(__file__).parents[2].joinpath("cdk.json").read_text())["context"],
    "aws:cdk:bundling-stacks": [],
}

DAY_H: Final = 24
MONTH_H: Final = 30 * DAY_H
MONTH_MIN: Final = 60 * MONTH_H
MONTH_S: Final = 60 * MONTH_MIN

_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_MINUTES: Final = {"minute": 1, "hour": 60, "day": 60 * DAY_H}
_CRON: Final = re.compile(r"cron\(\S+ (\S+) .*\)")


@dataclass(frozen=True, slots=True)
class Function:
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
class Schedule:
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


class Deployment:
    """The stacks of an environment. Names are without project and environment (`router-device`)."""

    def __init__(self, of: str | Environment) -> None:
        # The constructs start a process of Node.js when they are imported: only a synthesis needs it.
        import aws_cdk as cdk

        from stacks.application import build
        from stacks.config import environment
        from stacks.environment import PROJECT

        chosen = environment(of) if isinstance(of, str) else of
        app = cdk.App(context=CONTEXT)
        build(app, chosen.with_placeholders() if chosen.keeps_data else chosen, load_contract())
        self.environment = chosen
        self._prefix = f"{PROJECT}-{chosen.name}-"
        self._templates: list[dict[str, Any]] = [each.template for each in app.synth().stacks]
        self.functions = {each.name: each for each in self._functions()}
        self.mappings = tuple(self._mappings())
        self.schedules = tuple(self._schedules())
        self.jobs = tuple(self._jobs())

    def of(self, *types: str) -> list[dict[str, Any]]:
        """The properties of all resources of these types."""
        return [properties for _, kind, properties in self._resources() if kind in types]

    @property
    def alarm_metrics(self) -> int:
        """What CloudWatch bills alarms by: each metric that one reads, a query as one."""
        return sum(_metrics(each) for each in self.of("AWS::CloudWatch::Alarm"))

    @property
    def provisioned_gb(self) -> float:
        """Memory that waits for calls, GB."""
        found = 0.0
        for template, kind, properties in self._resources():
            waiting = properties.get("ProvisionedConcurrencyConfig")
            if kind in ("AWS::Lambda::Alias", "AWS::Lambda::Version") and waiting:
                memory = self.functions[self._function(template, properties["FunctionName"])].memory_mib
                found += waiting["ProvisionedConcurrentExecutions"] * memory / 1024
        return found

    @property
    def filtered_metrics(self) -> float:
        """Metrics made of logs of jobs, each by the share of a month's hours in which it gets a value."""
        runs = {each.name: each.runs for each in self.jobs}
        found = 0.0
        for template, kind, properties in self._resources():
            if kind == "AWS::Logs::MetricFilter":
                group = self._resource(template, properties["LogGroupName"])["Properties"]["LogGroupName"]
                job = next((name for name in runs if f"/{self._prefix}{name}/" in str(group)), None)
                found += min(1.0, runs[job] / MONTH_H) if job else 1.0
        return found

    def _resources(self) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
        for template in self._templates:
            for resource in template.get("Resources", {}).values():
                yield template, resource["Type"], resource.get("Properties", {})

    def _functions(self) -> Iterator[Function]:
        for each in self.of("AWS::Lambda::Function"):
            traced = each.get("TracingConfig", {}).get("Mode") == "Active"
            yield Function(self._short(each["FunctionName"]), each.get("MemorySize", 128), traced)

    def _mappings(self) -> Iterator[EventSource]:
        for template, kind, each in self._resources():
            if kind == "AWS::Lambda::EventSourceMapping" and each.get("Enabled", True):
                yield EventSource(
                    self._function(template, each["FunctionName"]),
                    self._queue(template, each["EventSourceArn"]),
                    each.get("BatchSize", 10),
                    each.get("MaximumBatchingWindowInSeconds", 0),
                    each.get("ScalingConfig", {}).get("MaximumConcurrency", 1_000),
                )

    def _schedules(self) -> Iterator[Schedule]:
        for template, kind, each in self._resources():
            if kind == "AWS::Scheduler::Schedule" and each.get("State", "ENABLED") == "ENABLED":
                target = each["Target"]
                function = self._function(template, target["Arn"])
                yield Schedule(function, target.get("Input", "{}"), runs(each["ScheduleExpression"]))
            elif kind == "AWS::Events::Rule" and each.get("State", "ENABLED") == "ENABLED":
                for target in each["Targets"] if "ScheduleExpression" in each else ():
                    function = self._function(template, target["Arn"])
                    yield Schedule(function, target.get("Input", "{}"), runs(each["ScheduleExpression"]))

    def _jobs(self) -> Iterator[Job]:
        starts: dict[str, float] = {}
        for each in self.of("AWS::Glue::Trigger"):
            for action in each["Actions"]:
                name = self._short(action["JobName"])
                starts[name] = starts.get(name, 0.0) + runs(each["Schedule"])
        for each in self.of("AWS::Glue::Job"):
            name = self._short(each["Name"])
            # A G.1X worker is one DPU, a G.2X two.
            size = {"G.1X": 1, "G.2X": 2}[each["WorkerType"]]
            flexible = each.get("ExecutionClass") == "FLEX"
            yield Job(name, starts.get(name, 0.0), size * each["NumberOfWorkers"], flexible)

    def _function(self, template: Mapping[str, Any], reference: Any) -> str:
        """The function that a reference leads to, by its name or through aliases, versions and ARNs."""
        inner = next(_resources_in(reference), None)
        if inner is not None:
            return self._function(template, template["Resources"][inner]["Properties"]["FunctionName"])
        name = str(reference).partition(f":function:{self._prefix}")[2] or str(reference)
        return self._short(name.partition(":")[0])

    def _queue(self, template: Mapping[str, Any], reference: Any) -> str:
        if isinstance(reference, dict) and "Fn::Join" in reference:
            return self._short(str(reference["Fn::Join"][1][-1]).rpartition(":")[2])
        return self._short(self._resource(template, reference)["Properties"]["QueueName"])

    def _resource(self, template: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
        name = reference["Ref"] if "Ref" in reference else reference["Fn::GetAtt"][0]
        found: dict[str, Any] = template["Resources"][name]
        return found

    def _short(self, name: str) -> str:
        return name.removeprefix(self._prefix)


def _resources_in(reference: Any) -> Iterator[str]:
    """The resources of its template that a reference names."""
    if isinstance(reference, dict):
        if "Fn::GetAtt" in reference:
            yield reference["Fn::GetAtt"][0]
        elif not str(reference.get("Ref", "AWS::")).startswith("AWS::"):
            yield reference["Ref"]
        else:
            for each in reference.values():
                yield from _resources_in(each)
    elif isinstance(reference, list):
        for each in reference:
            yield from _resources_in(each)


def runs(schedule: str) -> float:
    """How often a month `rate(...)` or `cron(...)` starts something: by its hours, once in each."""
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
