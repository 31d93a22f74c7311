"""A router's senders: the port that a protocol implements, and the choice of one by the scheme of a URL.

docs/how-to/protocols.md says how one is added. A sender runs in the router's function, used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final, Protocol

from eventplane.errors import EventPlaneError
from eventplane.names import SENDERS
from lambdas.common.log import logger


class OutgoingMessage(Protocol):
    """A message to send: the event in JSON format as `body`, and `hints`, which repeat parts of it.

    `bytes` is the size of both as SQS counts it. Messages of one `group` are in order; those with one
    `deduplication` are copies of one event.
    """

    @property
    def body(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def hints(self) -> Mapping[str, str]: ...
    @property
    def group(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def deduplication(self) -> str: ...


class Acceptance(Enum):
    """The result of a message: the destination has it, it can be sent again, or it will never be taken."""

    TAKEN = "taken"
    AGAIN = "again"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Answer:
    """The `acceptance` of one message; `detail` says why, in the destination's words."""

    acceptance: Acceptance
    detail: str = ""


TAKEN: Final = Answer(Acceptance.TAKEN)


class DestinationSender(Protocol):
    """Sends to the destinations of one protocol."""

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Send `batch`, at most 10 messages and 1 MiB, to `url`; return an answer for each, in order.

        `TAKEN` promises that the destination has stored the message: the router then acknowledges its input.
        Does not raise for what the destination or the network refuse, and returns within 6 seconds; while a
        destination is down it says so without waiting each time, since others wait for their turn.
        """


class NoSenderError(EventPlaneError):
    """No installed package sends to URLs of `scheme`; `known` are the schemes that have a sender."""

    def __init__(self, scheme: str, known: Iterable[str]) -> None:
        self.scheme = scheme
        self.known = sorted(known)
        super().__init__(
            f"nothing is registered in {SENDERS!r} for {scheme!r}; known are: "
            f"{', '.join(self.known) or 'none'}; name the package that adds the protocol, with its metadata, "
            "under `protocols` of the environment in stacks/environments.toml, and deploy"
        )


class SeveralSendersError(EventPlaneError):
    """Several packages send to URLs of `scheme`; `values` are the objects that they name."""

    def __init__(self, scheme: str, values: Iterable[str]) -> None:
        self.scheme = scheme
        self.values = sorted(values)
        super().__init__(
            f"several packages register {scheme!r} in {SENDERS!r}: {', '.join(self.values)}; deploy one"
        )


class Senders:
    """Sends each batch by the sender of its URL's scheme. What one sender raises stops no other."""

    def __init__(self, senders: Mapping[str, DestinationSender]) -> None:
        self._senders = senders

    @classmethod
    def of(cls, urls: Iterable[str], own: Mapping[str, DestinationSender] = MappingProxyType({})) -> Senders:
        """Open the senders that `urls` need beside those of `own`, by their schemes; load no other package.

        What goes to one that cannot be loaded comes again, until it can; the others send all the same.
        Raises `NoSenderError`, `SeveralSendersError`.
        """
        schemes = sorted({scheme_of(url) for url in urls})
        return cls({each: own.get(each) or _open(each, own) for each in schemes})

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        """Send one batch; return the answer for each of its messages, in order. Never raises."""
        try:
            answers = self._senders[scheme_of(url)].send(url, batch)
        except Exception as error:  # noqa: BLE001 - whatever a package of somebody else raises, the others go on
            logger.exception("a sender failed", url=url, messages=len(batch))
            return [Answer(Acceptance.AGAIN, f"{type(error).__name__}: {error}")] * len(batch)
        if len(answers) != len(batch):
            # It does not say which entries it means: all are sent again, as a copy is better than a loss.
            detail = f"its sender answered {len(answers)} times for {len(batch)} messages"
            logger.error("a sender failed", url=url, error=detail)
            return [Answer(Acceptance.AGAIN, detail)] * len(batch)
        return answers


class _Registered:
    """The sender of a package; one that cannot be loaded is tried again with each batch."""

    def __init__(self, registered: EntryPoint) -> None:
        self._registered = registered
        self._sender: DestinationSender | None = None

    def load(self) -> None:
        """Load the sender, unless it is loaded. Raises what the package raises."""
        if self._sender is None:
            self._sender = self._registered.load()()

    def send(self, url: str, batch: Sequence[OutgoingMessage]) -> list[Answer]:
        self.load()
        assert self._sender is not None  # noqa: S101 - `load` raises otherwise
        return self._sender.send(url, batch)


def _open(scheme: str, own: Iterable[str]) -> DestinationSender:
    found = {each.value: each for each in entry_points(group=SENDERS, name=scheme)}
    if not found:
        raise NoSenderError(scheme, {*own, *entry_points(group=SENDERS).names})
    if len(found) > 1:
        raise SeveralSendersError(scheme, found)
    (registered,) = found.values()
    sender = _Registered(registered)
    try:
        sender.load()
    except Exception:  # noqa: BLE001 - as with what it raises later, the others go on
        logger.exception("a sender cannot be loaded", scheme=scheme, value=registered.value)
    return sender


def scheme_of(url: str) -> str:
    """Return what is before the first colon of `url`."""
    return url.partition(":")[0]
