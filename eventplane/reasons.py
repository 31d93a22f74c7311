"""What can become of an event, and every reason that a dead letter can have, with its remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

_SENDER: Final = "Correct the sender, which sends it anew: as it is, it would be refused again."

REPLAY: Final = "replay"
"""The reason of the ledger records of replayed events, and the name of the queue of orders."""

REDRIVE: Final = "redrive"
"""The reason of the ledger records of events that an operator sent back into an inbox."""


class Outcome(StrEnum):
    """The ends of an event's way over one route. No event vanishes: the ledger has one of these for each."""

    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    DROPPED = "dropped"
    UNROUTED = "unrouted"
    NO_INTEREST = "no_interest"
    """Not forwarded: the route takes it, and its reader has announced that it handles other events."""


class Explained(StrEnum):
    """Stable words, each with what it `means`, and the `remedy` of what is wrong."""

    means: str
    remedy: str

    def __new__(cls, word: str, means: str, remedy: str = _SENDER) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.means = means
        member.remedy = remedy
        return member


class Reason(Explained):
    """Why an event became a dead letter.

    A reader that refuses an event may give a word of its own, which is none of these.
    """

    RECEIVES_EXHAUSTED = (
        "receives_exhausted",
        "No reader settled the message in the receives that its queue counts. The event itself is good.",
        "Look for the event's id in the log of the reader, end the cause, then redrive the queue.",
    )
    RULE_FAILED = (
        "rule_failed",
        "SQS did not take the message from the IoT rule; the rule wrote this about it instead.",
        "End the cause that the detail names (a permission, a key, a quota), then redrive the queue.",
    )
    PAYLOAD_INVALID = (
        "payload_invalid",
        "The payload is not what the contract's schema says; the detail says where.",
        "If the schema is wrong: correct it, deploy, redrive the dead letter. Otherwise correct the sender.",
    )
    UNKNOWN_DATASCHEMA = (
        "unknown_dataschema",
        "The event names a schema version that the contract does not list.",
        "List the version under the type's `schemas`, deploy, redrive the dead letter.",
    )
    BAD_FRAME = (
        "bad_frame",
        "A message in the ingest queue is no frame: the rule was changed, or somebody writes to the queue.",
        "Compare the deployed rule with `make diff`, deploy. It cannot go back: its sender is unknown.",
    )
    BAD_RULE_FAILURE = (
        "bad_rule_failure",
        "A message in the ingest-error queue is no failure of an IoT rule: somebody writes to the queue.",
        "Read the original, and see who may write to the queue. It does not come from a device.",
    )
    NOT_TAKEN = (
        "not_taken",
        "SQS will never take the event, for instance because of a character that no message may have.",
        "Read the detail, correct the sender. The event's other deliveries go on.",
    )
    NOT_IN_TAP = (
        "not_in_tap",
        "Events of a replay are no longer in the tap's file: they were erased, or the file has expired.",
        "If the file has expired, restore it and replay again. Erased events stay erased.",
    )
    DESTINATION_GONE = (
        "destination_gone",
        "A replay names an inbox that has no queue any more, or a route that is gone.",
        "Nothing, if its participant was retired. Otherwise name a route or participant that exists.",
    )
    BAD_ORDER = (
        "bad_order",
        "A message of the replay queue is not an order, or names routes that its contract does not have.",
        "Read the detail; order it by `eventplane replay`. Otherwise see who may write to the queue.",
    )
    # Of readers and webhooks (docs/reference/client.md, docs/how-to/webhooks.md).
    IN_DOUBT = (
        "in_doubt",
        "A reader ended while it handled the event, so the event may have been handled or not.",
        "Look in the reader's data. If it was not handled, redrive the dead letter.",
    )
    MAX_RECEIVES = (
        "max_receives",
        "`max_receives` deliveries ended without a settlement: the reader died of the event, or was killed.",
        "Look for the event's id in the log of the reader, end the cause, then redrive the dead letter.",
    )
    ENDPOINT_REFUSED = (
        "endpoint_refused",
        "A webhook's endpoint refused the event (4xx).",
        "Correct what the detail says (address, key, event), then redrive the dead letter.",
    )
    ENDPOINT_GONE = (
        "endpoint_gone",
        "A webhook's endpoint answered 410 until the event was given up.",
        "Ask its owner for a new address, set it and redrive the dead letter; or end the subscription.",
    )
    ENDPOINT_MOVED = (
        "endpoint_moved",
        "A webhook's endpoint answered with a redirect (301, 308), which is not followed.",
        "Set the new address, which the detail names, then redrive the dead letter.",
    )
    ENDPOINT_FAILED = (
        "endpoint_failed",
        "A webhook's endpoint did not accept the event within its `give_up_after_s`.",
        "Read the detail, restore the endpoint, then redrive the dead letter.",
    )
    ENDPOINT_FORBIDDEN = (
        "endpoint_forbidden",
        "A webhook's host led to an address that is not public until the event was given up.",
        "Correct the address or the host's DNS entry, then redrive the dead letter.",
    )

    # Of loops, of the uplink, and of services on a device.
    HOP_LIMIT = (
        "hop_limit",
        "The event went from service to service more often than `MAX_HOPS`: the routes form a loop.",
        "Take one of the routes out or narrow its filter; `make contract` warns of loops that it can see.",
    )
    REFUSED_BY_CLOUD = (
        "refused_by_cloud",
        "IoT Core refused one event of a device again and again, alone in its batch.",
        "Read the detail: a device policy or a quota can be corrected, then the original can be sent again.",
    )
    REFUSED = (
        "refused",
        "A service on the device said that it can never handle the event, without a usable reason word.",
        "Read the detail, and ask whoever owns the service. A service's own word can stand here as well.",
    )
    UNROUTED = (
        "unrouted",
        "No route of the device takes the event's type.",
        "Add a route, or correct the type that the service sends.",
    )
    UNKNOWN_CHANNEL = (
        "unknown_channel",
        "A service on the device publishes to a topic that no channel has.",
        "Declare the service in the contract, or correct its topic; the device needs the new contract.",
    )
    RETAINED = (
        "retained",
        "A service published the event with MQTT's retain flag: the broker repeats it over each connection.",
        "Publish events without the retain flag, and clear the retained one (by an empty message with it).",
    )
    RESERVED_ATTRIBUTE = (
        "reserved_attribute",
        "The sender set an attribute that only the plane sets (`senderdevice`, `deviceepoch` and the like).",
    )
    SENDER_NOT_ALLOWED = (
        "sender_not_allowed",
        "The sender, which the detail names, may not send this type, or spoke for another.",
        "If it should: add the type to its `sends`, deploy, redrive the dead letter. Else see what "
        "runs there: `fleet quarantine` takes a device off.",
    )

    # On the way down to devices (docs/explanation/downlink.md).
    NO_DEVICE = (
        "no_device",
        "An event for devices names none: no `todevice`, no `togroup`.",
    )
    TWO_ADDRESSES = (
        "two_addresses",
        "An event for devices has `todevice` and `togroup`.",
    )
    UNKNOWN_DEVICE = (
        "unknown_device",
        "The fleet's registry has no such device, or it was decommissioned.",
        "Look with `fleet show`; correct the sender, or register the device and redrive the dead letter.",
    )
    UNKNOWN_GROUP = (
        "unknown_group",
        "No device of the fleet is in that group.",
        "Put devices into it with `fleet groups` and redrive the dead letter, or correct the sender.",
    )
    NO_STATE_KEY = (
        "no_state_key",
        "A state has no `statekey`.",
    )
    INVALID_STATE_KEY = (
        "invalid_state_key",
        "The `statekey` is not `kind/namespace/name`, or begins with `command/source/`.",
    )
    INVALID_STATE_VERSION = (
        "invalid_state_version",
        "The `stateversion` is no number, or a state has none.",
    )
    INVALID_STATE_UID = (
        "invalid_state_uid",
        "The `stateuid` has characters that it may not have.",
    )
    INVALID_STATE_DELETE = (
        "invalid_state_delete",
        "`statedelete` is no Boolean, or stands on a command.",
    )
    TOO_LARGE_FOR_DOWNLINK = (
        "too_large_for_downlink",
        "Too large for a device's inbox (docs/reference/limits.md).",
    )
    TOO_MANY_COMMANDS = (
        "too_many_commands",
        "So many commands of one key wait for the device already that there is no room for another.",
        "See with `desired` what waits and whether the device is there; give commands an `expirytime`.",
    )
    VERSION_JUMP = (
        "version_jump",
        "A state's version is a time more than a day ahead, or a counter that jumps by more than a million: "
        "hardly anything could be newer.",
        "Correct the sender. If the key has such a version: `eventplane desired reset KEY`.",
    )
    ADDRESS_NOT_ALLOWED = (
        "address_not_allowed",
        "A cloud service addressed devices, a group or all, which its `may_address` does not name.",
        "Correct the sender, or widen `may_address`, deploy, redrive the dead letter.",
    )
    KEY_NOT_ALLOWED = (
        "key_not_allowed",
        "The key belongs to another sender, or is one that steers the forwarder and not for this type.",
        "Use another key. If another holds it that must not: `eventplane desired reset KEY`.",
    )
    NOT_FOR_A_DEVICE = (
        "not_for_a_device",
        "What came to a device's inbox has not the plane's attributes.",
        "Find who else may publish to devices' inboxes, and take the permission away.",
    )
    OLDER = (
        "older",
        "A device holds a newer state than the cloud knows of: the cloud's table was lost or put back.",
        "Send the present state with a higher `stateversion`, or `eventplane desired reset KEY`.",
    )
    DEVICE_GONE = (
        "device_gone",
        "A command waited for a device that was decommissioned.",
        "Nothing, unless it was by mistake.",
    )
    TOO_MANY_KEYS = (
        "too_many_keys",
        "The device holds as many keys as it can.",
        "Delete states that it no longer needs (`statedelete`).",
    )
    TOO_MUCH_STATE = (
        "too_much_state",
        "What the device holds takes as much of its store as states may.",
        "Delete states that it no longer needs (`statedelete`), or make them smaller.",
    )
    CONTRACT_REFUSED = (
        "contract_refused",
        "A contract that was sent to the device cannot follow the one it has; the detail says why.",
        "Compile it with the software that the device has, and send it with a higher `stateversion`.",
    )
    INTEREST_REFUSED = (
        "interest_refused",
        "What the cloud wants, sent down to a device, cannot be read there; what it had before stays.",
        "Bring device and cloud to one software, then `eventplane interest publish`.",
    )
    NO_INTEREST = (
        "no_interest",
        "A command was sent to a device whose service announced that it does not handle such events.",
        "Correct what the service announces, or send what it handles.",
    )
    BAD_ACKNOWLEDGEMENT = (
        "bad_acknowledgement",
        "A device's answer to the downlink cannot be read.",
        "Compare the device's software with the cloud's; the event is sent again meanwhile.",
    )

    # What cannot be read, or is no CloudEvent.
    NOT_BASE64 = (
        "not_base64",
        "A compressed batch that is not base64.",
    )
    NOT_JSON = (
        "not_json",
        "Not JSON.",
    )
    NOT_UTF8 = (
        "not_utf8",
        "Not UTF-8.",
    )
    BYTE_ORDER_MARK = (
        "byte_order_mark",
        "A byte order mark stands in front.",
    )
    NOT_AN_OBJECT = (
        "not_an_object",
        "JSON, but no object.",
    )
    DUPLICATE_KEY = (
        "duplicate_key",
        "A member stands twice; readers would disagree which one counts.",
    )
    LONE_SURROGATE = (
        "lone_surrogate",
        "A text has half a surrogate pair.",
    )
    TOO_DEEP = (
        "too_deep",
        "Nested too deeply (docs/reference/limits.md).",
    )
    NUMBER_TOO_LONG = (
        "number_too_long",
        "A number has too many digits (docs/reference/limits.md).",
    )
    NUMBER_TOO_LARGE = (
        "number_too_large",
        "A number with a fraction or an exponent is beyond a double's range: readers get infinity.",
    )
    TOO_LARGE = (
        "too_large",
        "Larger than an event or a batch may be (docs/reference/limits.md).",
    )
    TOO_MANY = (
        "too_many",
        "A batch has too many events (docs/reference/limits.md).",
    )
    NOT_ZLIB = (
        "not_zlib",
        "A compressed batch is damaged.",
    )
    MISSING_ATTRIBUTE = (
        "missing_attribute",
        "A required attribute is missing.",
    )
    ATTRIBUTE_NAME = (
        "attribute_name",
        "An attribute's name breaks the rules of CloudEvents.",
    )
    ATTRIBUTE_VALUE = (
        "attribute_value",
        "An attribute's value breaks its rule (docs/reference/attributes.md); the detail names both.",
    )
    DATA_TWICE = (
        "data_twice",
        "The event has `data` and `data_base64`.",
    )
    DATA_BASE64 = (
        "data_base64",
        "`data_base64` is not base64.",
    )
    DATA_NOT_TEXT = (
        "data_not_text",
        "The data of a text type is no JSON string.",
    )
    CHARSET = (
        "charset",
        "A webhook cannot write the data in the charset that its content type declares.",
    )


OTHER: Final = (
    "A reader's own word, the name of the exception that its handler raised, or a newer version's reason.",
    "Read the detail, and ask whoever owns the reader.",
)
"""The meaning and the remedy of a word that is no `Reason`."""


def explained(word: str) -> tuple[str, str]:
    """Return what a dead letter's reason `word` means, and the remedy."""
    reason = next((each for each in Reason if each == word), None)
    return (reason.means, reason.remedy) if reason else OTHER
