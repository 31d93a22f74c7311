"""The errors of the service client: those of the client library, and what only a device has."""

from __future__ import annotations

from eventplane.reasons import Outcome, Reason
from eventplane_client.errors import ClientError, NotConfirmedError, RefusedError, UnroutedError


class WindowFullError(NotConfirmedError):
    """`waiting` messages have no receipt, and within `timeout_s` seconds none came: no room for another."""

    def __init__(self, participant: str, waiting: int, timeout_s: float) -> None:
        super().__init__(
            participant,
            timeout_s,
            f"{waiting} messages without a receipt after {timeout_s} s; "
            "check that the forwarder and the local broker run, then put the message again",
        )
        self.waiting = waiting


class ReceiptTimeoutError(NotConfirmedError):
    """No receipt came within `timeout_s` seconds. The client goes on sending the message."""

    def __init__(self, participant: str, timeout_s: float) -> None:
        super().__init__(
            participant,
            timeout_s,
            f"no receipt within {timeout_s} s, the client goes on sending the message; put it again to wait "
            "longer, or check that the forwarder and the local broker run",
        )


class FlushTimeoutError(NotConfirmedError):
    """`waiting` messages still had no receipt after `timeout_s` seconds."""

    def __init__(self, participant: str, waiting: int, timeout_s: float) -> None:
        super().__init__(
            participant,
            timeout_s,
            f"{waiting} messages still without a receipt after {timeout_s} s, the client goes on sending "
            "them; flush again, or check that the forwarder runs",
        )
        self.waiting = waiting


class MessageTooLargeError(RefusedError):
    """A message of `size` bytes is larger than the home's broker accepts (`limit`): no receipt would come."""

    def __init__(self, participant: str, size: int, limit: int) -> None:
        super().__init__(participant, Reason.TOO_LARGE, f"{size} bytes; the broker accepts at most {limit}")
        self.size = size
        self.limit = limit


class StateTimeoutError(ClientError):
    """The forwarder did not return the state of `key` within `timeout_s` seconds."""

    def __init__(self, participant: str, key: str, timeout_s: float) -> None:
        super().__init__(
            f"{participant}: no answer about {key!r} within {timeout_s} s; ask again, "
            "or check that the forwarder and the local broker run"
        )
        self.participant = participant
        self.key = key
        self.timeout_s = timeout_s


class UnhandleableError(ClientError):
    """Raised by an inbox handler: this event can never be handled, and becomes a dead letter.

    `reason` is the dead letter's: letters, digits, `_`, `.` and `-`, at most 64.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def dead_lettered(participant: str, reason: str) -> RefusedError:
    """Return the error for a message that the forwarder stored as a dead letter."""
    if reason == Outcome.UNROUTED:
        return UnroutedError(participant, "no route of the device takes it")
    return RefusedError(participant, reason, "it was kept as a dead letter")
