"""The client's errors: a closed list. Each message says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eventplane.contract import Problem
from eventplane.conversation.open_requests import Replies
from eventplane.errors import EventPlaneError
from eventplane.reasons import Outcome, Reason


class ClientError(EventPlaneError):
    """Base of the client's errors."""


class ClientSettingsError(ClientError):
    """The client cannot run like this: `setting` is its name, `problem` what is wrong."""

    setting: str
    problem: str
    remedy: str
    message = "setting {setting!r}: {problem}; {remedy}"


class MissingPackageError(ClientError, ModuleNotFoundError):
    """A part of the library needs `package`, which its `extra` installs."""

    package: str
    extra: str
    message = "the Python package {package} is missing; install it: pip install 'eventplane-client[{extra}]'"


_EXTRAS: Final = {
    "aws_lambda_powertools": "functions",
    "boto3": "aws",
    "botocore": "aws",
    "cloudevents": "cloudevents",
    "opentelemetry": "otel",
}
"""The extra that installs each package."""


@contextmanager
def extras(needed: str = "") -> Iterator[None]:
    """Raise `MissingPackageError` for an import within that lacks a package; `needed` is its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        missing = MissingPackageError(package, needed or _EXTRAS[package])
        missing.name = package
        raise missing from error


class ClosedError(ClientError):
    """The client or inbox of `participant` was closed."""

    participant: str
    message = "{participant}: closed; connect again"


class NotRegisteredError(ClientError):
    """The plane does not know `participant`, or leads nothing to its inbox: `problem` says which."""

    participant: str
    problem: str
    remedy: str
    message = "{participant}: {problem}; {remedy}"


class NothingThereError(ClientError):
    """No event came to `participant` within `timeout_s` seconds."""

    participant: str
    timeout_s: float
    message = "{participant}: no event within {timeout_s} s; ask again"


class NotConfirmedError(ClientError):
    """Nobody confirmed a put within `timeout_s` seconds: it is kept or not. Put it again; it counts once."""

    participant: str
    timeout_s: float
    message = "{participant}: not confirmed within {timeout_s} s; put the same event again, it counts once"


class WindowFullError(NotConfirmedError):
    """`waiting` messages have no receipt, and within `timeout_s` seconds none came: no room for another."""

    waiting: int
    message = (
        "{participant}: {waiting} messages without a receipt after {timeout_s} s; "
        "check that the forwarder and the local broker run, then put the message again"
    )


class ReceiptTimeoutError(NotConfirmedError):
    """No receipt came within `timeout_s` seconds. The client goes on sending the message."""

    message = (
        "{participant}: no receipt within {timeout_s} s, the client goes on sending the message; put it "
        "again to wait longer, or check that the forwarder and the local broker run"
    )


class FlushTimeoutError(NotConfirmedError):
    """`waiting` messages still had no receipt after `timeout_s` seconds."""

    waiting: int
    message = (
        "{participant}: {waiting} messages still without a receipt after {timeout_s} s, the client goes on "
        "sending them; flush again, or check that the forwarder runs"
    )


class NoRoomError(ClientError):
    """The plane has no room for the event at its priority: it was not kept."""

    participant: str
    message = "{participant}: no room for the event; keep it and put it again later"


class RefusedError(ClientError):
    """The plane will never take the event, or keeps it as a dead letter only; `reason` is a stable word."""

    participant: str
    reason: str
    detail: str
    message = "{participant}: refused, {reason}: {detail}; correct what makes the event"


class UnroutedError(RefusedError):
    """No route and no subscription takes what `participant` put: nobody would ever get it."""

    def __init__(self, participant: str, detail: str) -> None:
        super().__init__(participant, Outcome.UNROUTED, detail)


class MessageTooLargeError(RefusedError):
    """A message of `size` bytes is larger than the home's broker accepts (`limit`): no receipt would come."""

    def __init__(self, participant: str, size: int, limit: int) -> None:
        super().__init__(participant, Reason.TOO_LARGE, f"{size} bytes; the broker accepts at most {limit}")
        self.size = size
        self.limit = limit


class UnavailableError(ClientError):
    """The transport of `participant` does not answer, or does not allow it; nothing was lost."""

    participant: str
    problem: str
    message = "{participant}: {problem}; see that it is reachable and that this program may use it"


