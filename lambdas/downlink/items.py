"""The one way to change a desired state, and the queue of work for later.

An item is read, decided on and written, unless somebody else wrote meanwhile; then the effects follow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.dead_letter import Refusal, letter_id
from eventplane.downlink.desired import Desired, Ended, Phase
from eventplane.downlink.transitions import Transition
from eventplane.envelope import parse_event
from eventplane.errors import EventPlaneError
from eventplane.reasons import Outcome
from eventplane.records import ATTEMPTS, Records
from eventplane.topics import device_topic
from eventplane_aws.rules import SQS_DELAY
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.dead_letters import DeadLetterWriter
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.system import Clock

PACE_S: Final = 1
"""Between two pages of what goes out to one device, seconds."""

PAGE: Final = 25
"""Events of one such page. Ours: a quarter of what IoT Core gives a connection in a second; the device has to
commit each."""


class WorkQueue:
    """The queue at `url`, through a boto3 SQS client."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def check(self, thing: str, sk: str, delay_ms: int) -> None:
        """Have one item looked at. Never raises: what nobody checks, the reconciler finds by its time."""
        try:
            self._send({"check": {"thing": thing, "sk": sk}}, math.ceil(max(delay_ms, 0) / 1_000))
        except (ClientError, BotoCoreError) as error:
            logger.warning("no check; the reconciler will look", device=thing, sk=sk, error=str(error))

    def resend(self, thing: str, since_ms: int, sks: Sequence[str], delay_s: int) -> None:
        """Have items looked at for a device that subscribed. Raises botocore's errors."""
        self._send({"resend": {"thing": thing, "since_ms": since_ms, "sks": sks}}, delay_s)

    def forget(self, thing: str, epoch: str, sks: Sequence[str] | None = None, delay_s: int = 0) -> None:
        """Have items, or all, of a device that began a new life looked at. Raises botocore's errors."""
        self._send({"forget": {"thing": thing, "epoch": epoch, "sks": sks}}, delay_s)

    def reset(self, order: Mapping[str, Any]) -> None:
        """Go on with a reset. Raises botocore's errors."""
        self._send(order, 0)

    def _send(self, work: Mapping[str, Any], delay_s: int) -> None:
        body = json.dumps(work, ensure_ascii=False, separators=(",", ":"))
        self._client.send_message(
            QueueUrl=self._url, MessageBody=body, DelaySeconds=min(delay_s, SQS_DELAY.most)
        )


RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No item is begun with less time left, milliseconds: two of its calls at their worst. What a timeout cuts
off comes again, and repeating it changes nothing."""

Decision = Callable[[Desired | None, int], Transition]
"""What becomes of an item, if there is one, at a time in Unix milliseconds."""


class NotChangedError(EventPlaneError):
    """The item `sk` of `thing` could not be changed for now."""

    thing: str
    sk: str
    problem: str
    message = "{sk!r} of {thing!r}: {problem}; its message is redelivered"


class Items:
    """Changes `table`; `data` is a boto3 client of iot-data."""

    def __init__(
        self, *, table: Records[Desired], data: Any, work: WorkQueue, letters: DeadLetterWriter, clock: Clock
    ) -> None:
        self._table = table
        self._data = data
        self._work = work
        self._letters = letters
        self._clock = clock

    def change(self, thing: str, sk: str, decide: Decision) -> Transition:
        """Let `decide` say what becomes of the item, and see to it.

        In this order, so that a crash anywhere loses nothing: dead letters, the write, the transmission, its
        check. Raises `NotChangedError`, what `decide` raises, botocore's errors.
        """
        is_doubtful = False
        for _ in range(ATTEMPTS):
            item, now_ms = self._table.read(thing, sk), self._clock()
            step = decide(item, now_ms)
            for ended in step.ended:
                self._end(thing, sk, ended)
            if step.publish is None and step.item == item:
                if is_doubtful and item is not None and item.due_at_ms is not None:
                    self._work.check(thing, sk, item.due_at_ms - now_ms)
                return step
            if self._stored(item, step):
                self._follow(thing, sk, step, now_ms)
                return step
            # Our write may have succeeded with its answer lost, before another's: then no call transmits.
            is_doubtful |= step.publish is not None
        raise NotChangedError(thing, sk, "others keep writing it")

    def _stored(self, item: Desired | None, step: Transition) -> bool:
        if step.item is not None:
            return self._table.write(step.item) is not None
        return item is None or self._table.remove(item)

    def give_up(self, thing: str, text: str, refusal: Refusal) -> None:
        """The event `text` will never be delivered to `thing`. Raises `NotChangedError`."""
        event = parse_event(text)
        id = f"{letter_id(*event.key)}.{thing}"  # one event can be for many devices
        told = Refusal(refusal.reason, f"{thing}: {refusal.detail}")
        if not self._letters.write(id, text, event, told):
            raise NotChangedError(thing, event.id, "its dead letter could not be sent")
        count(Count.DEAD_LETTERED)

    def _end(self, thing: str, sk: str, ended: Ended) -> None:
        """What is not delivered any more; nobody needs a letter about what came too late."""
        message = ended.message
        if ended.reason != Outcome.EXPIRED:
            self.give_up(thing, message.text, Refusal(ended.reason, ended.detail))
            return
        count(Count.EXPIRED)
        logger.info("expired", device=thing, sk=sk, event_source=message.source, event_id=message.id)

    def _follow(self, thing: str, sk: str, step: Transition, now_ms: int) -> None:
        item = step.item
        if item is not None and item.state is Phase.PARKED:
            count(Count.PARKED)
            logger.warning("a device that is there acknowledges nothing", device=thing, sk=sk)
        if step.publish is None or item is None:
            return
        try:
            self._data.publish(topic=device_topic(thing, "inbox"), qos=1, payload=step.publish.encode())
            count(Count.TRANSMITTED)
        except (ClientError, BotoCoreError) as error:
            # It counts as a transmission: the check repeats it.
            count(Count.NOT_TRANSMITTED)
            logger.warning("not transmitted", device=thing, sk=sk, error=str(error))
        if item.due_at_ms is not None:
            self._work.check(thing, sk, item.due_at_ms - now_ms)
