"""What a device and the cloud's routers decide of an event, by the product's own code, without a network."""

from datetime import UTC, datetime
from os import urandom

from edge.decision import Decider
from edge.interest import Interest
from edge.numbering import RecentKeys
from eventplane.contract import Contract
from eventplane.envelope import Envelope
from eventplane.ingest import IngestFrame, frame_text
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner, Step

THING = "home-1"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def decider(contract: Contract, interest: Interest | None = None) -> Decider:
    """Return what decides on the device `THING`, which has seen no event yet."""
    return Decider(contract, THING, "epoch", lambda: NOW, RecentKeys(100), interest or Interest(urandom))


def framed(event: Envelope) -> str:
    """Return the queue message in which the ingest rule hands over an `event` of `THING`."""
    return frame_text(IngestFrame(event.json.encode(), "topic", THING, "principal", 0))


def routed(contract: Contract, channel: str, body: str, attempt: int = 1) -> list[Step]:
    """Return what the router of `channel` plans for a queue message."""
    return list(Planner(contract, channel, lambda: 0.0).plan(QueueMessage("m", body, 0, attempt), 0))