class RequestTimeoutError(ClientError):
    """`missing` did not reply within `timeout_s` seconds; `replies` are those that came.

    `missing` is None if the handlers of the event are unknown: then it was not sent.
    """

    def __init__(
        self, participant: str, timeout_s: float, replies: Replies, missing: Sequence[str] | None
    ) -> None:
        what = (
            "the handlers of the event are unknown, and it was not sent; see whether the forwarder runs"
            if missing is None
            else f"no reply of {', '.join(missing)}; see whether they run and are reachable"
        )
        super().__init__(f"{participant}: after {timeout_s} s {what}")
        self.participant = participant
        self.timeout_s = timeout_s
        self.replies = replies
        self.missing = None if missing is None else tuple(missing)


class RequestDroppedError(ClientError):
    """A request that is not `durable` could not be sent before its timeout: `problem` says why."""

    participant: str
    problem: str
    message = "{participant}: the request was dropped: {problem}; ask again, or ask `durable`"


class NotAskingError(ClientError):
    """The contract does not let `participant` ask like this: `problem`, with a remedy."""

    participant: str
    problem: str
    message = "{problem}"


class TooManyRequestsError(ClientError):
    """So many requests are open as there may be, `problem` says how many."""

    participant: str
    problem: str
    message = "{participant}: {problem}"


class StateTimeoutError(ClientError):
    """The forwarder did not return the state of `key` within `timeout_s` seconds."""

    participant: str
    key: str
    timeout_s: float
    message = (
        "{participant}: no answer about {key!r} within {timeout_s} s; ask again, "
        "or check that the forwarder and the local broker run"
    )


class StateError(ClientError):
    """The filter's state at `place` cannot be used; nothing was handed out or confirmed."""

    place: Path | str
    problem: str
    remedy: str
    message = "state {place}: {problem}; {remedy}"


class BatchFailedError(ClientError):
    """A function of `participant` failed for all `failures` events of its batch."""

    participant: str
    failures: int
    message = (
        "{participant}: all {failures} events of the batch failed; the log has each of them, see the cause"
    )


class LeaseTooLongError(ClientError):
    """The inbox of `participant` gives out an event for the last time before a crashed reader's claim ends.

    The claim is valid for `lease_s` seconds; the queue gives out the event again `receives` times, each
    `visibility_s` seconds after the last. Nothing was handed out.
    """

    participant: str
    lease_s: float
    visibility_s: float
    receives: int
    message = (
        "{participant}: a claim is valid for {lease_s:g} s, but the inbox gives out an event for the last "
        "time after {last_s:g} s ({receives} times {visibility_s:g} s), so that an event in hand at a "
        "crash would never be in doubt; give the queue a longer visibility timeout or more receives, or the "
        "function a shorter timeout"
    )

    @property
    def last_s(self) -> float:
        """Seconds until the inbox gives out the event for the last time."""
        return self.visibility_s * self.receives


class UnfinishedHandlerError(ClientError):
    """A handler of `participant` returned `kind`, which is work that it has not done, and not its result."""

    participant: str
    kind: str
    message = (
        "{participant}: the handler returned a {kind}, whose work is not done, so the event comes again; "
        "return when it is done, as by asyncio.run"
    )


class AlreadySettledError(ClientError):
    """An event, `id` of `source`, was acknowledged or given back a second time."""

    source: str
    id: str
    message = "event {id!r} of {source} is settled; settle each once"


class InterestError(ClientError):
    """The announcement of `participant` is not valid. `problems` are all that was found."""

    def __init__(self, participant: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"interest of {participant}: " + "; ".join(str(each) for each in problems))
        self.participant = participant
        self.problems = tuple(problems)


class SubscriptionError(ClientError):
    """A subscription is not valid. `problems` are all that was found."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"subscription {name!r}: " + "; ".join(str(each) for each in problems))
        self.name = name
        self.problems = tuple(problems)


class AlreadySubscribedError(ClientError):
    """`participant` has a subscription called `name` with another filter."""

    participant: str
    name: str
    message = "{participant}: {name!r} exists with another filter; unsubscribe it, or name another"


class NotSubscribedError(ClientError):
    """`participant` has no subscription called `name`."""

    participant: str
    name: str
    message = "{participant}: no subscription {name!r}; name one that exists"


class UnhandleableError(ClientError):
    """Raise it in a handler, or `nack` with it: the event can never be handled and becomes a dead letter.

    `reason` is the dead letter's: letters, digits, `_`, `.` and `-`, at most 64.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
