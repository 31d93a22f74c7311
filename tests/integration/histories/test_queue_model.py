"""The simulator's queues do what the emulated cloud's do: the same scenarios over both."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from local.cloud import CloudEndpoint
from local.histories.cloud import Cloud
from local.histories.engine import Engine
from local.histories.wires import Weather
from tests.eventually import eventually
from tests.plane import shipped_contract

RECEIVES: Final = 3
"""Receives before the dead-letter queue."""

LONG_S: Final = 3_600
"""A visibility timeout that does not end within a scenario."""

Passes = Callable[[Callable[[], bool]], None]
"""Lets a second pass, or waits until something is true that is so by then."""


class Scenario:
    """What a sender and a reader of a queue observe, drawn from a seed."""

    def __init__(self, seed: int, sqs: Any, passes: Passes) -> None:
        self.observed: list[str] = []
        self._random = random = Random(seed)
        self._sqs, self._passes = sqs, passes
        self._is_fifo = bool(seed % 2)
        suffix, kind = (".fifo", {"FifoQueue": "true"}) if self._is_fifo else ("", {})
        self._dead = sqs.create_queue(QueueName=f"model-{seed}-dlq{suffix}", Attributes=kind)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=self._dead, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES})
        attributes = {"RedrivePolicy": policy, "VisibilityTimeout": str(LONG_S), **kind}
        self._url = sqs.create_queue(QueueName=f"model-{seed}{suffix}", Attributes=attributes)["QueueUrl"]
        self._held: dict[str, str] = {}
        for number in range(16):
            step = random.choice(
                (*4 * ("send", "receive"), "send_batch", "delete", "delete", "show", "expire")
            )
            self.observed.append(step)
            getattr(self, f"_{step}")(number)
            self.observed.append(f"  {self._counts(self._url)} dead {self._counts(self._dead)}")
        self.observed.append(f"dead: {self._bodies(self._dead, LONG_S)}")

    def _message(self, body: str) -> dict[str, Any]:
        random, message = self._random, {"MessageBody": body}
        if self._is_fifo:
            copies = random.choice((body, body, f"copy {random.choice('12')}"))
            message |= {"MessageGroupId": random.choice("xyz"), "MessageDeduplicationId": copies}
        return message

    def _send(self, number: int) -> None:
        self._sqs.send_message(QueueUrl=self._url, **self._message(f"{number}"))

    def _send_batch(self, number: int) -> None:
        entries = [
            {"Id": str(at), **self._message(f"{number}.{at}")} for at in range(self._random.randint(1, 4))
        ]
        answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
        self.observed.append(f"  sent {[each['Id'] for each in answer['Successful']]}")

    def _receive(self, _: int) -> None:
        self.observed.append(f"  received {self._bodies(self._url, LONG_S)}")

    def _expire(self, _: int) -> None:
        """Receive with a timeout that passes: what was received is to be seen again."""
        before, held = self._counts(self._url), dict(self._held)
        self.observed.append(f"  received {self._bodies(self._url, 1)}")
        self._held = held
        self._passes(lambda: self._counts(self._url)[1] == before[1])

    def _bodies(self, url: str, visibility_s: int) -> list[str]:
        named = {"MessageSystemAttributeNames": ["ApproximateReceiveCount", "MessageGroupId"]}
        answer = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=visibility_s, **named
        )
        found: list[str] = []
        for each in answer.get("Messages", []):
            self._held[each["Body"]] = each["ReceiptHandle"]
            system = each["Attributes"]
            found.append(
                f"{each['Body']} of {system.get('MessageGroupId')} #{system['ApproximateReceiveCount']}"
            )
        # Only FIFO queues have an order.
        return found if self._is_fifo else sorted(found)

    def _take(self, most: int) -> list[dict[str, Any]]:
        """Some of the messages in flight, as entries of a batch."""
        taken = self._random.sample(sorted(self._held), min(len(self._held), most))
        return [{"Id": str(at), "ReceiptHandle": self._held.pop(each)} for at, each in enumerate(taken)]

    def _delete(self, _: int) -> None:
        if entries := self._take(self._random.randint(1, 3)):
            answer = self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
            self.observed.append(f"  deleted {sorted(each['Id'] for each in answer['Successful'])}")

    def _show(self, _: int) -> None:
        """Make messages visible, in one batch with a handle that there never was.

        All of a FIFO queue: of a group that is in flight the emulator moves others to the dead-letter queue.
        """
        entries = self._take(9 if self._is_fifo else self._random.randint(1, 3))
        entries.append({"Id": "bad", "ReceiptHandle": "none"})
        answer = self._sqs.change_message_visibility_batch(
            QueueUrl=self._url, Entries=[{**each, "VisibilityTimeout": 0} for each in entries]
        )
        for outcome in ("Successful", "Failed"):
            told = sorted((each["Id"], each.get("Code", "")) for each in answer.get(outcome, []))
            self.observed.append(f"  {outcome} {told}")

    def _counts(self, url: str) -> tuple[int, int]:
        """How many messages are visible, and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


def until(is_true: Callable[[], bool]) -> None:
    assert eventually(is_true, every_s=0.05)


@pytest.mark.parametrize("seed", range(40))
def test_clients_observe_the_same(emulator: CloudEndpoint, seed: int) -> None:
    engine = Engine()
    model = Cloud(engine, shipped_contract(), Weather(engine, Random(0)), [])
    simulated = Scenario(seed, model.sqs, lambda _: engine.run(engine.now_s + 1.0)).observed
    assert simulated == Scenario(seed, emulator.client("sqs"), until).observed
