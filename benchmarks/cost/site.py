"""The deployed plane with meters in every call that its functions and its consumers make."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from benchmarks.cloud.device import Device
from benchmarks.cloud.functions import PREFIX, invocations
from benchmarks.cloud.readers import Readers
from benchmarks.cost import observed
from benchmarks.cost.meter import Meter
from benchmarks.cost.prices import Units, scaled
from benchmarks.cost.regimes import ARCHIVE_WRITER, PRODUCTION, ROUTER, Regime
from local.demo.plane import Plane

METERED: Final = (ROUTER, f"{ROUTER}-urgent", ARCHIVE_WRITER)
_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Observed:
    """`units` of an average event, by who causes them; `fill` is the messages of a router's batch."""

    units: dict[str, Units]
    fill: float


class Site:
    """`functions` and `consumers` are the meters; `log` is the emulator's."""

    def __init__(self, plane: Plane, functions: Meter, consumers: Meter, log: Path) -> None:
        self._plane = plane
        self._functions = functions
        self._consumers = consumers
        self._log = log
        self._lambda = plane.cloud.client("lambda")

    def connect(self) -> None:
        """Lead the functions' calls through their meter, and let them do as in production what costs."""
        for each in METERED:
            name = PREFIX + each
            variables = self._lambda.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
            variables |= {"AWS_ENDPOINT_URL": self._functions.url}
            if "EVENTPLANE_CONTRACT_REFRESH_S" in variables:
                variables["EVENTPLANE_CONTRACT_REFRESH_S"] = str(PRODUCTION.contract_refresh_s)
            self._lambda.update_function_configuration(
                FunctionName=name, Environment={"Variables": variables}
            )

    def run(self, regime: Regime, device: Device) -> Observed:
        """Play `regime`, and count what the plane, its consumers and what watches it use."""
        earlier, batches, log = self._marks()
        self._functions.take()
        self._consumers.take()
        for each in regime.held:
            self._map(each, Enabled=False)
        with Readers(self._plane, regime.inboxes, client=self._client) as readers:
            payloads = regime.play(device)
            for name, messages in regime.held.items():
                self._map(name, Enabled=True, BatchSize=messages, MaximumBatchingWindowInSeconds=1)
            readers.wait_for(regime.events)
            seen = self._settled(batches, len(payloads))
        if ROUTER in regime.held:
            self._map(ROUTER, BatchSize=PRODUCTION.router.batch_size)
        used = observed.used_since(self._plane.cloud, earlier)
        frame = sum(map(observed.frame_bytes, payloads)) // len(payloads)
        plane = observed.way_in(payloads) + observed.pollers(seen, frame) + observed.compute(used)
        spared = observed.spared(seen, regime.held)
        invoked = sum(each.number for each in used.values()) - spared
        plane += self._functions.take()
        plane["lambda_request"] -= spared
        plane["s3_put"] -= spared  # each writes one object an invocation
        watching: Units = Counter()
        watching["log_gb"] = (observed.log_bytes(self._plane.cloud) - log) / 1e9  # type: ignore[assignment]
        watching["xray_trace"] = invoked * observed.TRACED  # type: ignore[assignment]
        groups = {"plane": plane, "consumers": self._consumers.take(), "watching": watching}
        routed = [(function, messages) for function, messages in seen if function.startswith(ROUTER)]
        return Observed(
            {name: scaled(units, 1 / regime.events) for name, units in groups.items()},
            len(payloads) / (len(routed) - observed.spared(routed, regime.held)),
        )

    def _marks(self) -> tuple[dict[str, Any], int, int]:
        cloud = self._plane.cloud
        return invocations(cloud), len(observed.batches(self._log)), observed.log_bytes(cloud)

    def _client(self) -> Any:
        return replace(self._plane.cloud, url=self._consumers.url).client("sqs")

    def _settled(self, before: int, publishes: int) -> list[tuple[str, int]]:
        """The batches since `before`, once both ways behind the rule have worked on every publish."""
        deadline = monotonic() + _SECONDS
        while monotonic() < deadline:
            seen = observed.batches(self._log)[before:]
            if sum(messages for _, messages in seen) >= 2 * publishes:
                return seen
            sleep(0.1)
        raise SystemExit(f"the archive writer is not done after {_SECONDS:.0f} s; see {self._log}")

    def _map(self, function: str, **settings: Any) -> None:
        """Change the function's event source mapping."""
        mappings = self._lambda.list_event_source_mappings(FunctionName=PREFIX + function)
        (mapping,) = mappings["EventSourceMappings"]
        self._lambda.update_event_source_mapping(UUID=mapping["UUID"], **settings)
