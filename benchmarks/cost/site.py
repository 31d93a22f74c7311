"""The deployed plane with meters in every call that its functions and its consumers make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from benchmarks.cloud.device import Device
from benchmarks.cloud.functions import PREFIX, Invocations, invocations
from benchmarks.cloud.readers import Readers
from benchmarks.cost import idle, life, observed
from benchmarks.cost.deployment import Deployment, EventSource
from benchmarks.cost.idle import Key, Usage
from benchmarks.cost.life import Written
from benchmarks.cost.meter import Meter
from benchmarks.cost.poller import Batch, Poller, polled
from benchmarks.cost.prices import Units, scaled
from benchmarks.cost.regimes import Regime
from eventplane.archive_layout import compacted_folders
from local.demo.plane import Plane

INGEST: Final = ("ingest", "tap")
"""The queues that the rule writes to, of what is not urgent."""
INGEST_URGENT: Final = ("ingest-urgent", "tap")
LEDGER: Final = "ledger"
"""The queue that routers write the ledger to."""

_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Observed:
    """Of an average event: `units` by who causes them, what is `written` to the archive. `fill` is the
    messages of a router's batch, `usage` what an event uses in the plane."""

    units: dict[str, Units]
    written: Written
    fill: float
    usage: Usage


class Site:
    """`functions` and `consumers` are the meters, `log` is the emulator's, `production` has the sizes."""

    def __init__(
        self, plane: Plane, production: Deployment, functions: Meter, consumers: Meter, log: Path
    ) -> None:
        self._plane = plane
        self._production = production
        self._functions = functions
        self._consumers = consumers
        self._log = log
        self._lambda = plane.cloud.client("lambda")
        self._s3 = plane.cloud.client("s3")
        self._bucket = plane.outputs["ArchiveBucket"]
        self._by_queue = {each.queue: each for each in production.mappings}
        self._pollers: dict[str, Poller] = {}

    def connect(self) -> None:
        """Lead the functions' calls through their meter, let them refresh as in production, and take over the
        mappings that have a batching window there."""
        for queue in dict.fromkeys((*INGEST, *INGEST_URGENT, LEDGER)):
            source = self._by_queue.get(queue)
            if source is None:
                continue
            self._lead(source.function)
            if source.window_s:
                self._stop(source)
                self._pollers[queue] = Poller(self._plane.cloud, source)

    def run(self, regime: Regime, device: Device) -> Observed:
        """Play `regime`, and count what the plane, its consumers and what watches it use."""
        before, seen, log, objects = self._marks()
        self._functions.take()
        self._consumers.take()
        way_in, tap = INGEST_URGENT if regime.is_urgent else INGEST
        router = self._by_queue[way_in]
        with Readers(self._plane, regime.inboxes, client=self._client) as readers:
            payloads = regime.play(device, at_once=way_in in self._pollers)
            batches = self._drained(way_in, len(payloads), regime.per_s)
            batches = batches or self._settled(router, seen, payloads)
            readers.wait_for(regime.events)
        routed = len(batches)
        batches += self._drained(tap, len(payloads), regime.per_s)
        batches += self._drained(LEDGER, None, routed / regime.seconds)
        used = observed.used_since(self._plane.cloud, before)
        plane = observed.way_in(payloads) + polled(batches) + observed.compute(used, self._production)
        plane += self._functions.take()
        watching: Units = Counter()
        watching["log_gb"] = (observed.log_bytes(self._plane.cloud) - log) / 1e9  # type: ignore[assignment]
        watching["xray_trace"] = self._traces(used, regime.seconds)  # type: ignore[assignment]
        groups = {"plane": plane, "consumers": self._consumers.take(), "watching": watching}
        each = {name: scaled(units, 1 / regime.events) for name, units in groups.items()}
        series = observed.series(self._plane.cloud, used)
        return Observed(
            each,
            self._written(objects, regime.events),
            len(payloads) / routed,
            Usage(each["plane"] + each["watching"], series),
        )

    def call(self, function: str, payload: str) -> Usage:
        """Call a scheduled `function`, warm, as its schedule does."""
        self._lead(function)
        self._invoke(function, payload)
        before, _, log, _ = self._marks()
        self._functions.take()
        self._invoke(function, payload)
        used = {function: observed.used_since(self._plane.cloud, before)[function]}
        units = self._functions.take() + observed.compute(used, self._production)
        units["log_gb"] = (observed.log_bytes(self._plane.cloud) - log) / 1e9  # type: ignore[assignment]
        return Usage(units, observed.series(self._plane.cloud, used))

    def calls(self, deployments: Iterable[Deployment]) -> dict[Key, Usage]:
        """What the scheduled functions of `deployments` use."""
        keys = {each.key for of in deployments for each in of.schedules}
        return {key: self.call(*key) for key in sorted(keys)}

    def archive(self) -> tuple[Any, str]:
        """A client of S3, and the archive's bucket."""
        return self._s3, self._bucket

    def _drained(self, queue: str, messages: int | None, per_s: float) -> list[Batch]:
        """What production makes of the messages of `queue`, if its mapping is ours; waits for so many."""
        poller = self._pollers.get(queue)
        if poller is None:
            return []
        found = poller.drain(per_s)
        deadline = monotonic() + _SECONDS
        while messages is not None and sum(each.taken for each in found) < messages:
            if monotonic() > deadline:
                raise SystemExit(
                    f"{queue} has not got {messages} messages in {_SECONDS:.0f} s; see {self._log}"
                )
            found += poller.drain(per_s)
        return found

    def _settled(self, source: EventSource, before: int, payloads: list[bytes]) -> list[Batch]:
        """The batches since `before` of the emulator's own mapping, once it has worked on every publish."""
        frame = sum(map(observed.frame_bytes, payloads)) // len(payloads)
        deadline = monotonic() + _SECONDS
        while monotonic() < deadline:
            seen = observed.batches(self._log)[before:]
            mine = [number for function, number in seen if function == source.function]
            if sum(mine) >= len(payloads):
                return [Batch(source.function, number, number * frame, number) for number in mine]
            sleep(0.1)
        raise SystemExit(f"{source.function} is not done after {_SECONDS:.0f} s; see {self._log}")

    def _traces(self, used: dict[str, Invocations], seconds: float) -> float:
        functions = self._production.functions
        return sum(
            idle.traces(each.number, seconds) for name, each in used.items() if functions[name].is_traced
        )

    def _written(self, before: dict[str, int], events: int) -> Written:
        objects: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for name, length in self._objects().items():
            if name not in before:
                folder = name.partition("/")[0]
                objects[folder] += 1
                size[folder] += length
        return Written(scaled(objects, 1 / events), scaled(size, 1 / events))

    def _objects(self) -> dict[str, int]:
        return {
            each["Key"]: each["Size"]
            for folder, _ in compacted_folders()
            for page in self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder.name}/"
            )
            for each in page.get("Contents", [])
        }

    def _marks(self) -> tuple[dict[str, Invocations], int, int, dict[str, int]]:
        cloud = self._plane.cloud
        log = observed.log_bytes(cloud)
        return invocations(cloud), len(observed.batches(self._log)), log, self._objects()

    def _client(self) -> Any:
        return replace(self._plane.cloud, url=self._consumers.url).client("sqs")

    def _invoke(self, function: str, payload: str) -> None:
        answer = self._lambda.invoke(FunctionName=PREFIX + function, Payload=payload.encode())
        if answer.get("FunctionError"):
            raise SystemExit(f"{function} failed: {answer['Payload'].read()[:500]!r}")

    def _lead(self, function: str) -> None:
        name = PREFIX + function
        variables = self._lambda.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        variables |= {"AWS_ENDPOINT_URL": self._functions.url}
        if "EVENTPLANE_CONTRACT_REFRESH_S" in variables:
            refresh_s = self._production.environment.contract_refresh_s
            variables["EVENTPLANE_CONTRACT_REFRESH_S"] = str(refresh_s)
        self._lambda.update_function_configuration(FunctionName=name, Environment={"Variables": variables})

    def _stop(self, source: EventSource) -> None:
        mappings = self._lambda.list_event_source_mappings(FunctionName=PREFIX + source.function)
        for mapping in mappings["EventSourceMappings"]:
            self._lambda.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)


def life_of(seen: Observed, reads: life.Reads, deployment: Deployment) -> dict[str, Units]:
    """What an event's share of objects costs after they were written, by what it is for."""
    return {
        "reading": life.requests(seen.written, reads, deployment),
        "storage": life.storage(seen.written, reads, deployment),
    }
