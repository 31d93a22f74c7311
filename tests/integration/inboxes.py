"""Inboxes of the shared plane: each test looks for its own events, whatever others left there."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.sqs_binding import split
from local.plane import Plane
from tests.eventually import eventually

SECONDS = 60.0
"""How long an event may take on a busy machine; nothing here is about speed."""

Wanted = Callable[[Envelope], bool]


def enter(plane: Plane, sent: Envelope | bytes, *ways: str, device: str = "a", at_ms: int = 0) -> None:
    """Put what `device` sent into the queues `ways`, by default the router's, as the ingest rule does it."""
    payload = sent.json.encode() if isinstance(sent, Envelope) else sent
    at_ms = at_ms or time.time_ns() // 1_000_000
    text = frame_text(IngestFrame(payload, f"devices/{device}/outbox", device, "", at_ms))
    for way in ways or ("IngestUrl",):
        plane.cloud.client("sqs").send_message(QueueUrl=plane.outputs[way], MessageBody=text)


class Inboxes:
    """What came into the inboxes of cloud services so far. It is taken away, and kept here for all tests."""

    def __init__(self, plane: Plane) -> None:
        self._sqs = plane.cloud.client("sqs")
        self._urls = plane.inboxes
        self._came: dict[str, list[Envelope]] = defaultdict(list)

    def events(self, service: str) -> list[Envelope]:
        """Everything that came for `service`, in the order in which it was read."""
        url = self._urls[service]
        while messages := self._sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for each in messages:
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
                self._came[service] += [parse_event(text) for text in split(each["Body"])]
        return list(self._came[service])

    def find(self, service: str, wanted: Wanted, within_s: float = SECONDS) -> Envelope | None:
        """The last event that is `wanted`, None if none comes in time."""
        found: list[Envelope] = []

        def look() -> bool:
            found[:] = [each for each in self.events(service) if wanted(each)]
            return bool(found)

        return found[-1] if eventually(look, within_s, every_s=0.1) else None

    def arrives(self, service: str, event: Envelope, within_s: float = SECONDS) -> bool:
        """Whether exactly this event comes."""
        return self.find(service, lambda each: each.json == event.json, within_s) is not None

    def letter(self, wanted: Wanted, within_s: float = SECONDS) -> Envelope:
        """The dead letter that is `wanted`, which has to come to operations."""
        found = self.find("operations", lambda each: each.type == DEAD_LETTER_TYPE and wanted(each), within_s)
        assert found is not None, "no such dead letter came to operations"
        return found
