"""One event in a reader's hands."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.envelope import Envelope
from eventplane_client.ports import Message


@dataclass(eq=False, slots=True)
class Delivery:
    """`event` as `message` brought it; the filter knows it by `key`.

    `is_claimed` by this reader; `is_settled` once it is handled or given back.
    """

    event: Envelope
    message: Message
    key: bytes
    is_claimed: bool = False
    is_settled: bool = False
