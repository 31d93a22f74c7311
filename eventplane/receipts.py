"""Receipts: the end-to-end confirmation between a service on the device and the forwarder.

Mosquitto acknowledges what it holds in memory, which a power cut takes. A receipt says more: the reader has
taken the message over for good. It names the message by the SHA-256 of its payload, so that one that is no
event can be confirmed as well, and it tells a sender whose message was refused why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from eventplane.errors import EventPlaneError

SPOOL_FULL = "spool_full"
"""The reason of what found no room: the one refusal after which nobody keeps the message."""


class ReceiptError(EventPlaneError):
    """A payload on a receipts topic is not a list of receipts."""

    problem: str
    message = "not a list of receipts: {problem}; send what `write_receipts` makes"


class Receipt(NamedTuple):
    """One confirmed message: the `digest` of its payload, and the reason word when it was `refused`."""

    digest: str
    refused: str | None = None


def digest(payload: bytes) -> str:
    """Return the name of a payload in receipts: its SHA-256 in hexadecimal."""
    return hashlib.sha256(payload).hexdigest()


def write_receipts(receipts: Iterable[Receipt]) -> bytes:
    """The payload that carries `receipts`."""
    return json.dumps([{"digest": each.digest, "refused": each.refused} for each in receipts]).encode("ascii")


def read_receipts(payload: bytes) -> list[Receipt]:
    """The receipts of a payload. Raises `ReceiptError`."""
    try:
        return [_receipt(each) for each in json.loads(payload)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ReceiptError(repr(error)) from error


def _receipt(members: Any) -> Receipt:
    refused = members.get("refused")
    if refused is not None and not isinstance(refused, str):
        raise TypeError("`refused` is a text or null")
    return Receipt(str(members["digest"]), refused)
