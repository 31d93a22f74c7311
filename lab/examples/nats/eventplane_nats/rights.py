"""The rights on the server: services their own channels, routers the inboxes, operators everything.

Whoever can publish to an inbox forges events of anybody, and whoever can publish to an outbox sends in the
service's name: a server for more than one service needs these rules.

Each service has an account of its own. Permissions alone do not separate services: a server writes answers
and deliveries to whatever subject a request names for them, without a look at the permissions of who asks,
so that a service could write what is in its outbox to the inbox of another, or purge that. No such subject
leads out of an account; only what an account exports can be reached from another.
"""

import json
from typing import Any

from eventplane.contract import Contract
from eventplane.resource_names import channel_queue, queue_name
from eventplane_nats.streams import READER, channels

ROUTER = "router"
"""The user that routers connect as, and its account."""

OPERATOR = "operator"
"""The user for `python -m eventplane_nats`, and its account."""

_API = "$JS.API"


def inbox_prefix(user: str) -> str:
    """Return the subjects at which `user` alone gets answers, and with them its events."""
    return f"_INBOX.{user}"


def api_of(participant: str) -> str:
    """Return the prefix by which the operator reaches JetStream in the account of `participant`."""
    return f"{participant}.{_API.removeprefix('$')}"


def accounts(contract: Contract, environment: str) -> str:
    """Return the block `accounts` of a server's configuration; passwords come from its environment."""
    streams: dict[str, dict[str, str]] = {}
    for each in channels(contract):
        streams.setdefault(each.participant, {})[each.box] = queue_name(environment, channel_queue(each))
    inboxes = {name: own["inbox"] for name, own in sorted(streams.items()) if "inbox" in own}
    blocks = {
        OPERATOR: [
            _users(OPERATOR, [">"], [">"]),
            _block("imports", (_import(each, f"{_API}.>", f"{api_of(each)}.>") for each in sorted(streams))),
        ],
        ROUTER: [
            _users(ROUTER, sorted(inboxes.values()), [f"{inbox_prefix(ROUTER)}.>"]),
            _block("imports", (_import(name, stream, stream) for name, stream in inboxes.items())),
        ],
        **{name: _of_service(name, own) for name, own in sorted(streams.items())},
    }
    lines = [
        line
        for name, block in blocks.items()
        for line in (f"  {json.dumps(name)}: {{", *(f"    {each}" for each in block), "  }")
    ]
    return "\n".join(["accounts {", *lines, "}", ""])


def password_variable(user: str) -> str:
    """Return the variable that the server reads the password of `user` from."""
    return f"NATS_{user.upper().replace('-', '_')}"


def _of_service(name: str, own: dict[str, str]) -> list[str]:
    """The account of the service `name` with the streams `own`, by box."""
    publish = [own["outbox"]] if "outbox" in own else []
    for stream in own.values():
        publish += [
            f"{_API}.CONSUMER.INFO.{stream}.{READER}",
            f"{_API}.CONSUMER.MSG.NEXT.{stream}.{READER}",
            f"$JS.ACK.{stream}.{READER}.>",
        ]
    exports = [{"service": f"{_API}.>", "accounts": [OPERATOR]}]
    if "inbox" in own:
        exports.append({"service": own["inbox"], "accounts": [ROUTER]})
    return [
        "jetstream: enabled",
        _users(name, publish, [f"{inbox_prefix(name)}.>"]),
        _block("exports", exports),
    ]


def _users(name: str, publish: list[str], subscribe: list[str]) -> str:
    # The password is the server's variable, so no text of JSON.
    return (
        f"users: [{{ user: {json.dumps(name)}, password: ${password_variable(name)}, "
        f"permissions: {{ publish: {json.dumps(publish)}, subscribe: {json.dumps(subscribe)} }} }}]"
    )


def _import(participant: str, subject: str, to: str) -> dict[str, Any]:
    return {"service": {"account": participant, "subject": subject}, "to": to}


def _block(name: str, entries: Any) -> str:
    return f"{name}: {json.dumps(list(entries))}"
