"""The part of a story that is about order: a service with FIFO queues, and an inbox whose reader sorts."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cache
from random import Random
from typing import Final

from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.envelope import Envelope, write_event
from eventplane.sqs_binding import to_message
from lab.histories.cloud import CloudModel
from lab.histories.story import ORDERED_INBOX, SERVICES_ROUTER, WATCH, Story, StoryStep

ROUND: Final = "org.eventplane.round.v1"
AGAIN_S: Final = 2.0
"""How long the watch waits before it sends again what SQS did not take."""

_SHARE: Final = 0.3
_PROGRAMS: Final = (SERVICES_ROUTER, f"{WATCH}-0", f"{WATCH}-1", f"{ORDERED_INBOX}-0", f"{ORDERED_INBOX}-1")


@cache
def ordered(contract: Contract) -> Contract:
    """Return `contract` with a night watch, who writes to itself, and with an inbox that is sorted."""
    document = contract_document(contract)
    box = {"transport": "sqs_fifo", "ordering": "source"}
    document["participants"][WATCH] = {
        "kind": "cloud_service",
        "description": "Somebody is awake.",
        "inbox": box,
        "outbox": box,
        "sends": [ROUND],
    }
    inbox = document["participants"][ORDERED_INBOX]["inbox"]
    inbox["ordering"] = "source"
    inbox.pop("events_per_message", None)  # a reader that sorts gives back single events
    document["event_types"][ROUND] = {"description": "Somebody was there."}
    document["routes"][f"rounds-to-{WATCH}"] = {"filter": {"exact": {"type": ROUND}}, "to": f"{WATCH}.inbox"}
    return compile_contract(document, "ordered")


def with_order(seed: int, story: Story) -> Story:
    """Return `story`, of some seeds with rounds of the night watch and faults on their way."""
    random = Random(f"{seed} in order")
    if random.random() >= _SHARE:
        return story
    lasts_s = max(each.at_s for each in story.decisions)

    def at_s() -> float:
        return round(random.uniform(5.0, lasts_s), 2)

    decisions = [StoryStep(at_s(), "round", WATCH, random.randrange(1, 4)) for _ in range(8)]
    decisions += [
        StoryStep(at_s(), random.choice(("lose-answer", "refuse", "die")), each, random.randint(1, 6))
        for each in random.sample(_PROGRAMS, 2)
    ]
    if random.random() < 0.5:
        down_s = round(random.uniform(5.0, 200.0), 2)
        decisions.append(StoryStep(at_s(), random.choice(("reader-kill", "dependency-down")), WATCH, down_s))
    return replace(story, is_ordered=True, decisions=tuple(sorted((*story.decisions, *decisions))))


class NightWatch:
    """Sends rounds over its FIFO outbox, each after the one before. `sent` are all that SQS took."""

    def __init__(self, cloud: CloudModel) -> None:
        self.sent: list[Envelope] = []
        self._cloud = cloud
        self._waiting: deque[Envelope] = deque()

    @property
    def is_busy(self) -> bool:
        """True if SQS has not taken all."""
        return bool(self._waiting)

    def go_round(self, number: int) -> None:
        """Say that round `number` was made."""
        id = f"round-{len(self.sent) + len(self._waiting)}"
        self._waiting.append(write_event({"id": id, "source": f"/{WATCH}/{number}", "type": ROUND}, {}))
        if len(self._waiting) == 1:
            self._send()

    def _send(self) -> None:
        cloud = self._cloud
        while self._waiting and "sqs" not in cloud.weather.down:
            event = self._waiting.popleft()
            cloud.sqs.send_message(
                QueueUrl=cloud.outboxes[WATCH],
                MessageBody=to_message(event, {}).body,
                MessageGroupId=event.source,
                MessageDeduplicationId=event.id,
            )
            self.sent.append(event)
        if self._waiting:
            cloud.engine.after(AGAIN_S, self._send)
