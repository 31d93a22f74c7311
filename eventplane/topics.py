"""MQTT topic names, in the home and towards IoT Core. Every name follows from the participant and its box."""

from __future__ import annotations

import re
from typing import Final

from eventplane.names import CANARY_CLIENT

LOCAL_PREFIX = "eventplane"

OUTBOXES = f"{LOCAL_PREFIX}/+/outbox"
"""The filter of every outbox on the home's Mosquitto, also of those that no contract knows."""

MISSPELT_OUTBOXES = (f"/{OUTBOXES}", f"{OUTBOXES}/", f"/{OUTBOXES}/")
"""Beside them: with a slash that does not belong there, a broker takes the message and nobody gets it."""

_URGENT_RULE: Final = "_urgent"


def local_topic(participant: str, box: str) -> str:
    """The topic of a service's `inbox` or `outbox` on the home's Mosquitto."""
    return f"{LOCAL_PREFIX}/{participant}/{box}"


def receipt_topic(participant: str, box: str) -> str:
    """Return the topic of the receipts of a box's reader (see `eventplane.receipts`).

    For an outbox the forwarder writes it once the spool has committed; for an inbox with `receipts` the
    service writes it once it has handled the event.
    """
    return f"{LOCAL_PREFIX}/{participant}/{box}/receipts"


def state_topic(service: str) -> str:
    """Return the topic on which a service on the device asks for the current state of a key."""
    return f"{LOCAL_PREFIX}/{service}/state"


def interest_topic(service: str) -> str:
    """Return the topic of a service's announcements of what it handles; the message is retained."""
    return f"{LOCAL_PREFIX}/{service}/interest"


def is_outbox_topic(topic: str) -> bool:
    """Return whether somebody sends events on `topic`, whoever that is, or means to (`MISSPELT_OUTBOXES`)."""
    match topic.removeprefix("/").removesuffix("/").split("/"):
        case [prefix, _, "outbox"]:
            return prefix == LOCAL_PREFIX
        case _:
            return False


def state_answer_topic(service: str) -> str:
    """Return the topic of the forwarder's answer."""
    return f"{state_topic(service)}/answer"


def handlers_topic(service: str) -> str:
    """Return the topic on which a service on the device asks who handles an event."""
    return f"{LOCAL_PREFIX}/{service}/handlers"


def handlers_answer_topic(service: str) -> str:
    """Return the topic of the forwarder's answer."""
    return f"{handlers_topic(service)}/answer"


def device_topic(thing: str, box: str) -> str:
    """The topic of a device's `inbox` or `outbox` at IoT Core: beneath the thing's own prefix."""
    return f"devices/{thing}/{box}"


def basic_ingest_topic(rule: str, thing: str) -> str:
    """Return the topic of a device's outbox: straight into the rule, without the charge of the broker."""
    return f"$aws/rules/{rule}/{device_topic(thing, 'outbox')}"


def urgent_rule(rule: str) -> str:
    """The rule for urgent events beside the ingest `rule`: it leads to a queue and a router of their own."""
    return f"{rule}{_URGENT_RULE}"


def is_urgent_rule(rule: str) -> bool:
    """Return whether `rule` is one that `urgent_rule` names."""
    return rule.endswith(_URGENT_RULE)


URGENT_CLIENT_SUFFIX = "-urgent"
"""Behind the forwarder's client id, and its user name, for its second session at the home's Mosquitto."""

CLAIM_CLIENT_PREFIX = "claim-"
"""What the client ids of devices without a certificate start with. No device is called so: no claim can push
one out of its connection."""

RENEWAL_CLIENT_PREFIX = "renewal-"
"""What the client ids start with under which devices ask for their next certificate with their present one.
The claim's policy allows its own prefix only, and the devices' policy this one: so it tells who asks."""

PRESENCE_TOPICS: Final = "$aws/events/presence/+/#"
"""Where IoT Core tells of connections and their ends (AWS IoT Developer Guide, lifecycle events)."""

CREATE_FROM_REQUEST_TOPIC = "$aws/certificates/create-from-csr/json"
"""Asks for a certificate for a key that the device made (AWS IoT, device provisioning MQTT API)."""

CREATE_WITH_KEY_TOPIC = "$aws/certificates/create/json"
"""Asks for a certificate and its key."""


# AWS IoT's thing names, short enough for a client id of 128 with either prefix.
_NAME: Final = re.compile(r"[a-zA-Z0-9:_-]{1,120}")

# Written as an attribute of events, so as plain as the parts of a key there.
GROUP: Final = re.compile(r"[A-Za-z0-9._~-]{1,100}")


def is_device_name(name: str) -> bool:
    """Return whether a device can be called `name`."""
    prefixes = (CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX)
    return _NAME.fullmatch(name) is not None and not name.startswith(prefixes) and name != CANARY_CLIENT


def is_group_name(name: str) -> bool:
    """Return whether a group of devices can be called `name`."""
    return GROUP.fullmatch(name) is not None


def register_topic(template: str) -> str:
    """Return the topic on which a provisioning template is asked to register a device's certificate."""
    return f"$aws/provisioning-templates/{template}/provision/json"


def answer_topics(request: str) -> tuple[str, str]:
    """Return the topics of the answers to a provisioning request: accepted, rejected."""
    return f"{request}/accepted", f"{request}/rejected"
