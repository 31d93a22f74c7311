"""The function that handles failures of the ingest rules: it sends frames to the queues that missed them."""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventplane.dead_letter import Refusal, dead_letter, original_of
from eventplane.errors import EventPlaneError
from eventplane.function_settings import IngestErrorsSettings
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import PLANE_CLIENT
from eventplane.reasons import Reason
from eventplane.retries import URGENT
from eventplane.topics import is_urgent_rule
from eventplane.values import timestamp_of_ms
from lambdas.common.aws import WORST_CALL_MS, client
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader, handle_each, queue_function
from lambdas.common.sqs import PlainMessage, SqsSender, send_all
from lambdas.common.system import Clock, chance, system_clock


class NoFailureError(EventPlaneError):
    """A message of the ingest-error queue is none of a rule. `problem` says what is wrong with it."""

    problem: str
    message = "{problem}; find out who else writes to the queue of the rules' error actions"


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """One publish for which actions of `rule` failed: its `payload` as sent, where, and by whom.

    `resources` are what the failed actions were about, for SQS the queues' URLs; `reasons` are AWS's words.
    """

    rule: str
    topic: str
    client_id: str
    payload: bytes
    resources: tuple[str, ...]
    reasons: tuple[str, ...]


def parse_failure(body: str) -> RuleFailure:
    """The failure in a message's `body`. Raises `NoFailureError`."""
    try:
        members = json.loads(body)
        failures = members["failures"]
        if not isinstance(failures, list):
            raise NoFailureError("`failures` is no list")
        payload = original_of(members)
        if payload is None:
            raise NoFailureError("it has no original payload")
        client_id = _text(members, "clientId")
        if client_id == PLANE_CLIENT:
            raise NoFailureError("its client id is the plane's own, which no device connects with")
        return RuleFailure(
            rule=_text(members, "ruleName"),
            topic=_text(members, "topic"),
            client_id=client_id,
            payload=payload,
            resources=tuple(str(each.get("failedResource", "")) for each in failures),
            reasons=tuple(str(each.get("errorMessage", "")) for each in failures),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoFailureError(f"it cannot be read: {error!r}") from error


def _text(members: dict[str, Any], name: str) -> str:
    value = members[name]
    if not isinstance(value, str):
        raise NoFailureError(f"`{name}` is no text")
    return value


SOURCE: Final = PLANE_CLIENT
"""The `source` of the dead letters made here, and the client that their frames name."""


RESERVE_MS: Final = 2 * WORST_CALL_MS
"""No batch is sent with less time left, milliseconds: it covers that batch and the answer to the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestErrorsService:
    """Sends what failed to `ways_in`, the URLs of the queues that rules write to.

    `channel` is the address of the devices' outbox, `contract_version` that of the deployment: dead letters
    name them. `letters_to` are the queues for a dead letter, a router's and the tap's.
    """

    ways_in: Collection[str]
    letters_to: Collection[str]
    channel: str
    contract_version: str
    sender: SqsSender
    clock: Clock
    chance: Callable[[], float]

    def process(self, messages: Sequence[QueueMessage], invocation: Invocation) -> dict[str, int]:
        """Hand over the failures in `messages`; return the ids of those that have to come again.

        Each has the seconds after which it comes: those of the urgent rule as urgent messages do; 0 leaves
        the wait to the queue's reader.
        """
        urgent: set[str] = set()
        frames: defaultdict[str, list[tuple[QueueMessage, str]]] = defaultdict(list)

        def take(message: QueueMessage) -> bool:
            text, queues, is_urgent = self._frame(message)
            if is_urgent:
                urgent.add(message.id)
            for queue_url in queues:
                frames[queue_url].append((message, text))
            return True

        failed = set(handle_each(messages, take))
        for queue_url, waiting in frames.items():
            # What a queue never takes ends in the dead-letter queue of this one: there is no other way in.
            taken = send_all(
                self.sender,
                queue_url,
                (PlainMessage(text) for _, text in waiting),
                lambda: invocation.remaining_ms() >= RESERVE_MS,
            )
            failed |= {each.id for (each, _), is_taken in zip(waiting, taken, strict=True) if not is_taken}
        count(Count.RESENT, len(messages) - len(failed))
        return {
            each.id: self._wait_s(each) if each.id in urgent else 0 for each in messages if each.id in failed
        }

    def _wait_s(self, message: QueueMessage) -> int:
        return math.ceil(URGENT.wait_s(message.age_s(self.clock()), message.attempt, self.chance()))

    def _frame(self, message: QueueMessage) -> tuple[str, Collection[str], bool]:
        """The frame of a message, the queues that it has to go to, and whether it came by the urgent rule."""
        try:
            failure = parse_failure(message.body)
        except NoFailureError as error:
            count(Count.DEAD_LETTERED)
            logger.error("no failure of a rule", message_id=message.id, problem=error.problem)
            return frame_text(self._letter(message, error)), self.letters_to, False
        targets = self._missed(failure)
        logger.warning(
            "a rule failed",
            message_id=message.id,
            rule=failure.rule,
            topic=failure.topic,
            client_id=failure.client_id,
            reasons=failure.reasons,
            sent_to=targets,
        )
        # When IoT Core accepted it, AWS does not say; the error action runs at once.
        frame = IngestFrame(failure.payload, failure.topic, failure.client_id, "", message.sent_at_ms)
        return frame_text(frame), targets, is_urgent_rule(failure.rule)

    def _missed(self, failure: RuleFailure) -> list[str]:
        """The queues that the rule could not write to; where it does not say, those of a dead letter.

        A second copy is harmless, a missing one is not.
        """
        missed = {_queue_name(each) for each in failure.resources}
        named = [url for url in self.ways_in if _queue_name(url) in missed]
        return named if len(named) == len(missed) > 0 else list(dict.fromkeys([*named, *self.letters_to]))

    def _letter(self, message: QueueMessage, error: NoFailureError) -> IngestFrame:
        """The dead letter as a device would publish it: it is archived and routed like any event."""
        now_ms = self.clock()
        letter = dead_letter(
            id=message.id,
            source=SOURCE,
            time=timestamp_of_ms(now_ms),
            refusal=Refusal(Reason.BAD_RULE_FAILURE, error.problem),
            channel=self.channel,
            original=message.body.encode("utf-8", "surrogatepass"),
            contract_version=self.contract_version,
            attempt=message.attempt,
        )
        return IngestFrame(letter.json.encode("utf-8"), SOURCE, SOURCE, "", now_ms)


def _queue_name(resource: str) -> str:
    """A queue's name at the end of its URL or ARN: AWS does not promise which of them a failure names."""
    return re.split("[/:]", resource)[-1]


def service() -> QueueReader:
    """Return the reader of the ingest-error queue. Raises `SettingsError`."""
    settings = IngestErrorsSettings.read(os.environ)
    errors = IngestErrorsService(
        ways_in=settings.ways_in,
        letters_to=settings.letters_to,
        channel=settings.source,
        contract_version=settings.contract,
        sender=SqsSender(client("sqs")),
        clock=system_clock,
        chance=chance,
    )
    return QueueReader(errors.process)


handle = queue_function(service)
