"""The client's errors: a closed list. docs/client.md says of each what it means and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eventplane.contract import Problem
from eventplane.errors import EventPlaneError


class ClientError(EventPlaneError):
    """Base of the client's errors."""


class ClientSettingsError(ClientError):
    """The client cannot run like this: `setting` is its name, `problem` what is wrong."""

    def __init__(self, setting: str, problem: str, remedy: str) -> None:
        super().__init__(f"setting {setting!r}: {problem}; {remedy}")
        self.setting = setting
        self.problem = problem


class ClosedError(ClientError):
    """The client or inbox of `participant` was closed."""

    def __init__(self, participant: str) -> None:
        super().__init__(f"{participant}: closed; connect again")
        self.participant = participant


class NothingThereError(ClientError):
    """No event came to `participant` within `timeout_s` seconds."""

    def __init__(self, participant: str, timeout_s: float) -> None:
        super().__init__(f"{participant}: no event within {timeout_s} s; ask again")
        self.participant = participant
        self.timeout_s = timeout_s


class NotConfirmedError(ClientError):
    """Nobody confirmed a put within `timeout_s` seconds: it is kept or not. Put it again; it counts once."""

    def __init__(self, participant: str, timeout_s: float) -> None:
        super().__init__(
            f"{participant}: not confirmed within {timeout_s} s; put the same event again, it counts once"
        )
        self.participant = participant
        self.timeout_s = timeout_s


class NoRoomError(ClientError):
    """The plane has no room for the event at its priority: it was not kept."""

    def __init__(self, participant: str) -> None:
        super().__init__(f"{participant}: no room for the event; keep it and put it again later")
        self.participant = participant


class RefusedError(ClientError):
    """The plane will never take the event, or keeps it as a dead letter only; `reason` is a stable word."""

    def __init__(self, participant: str, reason: str, detail: str) -> None:
        super().__init__(f"{participant}: refused, {reason}: {detail}; correct what makes the event")
        self.participant = participant
        self.reason = reason


class UnavailableError(ClientError):
    """What carries the events of `participant` does not answer, or does not allow it; nothing was lost."""

    def __init__(self, participant: str, problem: str) -> None:
        super().__init__(
            f"{participant}: {problem}; see that it is reachable and that this program may use it"
        )
        self.participant = participant
        self.problem = problem


class StateError(ClientError):
    """What remembers the handled events, `place`, cannot be used; nothing was handed out or confirmed."""

    def __init__(self, place: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"state {place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem


class AlreadySettledError(ClientError):
    """An event, `id` of `source`, was acknowledged or given back a second time."""

    def __init__(self, source: str, id: str) -> None:
        super().__init__(f"event {id!r} of {source} is settled; settle each once")
        self.source = source
        self.id = id


class InterestError(ClientError):
    """What `participant` wanted to announce is not valid. `problems` are all that was found."""

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

    def __init__(self, participant: str, name: str) -> None:
        super().__init__(
            f"{participant}: {name!r} exists with another filter; unsubscribe it, or name another"
        )
        self.participant = participant
        self.name = name


class NotSubscribedError(ClientError):
    """`participant` has no subscription called `name`."""

    def __init__(self, participant: str, name: str) -> None:
        super().__init__(f"{participant}: no subscription {name!r}; name one that exists")
        self.participant = participant
        self.name = name
