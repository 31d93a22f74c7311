"""The archive's record of what a consumer outside of the plane did with an event of its inbox.

It continues the ledger, whose last word on such an event is that it is in the inbox.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from eventplane.delivery import Outcome

HANDOVERS = "handovers"
"""The folder of the archive."""


@dataclass(frozen=True, slots=True)
class HandoverRecord:
    """The end of an event's way from the inbox `channel` to its endpoint, times in Unix milliseconds.

    `entered_at_ms` is when it came into the inbox. `status` is the endpoint's last HTTP status, None where
    it gave none. `attempt` counts deliveries of the queue message, from 1; what was no event has empty names.
    `route` is the one that led into the inbox, None where the message does not say: it tells subscribed
    endpoints apart, which share theirs. `sender` is the text of the event's `eventplane.sender.Sender`.
    """

    decided_at_ms: int
    entered_at_ms: int
    channel: str
    contract_version: str
    source: str
    id: str
    type: str
    outcome: Outcome
    reason: str | None
    status: int | None
    attempt: int
    message_id: str
    route: str | None = None
    sender: str = ""


def to_line(record: HandoverRecord) -> str:
    """The record as one line of JSON, without a line end."""
    return json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":"))
