"""`python -m lab.benchmarks.downlink`: the way down in the local cloud; writes build/bench/downlink.json.

With real forwarders: updates a second, latency, requests and price, and coalescing."""

import json
import sys
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.table import sort_key
from eventplane.envelope import write_event
from eventplane_aws.prices import Units, dollars, listed, scaled
from lab.benchmarks.cloud.plane import deployed_plane
from lab.benchmarks.cost.deployment import PricedPlane
from lab.benchmarks.cost.metered import (
    DYNAMODB,
    PUBLISH,
    Mark,
    Meter,
    MeteredBatch,
    MeteredPlane,
    compute,
    polled,
    way_in,
)
from lab.benchmarks.results import Benchmark, Figure, percentiles
from lab.plane import THRESHOLD, Plane
from tests.integration.downlink import Home, running_home

SENDER: Final = "carers"
DEVICE_ROUTERS: Final = ("router-device", "router-device-urgent")
DUE: Final = "downlink-due"
METERED: Final = (
    "router-services",
    *DEVICE_ROUTERS,
    "downlink-desired",
    "downlink-answers",
    DUE,
    "downlink-reconciler",
)
"""All that an update meets on its way down and its acknowledgement on its way up, without the archive."""

_BATCH: Final = 10
_MESSAGE_BYTES: Final = 1_024
_PATIENCE_S: Final = 180.0
_WAITING: Final = tuple(f"ApproximateNumberOfMessages{each}" for each in ("", "Delayed", "NotVisible"))
_NAMES: Final = {PUBLISH: "Publish", "PUT": "PutObject"}

Stored = tuple[str, str, int]
"""Thing, sort key and version of a state that its device has stored."""


@dataclass(frozen=True, slots=True)
class Update:
    """A new threshold for a device; its sort key is `sk`."""

    thing: str
    key: str
    version: int

    @property
    def sk(self) -> str:
        return sort_key(Downlink.STATE, self.key)

    @property
    def stored(self) -> Stored:
        """Return it as the meter notes it."""
        return self.thing, self.sk, self.version

    def text(self) -> str:
        """The event, as a carers' service writes it."""
        attributes = {
            "id": f"{self.thing}-{self.key}-{self.version}",
            "source": f"/{SENDER}",
            "type": THRESHOLD,
            "todevice": self.thing,
            "statekey": self.key,
            "stateversion": str(self.version),
        }
        return write_event(attributes, {"reading": "pulse", "high": self.version}).json


