"""The deployed plane with a meter in its functions' calls, and homes below it with a real forwarder each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, monotonic_ns, sleep, time
from typing import Any, Final

from benchmarks.cloud.functions import PREFIX, Invocations, invocations
from benchmarks.cost import observed
from benchmarks.downlink.meter import DownlinkMeter
from benchmarks.downlink.updates import Update
from benchmarks.downlink.usage import DUE, METERED, PRODUCTION, PUBLISH, RECONCILER, Used, messages, used
from eventplane.downlink.table import from_item, read_request
from eventplane.fleet import FleetTable, change, made
from lambdas.downlink.devices import Presence
from local.demo.plane import Plane

_BATCH: Final = 10
_SECONDS: Final = 180.0
_WAITING: Final = tuple(f"ApproximateNumberOfMessages{each}" for each in ("", "Delayed", "NotVisible"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: calls, batches and invocations until then."""

    calls: Counter[str]
    batches: int
    invoked: dict[str, Invocations]


class Site:
    """`meter` stands before `plane`'s cloud, whose log is `log`."""

    def __init__(self, plane: Plane, meter: DownlinkMeter, log: Path) -> None:
        self.plane = plane
        self.meter = meter
        self._log = log
        self._sqs = plane.cloud.client("sqs")
        self._outbox = plane.outputs["CarersOutboxUrl"]
        self._sent = 0

    def connect(self) -> None:
        """Lead the functions' calls through the meter, with production's look at the contract."""
        functions = self.plane.cloud.client("lambda")
        for each in METERED:
            name = PREFIX + each
            variables = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
            variables |= {"AWS_ENDPOINT_URL": self.meter.url}
            if "EVENTPLANE_CONTRACT_REFRESH_S" in variables:
                variables["EVENTPLANE_CONTRACT_REFRESH_S"] = str(PRODUCTION.contract_refresh_s)
            functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})

    def register(self, thing: str) -> None:
        """Put a device on the fleet's list."""
        registry = FleetTable(self.plane.cloud.client("dynamodb"), self.plane.outputs["FleetTable"])
        new = made(thing, int(time() * 1_000))
        change(registry, thing, lambda found: found or new)

    def is_present(self, thing: str) -> bool:
        """Whether the cloud takes the device for connected."""
        dynamodb = self.plane.cloud.client("dynamodb")
        return bool(Presence(dynamodb, self.plane.outputs["PresenceTable"]).present([thing]))

    def until(self, thing: str, is_present: bool) -> None:
        """Wait until the cloud has noticed."""
        self._until(lambda: self.is_present(thing) is is_present, f"presence of {thing}")

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
        """As fast as the queue takes them, ten a request; when each was begun."""
        tens = [updates[at : at + _BATCH] for at in range(0, len(updates), _BATCH)]
        return {each: began for ten in tens for began in [self.send(ten)] for each in ten}

    def wait_stored(self, updates: Sequence[Update]) -> dict[Update, int]:
        """When the acknowledgement of each was recorded (`monotonic_ns`); waits until all have been."""
        stored = self.meter.stored
        self.meter.wait_for(lambda: all(each.stored in stored for each in updates))
        return {each: stored[each.stored] for each in updates}

    def wait_desired(self, update: Update) -> None:
        """Wait until `update` is what the table has of its key."""
        dynamodb = self.plane.cloud.client("dynamodb")
        request = read_request(self.plane.outputs["DesiredTable"], update.thing, update.sk)

        def is_there() -> bool:
            item = dynamodb.get_item(**request).get("Item")
            message = from_item(item).message if item else None
            return message is not None and message.version == update.version

        self._until(is_there, update.sk)

    def mark(self) -> Mark:
        """Now; what is used counts from here."""
        self.meter.take()
        self._sent = 0
        batches = len(observed.batches(self._log))
        return Mark(Counter(self.meter.calls), batches, invocations(self.plane.cloud))

    def used(self, mark: Mark) -> Used:
        """What was used since `mark`, with the checks of all transmissions since."""
        self.settle(mark)
        invoked = observed.used_since(self.plane.cloud, mark.invoked)
        ours = {name: each for name, each in invoked.items() if name in METERED}
        return used(self.meter.take(), self._calls(mark), self._sent, self._seen(mark), ours)

    def settle(self, mark: Mark) -> None:
        """Wait for the checks of all transmissions since `mark`: they come some seconds later."""
        transmitted = self._calls(mark)[PUBLISH]
        self._until(lambda: messages(self._seen(mark), (DUE,)) >= transmitted and self._is_idle(), "checks")

    def reconcile(self) -> None:
        """Run the reconciler once over all shares, as the schedule does."""
        functions: Any = self.plane.cloud.client("lambda")
        for share in PRODUCTION.downlink.shares:
            payload = json.dumps({"buckets": share}).encode()
            answer = functions.invoke(FunctionName=PREFIX + RECONCILER, Payload=payload)
            if "FunctionError" in answer:
                raise SystemExit(f"the reconciler failed: {answer['Payload'].read()!r}")

    def _is_idle(self) -> bool:
        """Whether no work is left for later, as of devices that have just subscribed."""
        url = self.plane.outputs["DownlinkWorkUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_WAITING))["Attributes"]
        return not any(int(found[each]) for each in _WAITING)

    def _calls(self, mark: Mark) -> Counter[str]:
        calls = Counter(self.meter.calls)
        calls.subtract(mark.calls)
        return calls

    def _seen(self, mark: Mark) -> list[tuple[str, int]]:
        return [each for each in observed.batches(self._log)[mark.batches :] if each[0] in METERED]

    def _until(self, is_true: Any, what: str) -> None:
        deadline = monotonic() + _SECONDS
        while not is_true():
            if monotonic() > deadline:
                raise SystemExit(f"{what}: waited {_SECONDS:.0f} s in vain; see {self._log}")
            sleep(0.1)
