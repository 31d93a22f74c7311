"""The named errors of the device's side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eventplane.errors import EventPlaneError

if TYPE_CHECKING:
    # The forwarder raises none of those errors, and need not load what is in them.
    from eventplane.conversation.open_requests import Replies


class EdgeError(EventPlaneError):
    """Base of the device's errors."""


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One setting that cannot be used: its name, what is wrong, and what to do."""

    setting: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"setting {self.setting!r}: {self.problem}; {self.remedy}"


class SettingsError(EdgeError):
    """The device cannot run like this. `problems` are all that was found, so that one correction suffices."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("\n".join(str(each) for each in problems))
        self.problems = tuple(problems)


class SpoolError(EdgeError):
    """The durable store at `path` cannot do its work; nothing that it did not confirm is acknowledged."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(f"spool {path}: {problem}; {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class SpoolFullError(SpoolError):
    """The disk, its quota or the spool's capacity has no room: nothing changed, later commits may succeed."""


class SpoolUnavailableError(SpoolError):
    """The disk is missing, read-only or broken: nothing changed. `Spool.without_disk` goes on without it."""


class SpoolCorruptError(SpoolError):
    """The file is damaged, `damage` says where. Opening the spool again recovers what is readable."""

    def __init__(self, path: Path, damage: str) -> None:
        super().__init__(path, f"is damaged: {damage}", "open it again, which sets it aside and recovers")
        self.damage = damage


class WindowFullError(EdgeError):
    """`waiting` messages have no receipt and none came within `timeout_s` seconds: no room for another."""

    def __init__(self, service: str, waiting: int, timeout_s: float) -> None:
        super().__init__(
            f"{service}: {waiting} messages without a receipt after {timeout_s} s; "
            "see whether the forwarder and the local broker run, then put the message again"
        )
        self.service = service
        self.waiting = waiting
        self.timeout_s = timeout_s


class MessageTooLargeError(EdgeError):
    """A message of `size` bytes is more than the home's broker takes (`limit`): no receipt would come."""

    def __init__(self, service: str, size: int, limit: int) -> None:
        super().__init__(f"{service}: a message of {size} bytes; the broker takes at most {limit}, send less")
        self.service = service
        self.size = size
        self.limit = limit


class ReceiptTimeoutError(EdgeError):
    """`put` gave up: no receipt came within `timeout_s` seconds. The message goes on being sent."""

    def __init__(self, service: str, timeout_s: float) -> None:
        super().__init__(
            f"{service}: no receipt within {timeout_s} s; it goes on being sent; put it again to wait on, "
            "or see whether the forwarder and the local broker run"
        )
        self.service = service
        self.timeout_s = timeout_s


class StoreFullError(EdgeError):
    """The device's store has no room for the message of `service` at its priority; nobody keeps it."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service}: the device's store is full; keep the message and put it again later")
        self.service = service


class DeadLetteredError(EdgeError):
    """The message of `service` is stored, but as a dead letter: `reason` says why it cannot be delivered."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"{service}: the message became a dead letter: {reason}; correct what makes it")
        self.service = service
        self.reason = reason


class FlushTimeoutError(EdgeError):
    """`flush` gave up: `waiting` messages still had no receipt after `timeout_s` seconds."""

    def __init__(self, service: str, waiting: int, timeout_s: float) -> None:
        super().__init__(
            f"{service}: {waiting} messages still without a receipt after {timeout_s} s; they go on "
            "being sent, flush again or see whether the forwarder runs"
        )
        self.service = service
        self.waiting = waiting
        self.timeout_s = timeout_s


class StateTimeoutError(EdgeError):
    """`state` gave up: the forwarder did not say within `timeout_s` seconds what the state of `key` is."""

    def __init__(self, service: str, key: str, timeout_s: float) -> None:
        super().__init__(
            f"{service}: no answer about {key!r} within {timeout_s} s; ask again, "
            "or see whether the forwarder and the local broker run"
        )
        self.service = service
        self.key = key
        self.timeout_s = timeout_s


class RequestTimeoutError(EdgeError):
    """`request` gave up: `missing` did not reply within `timeout_s` seconds; `replies` are those that came.

    `missing` is None when nobody said who handles the event: then it was not sent.
    """

    def __init__(
        self, service: str, timeout_s: float, replies: Replies, missing: Sequence[str] | None
    ) -> None:
        what = (
            "nobody said who handles the event, and it was not sent; see whether the forwarder and the "
            "local broker run"
            if missing is None
            else f"no reply of {', '.join(missing)}; see whether they run and are reachable"
        )
        super().__init__(f"{service}: after {timeout_s} s {what}")
        self.service = service
        self.timeout_s = timeout_s
        self.replies = replies
        self.missing = None if missing is None else tuple(missing)


class RequestDroppedError(EdgeError):
    """A request that is not `durable` could not be sent before its timeout: `problem` says why."""

    def __init__(self, service: str, problem: str) -> None:
        super().__init__(f"{service}: the request was dropped: {problem}; ask again, or ask `durable`")
        self.service = service
        self.problem = problem


class NotAskingError(EdgeError):
    """The forwarder's contract does not let `service` ask with such an event: `problem`, with a remedy."""

    def __init__(self, service: str, problem: str) -> None:
        super().__init__(problem)
        self.service = service
        self.problem = problem


class ClientClosedError(EdgeError):
    """The service client was closed; what had no receipt by then is the caller's to send again."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service}: the client is closed; open a new one")
        self.service = service


class RefusedError(EdgeError):
    """Raised by an inbox handler: this event can never be handled.

    `reason` is a word for the dead letter: letters, digits, `_`, `.` and `-`, at most 64.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
