"""The contract as an access file of the home's Mosquitto (acl_file).

Each on-device service is a user of its own name. What no line allows Mosquitto drops without a word.
"""

from __future__ import annotations

from eventplane.contract import Contract, ParticipantKind
from eventplane.topics import (
    OUTBOXES,
    URGENT_CLIENT_SUFFIX,
    handlers_answer_topic,
    handlers_topic,
    interest_topic,
    local_topic,
    receipt_topic,
    state_answer_topic,
    state_topic,
)

FORWARDER = "eventplane_forwarder"
"""The forwarder's user. With an underscore, which no participant's name has."""

_HEAD = """# Access rules of the home's broker: `eventplane contract acl` writes it, again for each contract.
# A user is an on-device service of the contract, or the forwarder."""


def acl(contract: Contract) -> str:
    """The file's text."""
    theirs: list[str] = []
    ours: list[str] = []
    for service in contract.of_kind(ParticipantKind.DEVICE_SERVICE):
        name, outbox, inbox = service.name, service.outbox.box, service.inbox.box
        rights = [("write", local_topic(name, outbox)), ("read", receipt_topic(name, outbox))]
        rights += [("read", local_topic(name, inbox)), ("write", receipt_topic(name, inbox))]
        rights += [("write", state_topic(name)), ("read", state_answer_topic(name))]
        rights += [("write", interest_topic(name))]
        rights += [("write", handlers_topic(name)), ("read", handlers_answer_topic(name))]
        rights += [("write", each.filter) for each in service.mappings]
        if service.replies is not None:
            replies = service.replies.box
            rights += [("read", local_topic(name, replies)), ("write", receipt_topic(name, replies))]
        theirs += ["", f"user {name}", *(f"topic {right} {topic}" for right, topic in rights)]
        # The other end of each.
        ours += [f"topic {'read' if right == 'write' else 'write'} {topic}" for right, topic in rights]
    # Its second session only receives.
    received = (OUTBOXES, *(each.filter for each in contract.mappings))
    urgent = ["", f"user {FORWARDER}{URGENT_CLIENT_SUFFIX}", *(f"topic read {each}" for each in received)]
    return "\n".join([_HEAD, "", f"user {FORWARDER}", f"topic read {OUTBOXES}", *ours, *urgent, *theirs])
