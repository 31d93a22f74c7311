"""Plan, send, write the ledger, and only then say which messages are done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract, ParticipantKind, Place, Priority
from eventplane.errors import EventPlaneError
from eventplane.ledger import LEDGER, to_line
from eventplane.sqs_binding import SqsMessage, to_message
from lambdas.common.archive import Archive
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.clock import Clock
from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage
from lambdas.common.sqs import SqsSender, batches
from lambdas.router.planner import Planner, Step

RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch and the ledger at their worst."""


class UnsupportedDestinationError(EventPlaneError):
    """A route of the cloud leads where this router cannot write. `route` and `destination` say which."""

    def __init__(self, route: str, destination: str) -> None:
        super().__init__(
            f"route {route!r} leads to {destination!r}, for which there is no queue; "
            "lead it to a cloud service's inbox, and deploy the messaging stack"
        )
        self.route = route
        self.destination = destination


class RouterService:
    """Routes what comes over the channel `source`. Keeps nothing between two calls.

    `queues` gives the queue URL of each destination. Raises `UnsupportedDestinationError`.
    """

    def __init__(
        self,
        *,
        contract: Contract,
        source: str,
        queues: Mapping[str, str],
        sender: SqsSender,
        archive: Archive,
        clock: Clock,
    ) -> None:
        for route in contract.routes_at(Place.CLOUD):
            target = contract.participants[contract.channel(route.destination).participant]
            if target.kind is not ParticipantKind.CLOUD_SERVICE or route.destination not in queues:
                raise UnsupportedDestinationError(route.name, route.destination)
        self._contract = contract
        self._planner = Planner(contract, source)
        self._queues = queues
        self._sender = sender
        self._archive = archive
        self._clock = clock

    def process(
        self, messages: Sequence[QueueMessage], *, invocation_id: str, remaining_ms: Callable[[], int]
    ) -> frozenset[str]:
        """Route `messages`; the ids of those that have to come again.

        What was sent of a message that comes again will be sent a second time, and the ledger has both.
        """
        steps, failed = self._plan(messages)
        sent, unsent = self._send([step for step in steps if step.event], remaining_ms)
        failed |= {step.record.message_id for step in unsent}
        # A message that comes again is decided again: until then only what was really sent is a fact.
        decided = [step for step in steps if not step.event and step.record.message_id not in failed]
        facts = sent + decided
        if not self._write(facts, invocation_id):
            return frozenset(message.id for message in messages)
        outcomes = Counter(step.record.outcome.value for step in facts)
        logger.info("routed", messages=len(messages), failed=len(failed), outcomes=dict(outcomes))
        return frozenset(failed)

    def _plan(self, messages: Iterable[QueueMessage]) -> tuple[list[Step], set[str]]:
        now_ms = self._clock()
        steps: list[Step] = []
        failed: set[str] = set()
        for message in messages:
            try:
                # Whole or not at all: `+=` would keep, and send each time, what came before the defect.
                steps += list(self._planner.plan(message, now_ms))
            except Exception:  # noqa: BLE001 - a defect met by one message must not take the others with it
                logger.exception("planning failed", message_id=message.id)
                failed.add(message.id)
        return steps, failed

    def _send(self, steps: Iterable[Step], remaining_ms: Callable[[], int]) -> tuple[list[Step], list[Step]]:
        """Send in batches across messages, what is urgent first; the steps that were sent and those not."""
        sent: list[Step] = []
        unsent: list[Step] = []
        for destination, waiting in _by_destination(steps):
            for batch in batches([_message(step) for step in waiting]):
                tried, waiting = waiting[: len(batch)], waiting[len(batch) :]
                if remaining_ms() < RESERVE_MS:
                    taken = [False] * len(batch)
                else:
                    taken = self._sender.send(self._queues[destination], batch)
                for step, was_taken in zip(tried, taken, strict=True):
                    (sent if was_taken else unsent).append(step)
        return sent, unsent

    def _write(self, facts: Sequence[Step], invocation_id: str) -> bool:
        """Write the ledger as one object, whose name a retry does not repeat; whether it is durable."""
        if not facts:
            return True
        try:
            self._archive.file_contract(self._contract)
            lines = (to_line(step.record) for step in facts)
            self._archive.put_lines(LEDGER, invocation_id, self._clock(), lines)
        except (ClientError, BotoCoreError):
            logger.exception("the ledger could not be written; every message comes again")
            return False
        return True


def _by_destination(steps: Iterable[Step]) -> list[tuple[str, list[Step]]]:
    """The steps by destination, the most urgent step first and the destination that has it first."""
    waiting: defaultdict[str, list[Step]] = defaultdict(list)
    for step in sorted(steps, key=lambda step: Priority(step.record.priority).rank):
        waiting[str(step.record.destination)].append(step)
    return list(waiting.items())


def _message(step: Step) -> SqsMessage:
    assert step.event is not None  # noqa: S101 - `_send` gets no other steps
    hints = {"route": str(step.record.route), "contract": step.record.contract_version}
    return to_message(step.event, hints)