class DownlinkMeter(Meter):
    """`stored` has when each acknowledgement was written (`monotonic_ns`)."""

    def __init__(self, upstream: str) -> None:
        # One message from the cloud to the broker, one from there to the device.
        super().__init__(upstream, publish=Units({"iot_message": 2}))
        self.stored: dict[Stored, int] = {}
        self._tick = threading.Condition(self._lock)

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Wait until `is_done`, which looks at `stored`; nothing written for three minutes ends the run."""
        with self._tick:
            while not is_done():
                if not self._tick.wait(_PATIENCE_S):
                    raise SystemExit("devices do not answer any more; see the run's logs")

    def count(self, action: str, request: bytes, answer: bytes) -> None:
        """Add a call, and note what it records."""
        now = monotonic_ns()
        super().count(action, request, answer)
        if action == f"{DYNAMODB}PutItem" and b"__type" not in answer:
            item: dict[str, Any] = json.loads(request)["Item"]
            version = item.get("acknowledged_version")
            if version is not None:
                self.stored.setdefault((item["thing"]["S"], item["sk"]["S"], int(version["N"])), now)
        self._tick.notify_all()


@dataclass(frozen=True, slots=True)
class Used:
    """Billable `units`; `requests` to APIs, by what they ask."""

    units: Units
    requests: Counter[str]


class DownlinkSite(MeteredPlane):
    """The plane of a run, and homes below it with a real forwarder each."""

    meter: DownlinkMeter

    def __init__(self, plane: Plane, production: PricedPlane, meter: DownlinkMeter, log: Path) -> None:
        super().__init__(plane, production, meter, log)
        self._sqs = plane.cloud.client("sqs")
        self._outbox = plane.outputs["CarersOutboxUrl"]
        self._sent = 0
        for each in METERED:
            self.meter_calls(each)

    def until(self, thing: str, *, is_present: bool) -> None:
        """Wait until the cloud has noticed that the device is there, or that it is not."""
        self.wait(lambda: bool(self.plane.present([thing])) is is_present, f"presence of {thing}")

    def send(self, updates: Sequence[Update]) -> int:
        """Put up to ten into the sender's outbox with one request; when it was begun (`monotonic_ns`)."""
        began = monotonic_ns()
        entries = [{"Id": str(at), "MessageBody": each.text()} for at, each in enumerate(updates)]
        answer = self._sqs.send_message_batch(QueueUrl=self._outbox, Entries=entries)
        if answer.get("Failed"):
            raise SystemExit(f"the emulator refused updates: {answer['Failed']}")
        self._sent += 1
        return began

    def send_all(self, updates: Sequence[Update]) -> dict[Update, int]:
        """Send all as fast as the queue takes them, ten a request; return when each was begun."""
        tens = [updates[at : at + _BATCH] for at in range(0, len(updates), _BATCH)]
        return {each: began for ten in tens for began in [self.send(ten)] for each in ten}

    def wait_stored(self, updates: Sequence[Update]) -> dict[Update, int]:
        """When the acknowledgement of each was recorded (`monotonic_ns`); waits until all have been."""
        stored = self.meter.stored
        self.meter.wait_for(lambda: all(each.stored in stored for each in updates))
        return {each: stored[each.stored] for each in updates}

    def wait_desired(self, update: Update) -> None:
        """Wait until `update` is what the table has of its key."""
        self.wait(lambda: self.plane.waits(update.thing, update.key, update.version), update.sk)

    def mark(self) -> Mark:
        """Now; what is used counts from here."""
        self._sent = 0
        return super().mark()

    def transmissions(self, mark: Mark) -> int:
        """Publishes to devices since `mark`."""
        return self.calls(mark)[PUBLISH]

    def used(self, mark: Mark) -> Used:
        """Return the use since `mark`, with the checks of all transmissions since."""
        self.settle(mark)
        batches = self._metered(mark)
        invoked = {name: each for name, each in self.invoked(mark).items() if name in METERED}
        published = _messages(batches, DEVICE_ROUTERS)
        polling = polled(batches)
        way_up = way_in([b""] * published)  # each is below 5 KB
        units = self.meter.take() + way_up + polling + compute(invoked, self.production.functions)
        units["sqs_request"] += self._sent
        calls = {_NAMES.get(name, name.rpartition(".")[2]): n for name, n in self.calls(mark).items() if n}
        others = {"by the sender": self._sent, "by the rule": 2 * published}
        return Used(units, Counter({**calls, **others, "by pollers": polling["sqs_request"]}))

    def settle(self, mark: Mark) -> None:
        """Wait for the checks of all transmissions since `mark`: they come some seconds later."""

        def is_settled() -> bool:
            checked = _messages(self._metered(mark), (DUE,))
            return checked >= self.transmissions(mark) and self._is_idle()

        self.wait(is_settled, "checks")

    def _is_idle(self) -> bool:
        """Whether no work is left for later, as of devices that have just subscribed."""
        url = self.plane.outputs["DownlinkWorkUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_WAITING))["Attributes"]
        return not any(int(found[each]) for each in _WAITING)

    def _metered(self, mark: Mark) -> list[MeteredBatch]:
        return [each for each in self.batches(mark, _MESSAGE_BYTES) if each.function in METERED]


def _messages(batches: Sequence[MeteredBatch], functions: Sequence[str]) -> int:
    """How many of them `functions` had."""
    return sum(each.messages for each in batches if each.function in functions)


HOW = (
    "wall clock; emulator, functions, forwarders and meter share the machine; requests counted by the meter "
    "and in the emulator's log, functions priced for as long as they ran here; without the archive's writer"
)

MILLION: Final = 1e6
PROBES_PER_S: Final = 2
ONE_KEY_PER_S: Final = 10
"""Updates a second to one key."""

STORED: Final = "from before the sender's request until the device's acknowledgement is recorded in the table"

UNIT: Final = "sent/update"

_KEYS = count()
_VERSIONS = count(1)


def updates(options: Namespace) -> Iterator[Figure]:
    """Measure all with `options.homes` forwarders below one plane."""
    production = PricedPlane("prod")
    with ExitStack() as stack:
        run = stack.enter_context(deployed_plane())
        meter = stack.enter_context(DownlinkMeter(run.plane.cloud.url))
        site = DownlinkSite(run.plane, production, meter, run.log)
        homes: list[Home] = []
        for name in (f"bench-{number}" for number in range(options.homes)):
            run.plane.register(name)
            running = running_home(run.plane, run.supervisor, run.directory / name, name)
            homes.append(stack.enter_context(running))
            site.until(name, is_present=True)
        burst(site, homes, 20)  # for the cold starts, which are not what an average update meets
        yield from burst(site, homes, options.updates)
        yield from single(site, homes, options.probes)
        yield from coalescing(site, homes[0], options.seconds)


def burst(site: DownlinkSite, homes: Sequence[Home], updates: int) -> list[Figure]:
    """Send as fast as it goes, each update to a key of its own: nothing can be coalesced."""
    mark = site.mark()
    wanted = _new_keys(homes, updates)
    began = site.send_all(wanted)
    stored = site.wait_stored(wanted)
    seconds = (max(stored.values()) - min(began.values())) / 1e9
    note = f"{updates} updates to as many keys of {len(homes)} devices that are there, sent ten a request"
    rate = Figure("updates", updates / seconds, "updates/s", note=f"{note}; until the last is stored")
    return [rate, *_bill("burst", site.used(mark), updates, note)]


def single(site: DownlinkSite, homes: Sequence[Home], probes: int) -> list[Figure]:
    """One update after the other, at a pace that leaves no queue."""
    mark = site.mark()
    wanted = _new_keys(homes, probes)
    began = {}
    for each in wanted:
        began[each] = site.send([each])
        sleep(1 / PROBES_PER_S)
    stored = site.wait_stored(wanted)
    times = [(stored[each] - began[each]) / 1e6 for each in wanted]
    note = f"{probes} updates, {PROBES_PER_S}/s, to as many keys of {len(homes)} devices that are there"
    return [
        *percentiles("latency_{}", times, "ms", f"{note}; {STORED}"),
        *_bill("single", site.used(mark), probes, note),
    ]


def coalescing(site: DownlinkSite, home: Home, seconds: float) -> list[Figure]:
    """Many updates to one key, while its device is there and while it is away."""
    mark = site.mark()
    wanted = list(_paced(site, home, seconds))
    site.wait_stored(wanted[-1:])
    present, updates = site.transmissions(mark), len(wanted)
    note = f"{updates} updates, {ONE_KEY_PER_S}/s, to one key"
    bill = _bill("one_key", site.used(mark), updates, f"{note} of a device that is there")
    home.forwarder.stop()
    site.until(home.name, is_present=False)
    mark = site.mark()
    wanted = list(_paced(site, home, seconds))
    site.wait_desired(wanted[-1])
    away = site.transmissions(mark)
    home.forwarder.start()
    site.wait_stored(wanted[-1:])
    returned = site.transmissions(mark)
    site.settle(mark)
    note += "; would be 1 without coalescing"
    return [
        Figure("coalesced_present", present / updates, UNIT, note=f"{note}; the device is there"),
        Figure("coalesced_away", away / updates, UNIT, note=f"{note}; the device is away"),
        Figure("coalesced_returned", returned / updates, UNIT, note=f"as away, then back: {returned} in all"),
        *bill,
    ]


def _paced(site: DownlinkSite, home: Home, seconds: float) -> Iterator[Update]:
    """One key's updates, sent at their pace."""
    key = f"threshold/bench/{next(_KEYS)}"
    for _ in range(round(seconds * ONE_KEY_PER_S)):
        update = Update(home.name, key, next(_VERSIONS))
        began = site.send([update])
        yield update
        sleep(max(0.0, 1 / ONE_KEY_PER_S - (monotonic_ns() - began) / 1e9))


def _new_keys(homes: Sequence[Home], number: int) -> list[Update]:
    """Updates to keys of their own, the devices in turn."""
    return [
        Update(homes[at % len(homes)].name, f"threshold/bench/{next(_KEYS)}", next(_VERSIONS))
        for at in range(number)
    ]


def _bill(name: str, used: Used, updates: int, note: str) -> list[Figure]:
    """Requests and US dollars of what was `used` for `updates`."""
    requests = sum(used.requests.values()) / updates
    cost = MILLION * dollars(used.units) / updates
    by_call = ", ".join(f"{name} {number / updates:.3g}" for name, number in sorted(used.requests.items()))
    note = f"an update: {by_call}; {note}"
    priced = f"list prices; units an update: {listed(scaled(used.units, 1 / updates))}"
    return [
        Figure(f"{name}_requests", requests, "requests", note=note),
        Figure(f"{name}_cost", cost, "USD/M", note=priced),
    ]


BENCHMARK = Benchmark(
    "downlink",
    {"updates": updates},
    HOW,
    {
        "--homes": {"type": int, "default": 2, "help": "devices, a forwarder process each"},
        "--updates": {"type": int, "default": 200, "help": "of the throughput run"},
        "--probes": {"type": int, "default": 60, "help": "of the latency run"},
        "--seconds": {"type": float, "default": 20, "help": "of each coalescing run"},
    },
    notes_load=True,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
