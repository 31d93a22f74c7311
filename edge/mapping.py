"""Makes events of messages on mapped topics. Only a device whose contract has mappings loads this."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from edge.decision import Decider, Decision
from edge.planning import Batch, Plan, Submission
from eventplane.contract import Channel, Contract
from eventplane.contract.mapping import MAX_TOPIC, Message, TopicMapping, convert
from eventplane.dead_letter import Refusal
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Reason
from eventplane_mqtt.link import Link
from eventplane_mqtt.mailbox import LinkName, Received

_log = logging.getLogger(__name__)

_RANDOM_BYTES = 16


class Mapper:
    """Maps messages by `contract` on the device `thing`.

    `timestamp` returns the present for events whose message has no time, `random_bytes` draws the ids of
    messages at QoS 0, which no broker repeats.
    """

    def __init__(
        self,
        contract: Contract,
        thing: str,
        timestamp: Callable[[], str],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._mappings = contract.mappings
        self._outboxes = {each.name: each.outbox for each in contract.participants.values()}
        self._thing = thing
        self._timestamp = timestamp
        self._random_bytes = random_bytes

    def knows(self, topic: str) -> bool:
        """Return whether a mapping takes messages on `topic`."""
        return any(each.levels(topic) is not None for each in self._mappings)

    def take(self, message: Received, batch: Batch) -> bool:
        """Add the event of `message` to `batch`; return False if no mapping takes its topic."""
        for mapping in self._mappings:
            if (levels := mapping.levels(message.topic)) is not None:
                # What a broker keeps is of an unknown age, and comes with each new session.
                if not message.retained and (message.payload or message.oversize):
                    self._map(message, mapping, levels, batch)
                return True
        return False

    def _map(self, message: Received, mapping: TopicMapping, levels: dict[str, str], batch: Batch) -> None:
        channel = self._outboxes[mapping.participant]
        if message.oversize:
            size = f"{message.oversize} bytes; an event has at most {MAX_EVENT_BYTES}"
            batch.submissions.append(_refused(EnvelopeError(Reason.TOO_LARGE, size), message, channel))
            return
        try:
            said = convert(mapping, message.topic, levels, message.payload)
        except EnvelopeError as error:
            batch.submissions.append(_refused(error, message, channel))
        else:
            if said is not None:
                batch.submissions.append(self._submission(said, message, channel))

    def _submission(self, said: Message, message: Received, channel: Channel) -> Submission:
        time = self._timestamp()
        if not message.mid:
            event = said.event(self._thing, time, self._random_bytes(_RANDOM_BYTES).hex())
            return Submission(event, channel.address, channel)

        def variant(attempt: int) -> bytes:
            return said.event(self._thing, time, said.derived_id(message.mid, attempt))

        first = variant(0), channel.address, channel
        if said.id or message.duplicate:
            return Submission(*first)
        submission = _FirstDelivery(*first)
        submission.variant = variant
        return submission


def unsubscribe(
    former: set[str], links: Mapping[LinkName, Link], subscriptions: Callable[[LinkName], Iterable[str]]
) -> None:
    """Leave the `former` topics that a session's `subscriptions` lack, once both sessions have theirs.

    A broker sends a message once for each filter that matches it (MQTT 5), under several packet ids.
    """
    sessions = (LinkName.LOCAL, LinkName.URGENT)
    if all(links[each].up for each in sessions):
        for each in sessions:
            if gone := sorted(former.difference(subscriptions(each))):
                links[each].connection.unsubscribe(*gone)
        _log.info("left the former topics that no mapping has")


def _refused(error: EnvelopeError, message: Received, channel: Channel) -> Submission:
    refusal = Refusal(error.reason, f"{error.detail}; on topic {message.topic[:MAX_TOPIC]!r}")
    return Submission(message.payload, channel.address, channel, refusal)


class _FirstDelivery(Submission):
    """A message that the broker sends for the first time: an event of its own, although its packet id and
    payload may be those of an earlier one."""

    variant: Callable[[int], bytes]

    def decide(self, decider: Decider, plan: Plan) -> Decision:
        decision = super().decide(decider, plan)
        attempts = count(1)
        while decision.key is None and decision.refused is None:
            payload = self.variant(next(attempts))
            decision = decider.accept(payload, self.channel, plan.next, plan.keys)
        return decision
