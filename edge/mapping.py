"""Makes events of messages on mapped topics. Only a device whose contract has mappings loads this."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from edge import durable
from edge.decision import Decider, Decision
from edge.planning import Batch, Plan, Submission
from eventplane.contract import Channel, Contract
from eventplane.contract.mapping import MAX_TOPIC, MappedMessage, TopicMapping, convert, topic_problem
from eventplane.dead_letter import Refusal
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Reason
from eventplane_mqtt.mailbox import LinkName, Received
from eventplane_mqtt.reconnection import Link

_log = logging.getLogger(__name__)

_RANDOM_BYTES = 16

_NAME_BYTES = 4

_SESSIONS = (LinkName.LOCAL, LinkName.URGENT)

_MOST_FILTERS = 100
"""Of one UNSUBSCRIBE, which a broker's limit of packets has to let through."""

_Topic = tuple[LinkName, str]


class Mapper:
    """Maps messages by `contract` on the device `thing`.

    `timestamp` returns the present for events whose message has no time, `random_bytes` draws the ids of
    messages at QoS 0, which no broker repeats; `file` is that of `topics`.
    """

    def __init__(
        self,
        contract: Contract,
        thing: str,
        timestamp: Callable[[], str],
        random_bytes: Callable[[int], bytes],
        file: Path,
    ) -> None:
        self.topics = MappedTopics(file, contract, random_bytes)
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

    def _submission(self, said: MappedMessage, message: Received, channel: Channel) -> Submission:
        time = self._timestamp()
        if not message.mid:
            event = said.event(self._thing, time, self._random_bytes(_RANDOM_BYTES).hex())
            return Submission(event, channel.address, channel)

        def variant(attempt: int) -> bytes:
            id = said.derived_id(message.mid, attempt, self.topics.names[message.link])
            return said.event(self._thing, time, id)

        first = variant(0), channel.address, channel
        if said.id or message.duplicate:
            return Submission(*first)
        submission = _FirstDelivery(*first)
        submission.variant = variant
        return submission


class MappedTopics:
    """The topics to which the two sessions may be subscribed for mappings: those of `contract` and of others
    before it, also of former runs, which `file` keeps, with the `names` of the broker's sessions.

    A broker sends a message once for each filter that matches it (MQTT 5), under several packet ids. One that
    has forgotten a session begins its packet ids again: the next gets another name from `random_bytes`.
    """

    def __init__(self, file: Path, contract: Contract, random_bytes: Callable[[int], bytes]) -> None:
        self._file = file
        self._random_bytes = random_bytes
        self._own = {
            (LinkName.URGENT if each.is_urgent(contract) else LinkName.LOCAL, each.filter)
            for each in contract.mappings
        }
        former, self.names = _read_topics(file)
        self._known = self._own | former
        self._leaving: dict[tuple[LinkName, int], set[_Topic]] = {}
        self._write()  # before a session subscribes

    def connected(self, session: LinkName, links: Mapping[LinkName, Link]) -> None:
        """Unsubscribe from former topics, once both sessions have those of the contract.

        So no message falls between two sessions. The newest connection is that of `session`.
        """
        if session in _SESSIONS and not links[session].resumed:
            self.names[session] = self._random_bytes(_NAME_BYTES).hex()
            self._write()
        self._leaving.clear()  # its answers ended with a connection
        if not all(links[each].up for each in _SESSIONS):
            return
        former = sorted(self._known - self._own)
        for session in _SESSIONS:
            own = [each for each in former if each[0] is session]
            for first in range(0, len(own), _MOST_FILTERS):
                some = own[first : first + _MOST_FILTERS]
                mid = links[session].connection.unsubscribe(*(filter for _, filter in some))
                self._leaving[session, mid] = {*some}

    def left(self, session: LinkName, mid: int) -> None:
        """Forget the topics that the broker's answer to the packet `mid` is about."""
        if gone := self._leaving.pop((session, mid), None):
            self._known -= gone
            self._write()
            if self._known == self._own:
                _log.info("left the former topics that no mapping has")

    def _write(self) -> None:
        topics = [f"{session} {filter}\n" for session, filter in sorted(self._known)]
        names = [f"{session}={name}\n" for session, name in self.names.items() if name and topics]
        lines = "".join(topics + names).encode()
        try:
            if not lines:
                self._file.unlink(missing_ok=True)
            elif not self._file.exists() or self._file.read_bytes() != lines:
                durable.write(self._file, lines)
        except OSError as error:
            _log.warning(
                "%s: %s; until it is written another contract may double mapped messages, make room for it",
                self._file, error.strerror or error,
            )  # fmt: skip


def _read_topics(file: Path) -> tuple[set[_Topic], dict[LinkName, str]]:
    """Return the topics and names of sessions in `file`, without damaged lines: the broker would hang up."""
    topics: set[_Topic] = set()
    names = dict.fromkeys(_SESSIONS, "")
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return topics, names
    for line in lines:
        for session in _SESSIONS:
            if line.startswith(f"{session}="):
                names[session] = line.removeprefix(f"{session}=")
            elif line.startswith(f"{session} ") and topic_problem(line[len(session) + 1 :]) is None:
                topics.add((session, line[len(session) + 1 :]))
    return topics, names


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
