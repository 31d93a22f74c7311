"""One event in a reader's hands."""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.envelope import Envelope
from eventplane.ordering import Stream
from eventplane.reasons import Outcome
from eventplane_client.ports import Message
from eventplane_client.telemetry import Handling


@dataclass(eq=False, slots=True)
class Delivery:
    """`event` as `message` brought it; the filter knows it by `key`, its inbox's order by its `position`.

    It came at `received_s`, by the monotonic clock. `is_claimed` by this reader; `is_acknowledged` to the
    transport before it is handled (`at_most_once`); `is_handled` once the filter was asked to record that,
    even if it failed to; `is_settled` once it is handled or given back, with an `outcome` and its `reason`;
    `handling` tells of it while it is handed out.
    """

    event: Envelope
    message: Message
    key: bytes
    position: tuple[Stream, int] | None = None
    received_s: float = 0.0
    is_claimed: bool = False
    is_acknowledged: bool = False
    is_handled: bool = False
    is_settled: bool = False
    outcome: Outcome = Outcome.DELIVERED
    reason: str | None = None
    handling: Handling | None = None

    @property
    def rank(self) -> int:
        """The rank of its priority, by which its reader hands it out; 0 where it has no position."""
        return self.position[0].rank if self.position else 0

    def told(self, error: BaseException | str | None = None) -> None:
        """Its handling is over, if it was in anybody's hands; at the first call only."""
        handling, self.handling = self.handling, None
        if handling:
            handling.end(error)
