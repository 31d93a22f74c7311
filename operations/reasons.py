"""Every reason a dead letter can have, what it means and what to do: docs/runbook.md shows the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eventplane.delivery import PAYLOAD_INVALID, UNKNOWN_DATASCHEMA
from eventplane.downlink import errors
from eventplane.downlink.acknowledgements import OLDER
from eventplane.downlink.desired import DEVICE_GONE
from eventplane.envelope import HOP_LIMIT
from eventplane.sending import SENDER_NOT_ALLOWED
from operations.letters import RECEIVES_EXHAUSTED, RULE_FAILED


@dataclass(frozen=True, slots=True)
class Reason:
    """What a reason word `means`, and what to `do`."""

    means: str
    do: str


_SENDER: Final = "Correct the sender, which sends it anew: as it is, it would be refused again."

REASONS: Final = {
    RECEIVES_EXHAUSTED: Reason(
        "A reader gave the message back, or ran out of time, `max_receives` times. The event itself is good.",
        "Look for the event's id in the log of the reader, end the cause, then redrive the queue.",
    ),
    RULE_FAILED: Reason(
        "SQS did not take the message from the IoT rule; the rule wrote this about it instead.",
        "End the cause that the detail names (a permission, a key, a quota), then redrive the queue.",
    ),
    PAYLOAD_INVALID: Reason(
        "The payload is not what the contract's schema says; the detail says where.",
        "If the schema is wrong: correct it, deploy, redrive the letter. Otherwise correct the sender.",
    ),
    UNKNOWN_DATASCHEMA: Reason(
        "The event names a schema version that the contract does not list.",
        "List the version under the type's `schemas`, deploy, redrive the letter.",
    ),
    "bad_frame": Reason(
        "What came from the IoT rule is no frame: the rule was changed, or somebody writes to the queue.",
        "Compare the deployed rule with `make diff`, deploy. It cannot go back: nobody knows who sent it.",
    ),
    "bad_rule_failure": Reason(
        "What lay in the ingest-error queue is no failure of an IoT rule: somebody writes to the queue.",
        "Read the original, and who may write to the queue; nothing of it comes from a device.",
    ),
    "not_taken": Reason(
        "SQS will never take the event, for instance because of a character that no message may have.",
        "Read the detail, correct the sender. The event's other deliveries are not concerned.",
    ),
    "not_in_tap": Reason(
        "Events that were to be sent again are not in the tap's file any more: erased, or the file has left.",
        "If the file has left by its age, restore it and replay again. What was erased stays erased.",
    ),
    "destination_gone": Reason(
        "An event was to be sent again to an inbox that has no queue any more, or over a route that is gone.",
        "Nothing, if its participant was retired. Otherwise name a route or participant of today.",
    ),
    "bad_order": Reason(
        "A message of the replay queue is no order, or names routes that the contract of then does not give.",
        "Read the detail; order it by `python -m eventplane replay`. Else see who may write to the queue.",
    ),
    HOP_LIMIT: Reason(
        "The event went from service to service more often than `MAX_HOPS`: the routes form a loop.",
        "Take one of the routes out or narrow its filter; `make contract` warns of loops that it can see.",
    ),
    "refused_by_cloud": Reason(
        "IoT Core refused one event of a device again and again, alone in its batch.",
        "Read the detail: a device policy or a quota can be corrected, then the original can be sent again.",
    ),
    "refused": Reason(
        "A service on the device said that it can never handle the event, without a usable reason word.",
        "Read the detail, and ask whoever owns the service. A service's own word can stand here as well.",
    ),
    "unrouted": Reason(
        "No route of the device takes the event's type.",
        "Add a route, or correct the type that the service sends.",
    ),
    "unknown_channel": Reason(
        "A service on the device publishes to a topic that no channel has.",
        "Declare the service in the contract, or correct its topic; the device needs the new contract.",
    ),
    "retained": Reason(
        "A service published the event with MQTT's retain flag: the broker repeats it over each connection.",
        "Publish events without the retain flag, and clear the retained one (by an empty message with it).",
    ),
    "reserved_attribute": Reason(
        "The sender set an attribute that only the plane sets (`senderdevice`, `deviceepoch` and the like).",
        _SENDER,
    ),
    SENDER_NOT_ALLOWED: Reason(
        "The sender, which the detail names, may not send this type, or spoke for another.",
        "If it should: add the type to its `sends`, deploy, redrive the letter. Else see what runs there: "
        "`fleet quarantine` takes a device off.",
    ),
    # On the way down to devices (docs/downlink.md).
    errors.NO_DEVICE: Reason("An event for devices names none: no `todevice`, no `togroup`.", _SENDER),
    errors.TWO_ADDRESSES: Reason("An event for devices has `todevice` and `togroup`.", _SENDER),
    errors.UNKNOWN_DEVICE: Reason(
        "The fleet's registry has no such device, or it was decommissioned.",
        "Look with `fleet show`; correct the sender, or register the device and redrive the letter.",
    ),
    errors.UNKNOWN_GROUP: Reason(
        "No device of the fleet is in that group.",
        "Put devices into it with `fleet groups` and redrive the letter, or correct the sender.",
    ),
    errors.NO_STATE_KEY: Reason("A state has no `statekey`.", _SENDER),
    errors.INVALID_STATE_KEY: Reason(
        "The `statekey` is not `kind/namespace/name`, or begins with `command/source/`.", _SENDER
    ),
    errors.INVALID_STATE_VERSION: Reason("The `stateversion` is no number, or a state has none.", _SENDER),
    errors.INVALID_STATE_UID: Reason("The `stateuid` has characters that it may not have.", _SENDER),
    errors.INVALID_STATE_DELETE: Reason("`statedelete` is no Boolean, or stands on a command.", _SENDER),
    errors.TOO_LARGE: Reason("Too large for a device's inbox ([limits.md](limits.md)).", _SENDER),
    errors.TOO_MANY_COMMANDS: Reason(
        "So many commands of one key wait for the device already that there is no room for another.",
        "See with `desired` what waits and whether the device is there; give commands an `expirytime`.",
    ),
    errors.VERSION_JUMP: Reason(
        "A state's version is a time more than a day ahead, or a counter that jumps by more than a million: "
        "hardly anything could be newer.",
        "Correct the sender. If the key has such a version: `python -m eventplane desired reset KEY`.",
    ),
    errors.ADDRESS_NOT_ALLOWED: Reason(
        "A cloud service addressed devices, a group or all, which its `may_address` does not name.",
        "Correct the sender, or widen `may_address`, deploy, redrive the letter.",
    ),
    errors.KEY_NOT_ALLOWED: Reason(
        "The key belongs to another sender, or is one that steers the forwarder and not for this type.",
        "Use another key. If another holds it that must not: `python -m eventplane desired reset KEY`.",
    ),
    errors.NOT_FOR_A_DEVICE: Reason(
        "What came to a device's inbox has not the plane's attributes.",
        "Find who else may publish to devices' inboxes, and take the permission away.",
    ),
    OLDER: Reason(
        "A device holds a newer state than the cloud knows of: the cloud's table was lost or put back.",
        "Send the present state with a higher `stateversion`, or `python -m eventplane desired reset KEY`.",
    ),
    DEVICE_GONE: Reason(
        "A command waited for a device that was decommissioned.", "Nothing, unless it was by mistake."
    ),
    "too_many_keys": Reason(
        "The device holds as many keys as it can.", "Delete states that it no longer needs (`statedelete`)."
    ),
    "too_much_state": Reason(
        "What the device holds takes as much of its store as states may.",
        "Delete states that it no longer needs (`statedelete`), or make them smaller.",
    ),
    "contract_refused": Reason(
        "A contract that was sent to the device cannot follow the one it has; the detail says why.",
        "Compile it with the software that the device has, and send it with a higher `stateversion`.",
    ),
    "interest_refused": Reason(
        "What the cloud wants, sent down to a device, cannot be read there; what it had before stays.",
        "Bring device and cloud to one software, then `python -m eventplane interest --publish`.",
    ),
    "no_interest": Reason(
        "A command was sent to a device whose service announced that it does not handle such events.",
        "Correct what the service announces, or send what it handles.",
    ),
    "bad_acknowledgement": Reason(
        "A device's answer to the downlink cannot be read.",
        "Compare the device's software with the cloud's; the event is sent again meanwhile.",
    ),
    "not_base64": Reason("A compressed batch that is not base64.", _SENDER),
    "not_json": Reason("Not JSON.", _SENDER),
    "not_utf8": Reason("Not UTF-8.", _SENDER),
    "byte_order_mark": Reason("A byte order mark stands in front.", _SENDER),
    "not_an_object": Reason("JSON, but no object.", _SENDER),
    "duplicate_key": Reason("A member stands twice; readers would disagree which one counts.", _SENDER),
    "lone_surrogate": Reason("A text has half a surrogate pair.", _SENDER),
    "too_deep": Reason("Nested too deeply ([limits.md](limits.md)).", _SENDER),
    "number_too_long": Reason("A number has too many digits ([limits.md](limits.md)).", _SENDER),
    "too_large": Reason("Larger than an event or a batch may be ([limits.md](limits.md)).", _SENDER),
    "too_many": Reason("A batch has too many events ([limits.md](limits.md)).", _SENDER),
    "not_zlib": Reason("A compressed batch is damaged.", _SENDER),
    "missing_attribute": Reason("A required attribute is missing.", _SENDER),
    "attribute_name": Reason("An attribute's name breaks the rules of CloudEvents.", _SENDER),
    "attribute_value": Reason(
        "An attribute's value breaks its rule ([extensions.md](extensions.md)); the detail names both.",
        _SENDER,
    ),
    "data_twice": Reason("The event has `data` and `data_base64`.", _SENDER),
    "data_base64": Reason("`data_base64` is not base64.", _SENDER),
    "data_not_text": Reason("The data of a text type is no JSON string.", _SENDER),
}
"""By reason word."""

OTHER: Final = Reason(
    "A word that a service on the device gave, or one of a newer version of the plane.",
    "Read the detail, and ask whoever owns the service.",
)
"""For words that are not in the list."""


def reason_of(word: str) -> Reason:
    """What a reason word means."""
    return REASONS.get(word, OTHER)
