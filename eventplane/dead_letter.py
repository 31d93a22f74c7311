"""Dead letters: the events that keep what can never be delivered, and how a message becomes one."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final, NamedTuple

from eventplane.attributes import in_short
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.limits import MAX_DETAIL_CHARACTERS, MAX_ORIGINAL_BYTES

DEAD_LETTER_TYPE = "org.eventplane.deadletter.v1"

ROUTER_SOURCE: Final = "/eventplane/cloud/router"
"""The `source` of the dead letters that the cloud's routers write."""

REASON_ATTRIBUTE: Final = "deadletterreason"

LETTER_ID_DIGITS = 32
"""Hexadecimal digits of a dead letter's id, made from its event's: 128 bits."""


class Refusal(NamedTuple):
    """Why an event can never be delivered: a stable `reason` word and a `detail` for people."""

    reason: str
    detail: str


def detail_text(text: str) -> str:
    """Return a detail for people, cut. Half of a surrogate pair, as in a file's name, is no text of JSON."""
    return text[:MAX_DETAIL_CHARACTERS].encode(errors="backslashreplace").decode()


def reason_in(event: Envelope) -> str | None:
    """Return why the dead letter `event` was written, cut as a detail is; None of another event."""
    reason = event.attributes.get(REASON_ATTRIBUTE) if event.type == DEAD_LETTER_TYPE else None
    return None if reason is None else str(reason)[:MAX_DETAIL_CHARACTERS]


def letter_id(sender: str, source: str, id: str) -> str:
    """Return the id of an event's dead letter: the same for each copy of it. The audit knows it."""
    return hashlib.sha256(f"{sender}\n{source}\n{id}".encode()).hexdigest()[:LETTER_ID_DIGITS]


def dead_letter(
    *,
    id: str,
    source: str,
    time: str,
    refusal: Refusal,
    channel: str,
    original: bytes,
    contract_version: str,
    route: str | None = None,
    attempt: int = 1,
    event: Envelope | None = None,
    sender: Sender | None = None,
) -> Envelope:
    """The dead letter of `original`, which `sender` sent over `channel`, as a CloudEvent of its own.

    Without a `sender` it is the one that the `event` is stamped with.

    Where the original is an `event` that belongs to a trace, the letter belongs to it too.

    `id` must be the same when the same refusal happens again, so that a repetition is a duplicate. An
    original beyond `MAX_ORIGINAL_BYTES` is cut; its full size and SHA-256 are kept. A detail beyond
    `MAX_DETAIL_CHARACTERS` is cut as well.
    """
    named = sender or (event.sender if event else Sender())
    data: dict[str, Any] = {
        "reason": refusal.reason,
        "detail": detail_text(refusal.detail),
        "channel": channel,
        "sender": {"device": named.device, "service": named.service} if named != Sender() else None,
        "route": route,
        "attempt": attempt,
        "contract_version": contract_version,
        "original_base64": base64.b64encode(original[:MAX_ORIGINAL_BYTES]).decode("ascii"),
        "original_bytes": len(original),
        "original_sha256": hashlib.sha256(original).hexdigest(),
    }
    # The reason is an attribute as well, so that dead letters can be routed and counted by content.
    attributes = {
        "id": id,
        "source": source,
        "type": DEAD_LETTER_TYPE,
        "time": time,
        REASON_ATTRIBUTE: refusal.reason,
    }
    if event is not None and "traceparent" in event.attributes:
        attributes["traceparent"] = in_short(str(event.attributes["traceparent"]))
    return write_event(attributes, data)


ORIGINAL: Final = "base64OriginalPayload"
"""The member that each document of an IoT rule's error action has, and no message of our own rules. It is the
message as it came, not what the rule's SQL made of it (AWS IoT Developer Guide, error handling)."""


def original_of(members: Any) -> bytes | None:
    """The message that the rule was given; None when `members` are no document of an error action.

    Raises `ValueError` or `TypeError` for one that is damaged.
    """
    if not isinstance(members, dict) or ORIGINAL not in members:
        return None
    return base64.b64decode(members[ORIGINAL], validate=True)
