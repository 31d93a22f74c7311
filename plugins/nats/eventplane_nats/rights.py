"""Who may do what on the server: services their own channels, routers the inboxes, operators everything.

Whoever can publish to an inbox forges events of anybody, and whoever can publish to an outbox sends in the
service's name: a server for more than one service needs these rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventplane.contract import Contract
from eventplane.resource_names import channel_queue, queue_name
from eventplane_nats.streams import READER, channels

ROUTER = "router"
"""The user that routers connect as."""

OPERATOR = "operator"
"""The user for `python -m eventplane_nats`."""


def inbox_prefix(user: str) -> str:
    """Return the subjects at which `user` alone gets answers, and with them its events."""
    return f"_INBOX.{user}"


def authorization(contract: Contract, environment: str) -> str:
    """Return the block `authorization` of a server's configuration; passwords come from its environment."""
    users = [
        (OPERATOR, [">"], [">"]),
        (ROUTER, sorted(_streams(contract, environment, "inbox")), [f"{inbox_prefix(ROUTER)}.>"]),
    ]
    for name in sorted({each.participant for each in channels(contract)}):
        own = {
            each.box: queue_name(environment, channel_queue(each))
            for each in channels(contract)
            if each.participant == name
        }
        publish = [own["outbox"]] if "outbox" in own else []
        for stream in own.values():
            publish += [
                f"$JS.API.CONSUMER.INFO.{stream}.{READER}",
                f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{READER}",
                f"$JS.ACK.{stream}.{READER}.>",
            ]
        users.append((name, publish, [f"{inbox_prefix(name)}.>"]))
    lines = [
        f"    {{ user: {json.dumps(name)}, password: ${password_variable(name)}, "
        f"permissions: {{ publish: {json.dumps(publish)}, subscribe: {json.dumps(subscribe)} }} }}"
        for name, publish, subscribe in users
    ]
    return "\n".join(["authorization {", "  users: [", *lines, "  ]", "}", ""])


def password_variable(user: str) -> str:
    """Return the variable that the server reads the password of `user` from."""
    return f"NATS_{user.upper().replace('-', '_')}"


def _streams(contract: Contract, environment: str, box: str) -> Iterator[str]:
    return (queue_name(environment, channel_queue(each)) for each in channels(contract) if each.box == box)
