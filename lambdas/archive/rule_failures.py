"""What an IoT rule's error action says (AWS IoT Core developer guide, error handling). Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from eventplane.errors import EventPlaneError
from eventplane.rule_failure import original_of
from eventplane.sender import PLANE_CLIENT


class NoFailureError(EventPlaneError):
    """A message of the ingest-error queue is none of a rule. `problem` says what is wrong with it."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; see who else writes to the queue of the rules' error actions")
        self.problem = problem


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
