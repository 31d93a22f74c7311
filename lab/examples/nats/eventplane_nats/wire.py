"""An event as a message of NATS: the body is the event in JSON format (CloudEvents, structured mode)."""

from collections.abc import Mapping
from typing import Final, Protocol

ROUTE: Final = "route"
"""The header in which a router names the route."""

RETRIES: Final = "retries"
"""The header in which a router tells a reader without the contract when to try again."""


class _Message(Protocol):
    @property
    def hints(self) -> Mapping[str, str]: ...
    @property
    def deduplication(self) -> str: ...


def headers_of(message: _Message) -> dict[str, str]:
    """Return the headers of `message`; a stream drops a copy by `Nats-Msg-Id` within its window.

    Of the hints only the router's own: the others repeat texts of producers, which headers cannot all carry.
    """
    headers = {
        "Content-Type": "application/cloudevents+json",
        "Nats-Msg-Id": message.deduplication,
    }
    return headers | {
        name: message.hints[name] for name in (ROUTE, RETRIES, "contract") if name in message.hints
    }
