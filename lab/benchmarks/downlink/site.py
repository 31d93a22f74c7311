"""The deployed plane with a meter in the calls of the way down, and what an update uses."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from eventplane.contract import Downlink
from eventplane.downlink.table import sort_key
from eventplane.envelope import write_event
from eventplane_aws.prices import Units
from lab.benchmarks.cost.deployment import PricedPlane
from lab.benchmarks.cost.meter import DYNAMODB, PUBLISH, Meter
from lab.benchmarks.cost.metered import Mark, MeteredBatch, MeteredPlane, compute, polled, way_in
from lab.plane import THRESHOLD, Plane

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
