"""The outcomes of an event, and the reasons of dead letters."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

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


class Reason(StrEnum):
    """Why an event became a dead letter; the texts for people are in `operations/reason_texts.toml`.

    A reader that refuses an event may give a word of its own, which is none of these.
    """

    RECEIVES_EXHAUSTED = "receives_exhausted"
    RULE_FAILED = "rule_failed"
    PAYLOAD_INVALID = "payload_invalid"
    UNKNOWN_DATASCHEMA = "unknown_dataschema"
    BAD_FRAME = "bad_frame"
    BAD_RULE_FAILURE = "bad_rule_failure"
    NOT_TAKEN = "not_taken"
    NOT_IN_TAP = "not_in_tap"
    DESTINATION_GONE = "destination_gone"
    BAD_ORDER = "bad_order"

    # Of readers and webhooks (docs/reference/client.md, parts/webhooks/how-to.md).
    IN_DOUBT = "in_doubt"
    MAX_RECEIVES = "max_receives"
    ENDPOINT_REFUSED = "endpoint_refused"
    ENDPOINT_GONE = "endpoint_gone"
    ENDPOINT_MOVED = "endpoint_moved"
    ENDPOINT_FAILED = "endpoint_failed"
    ENDPOINT_FORBIDDEN = "endpoint_forbidden"

    # Of loops, of the uplink, and of services on a device.
    HOP_LIMIT = "hop_limit"
    REFUSED_BY_CLOUD = "refused_by_cloud"
    REFUSED = "refused"
    UNROUTED = "unrouted"
    UNKNOWN_CHANNEL = "unknown_channel"
    RETAINED = "retained"
    RESERVED_ATTRIBUTE = "reserved_attribute"
    SENDER_NOT_ALLOWED = "sender_not_allowed"

    # On the way down to devices (docs/explanation/downlink.md).
    NO_DEVICE = "no_device"
    TWO_ADDRESSES = "two_addresses"
    UNKNOWN_DEVICE = "unknown_device"
    UNKNOWN_GROUP = "unknown_group"
    NO_STATE_KEY = "no_state_key"
    INVALID_STATE_KEY = "invalid_state_key"
    INVALID_STATE_VERSION = "invalid_state_version"
    INVALID_STATE_UID = "invalid_state_uid"
    INVALID_STATE_DELETE = "invalid_state_delete"
    TOO_LARGE_FOR_DOWNLINK = "too_large_for_downlink"
    TOO_MANY_COMMANDS = "too_many_commands"
    VERSION_JUMP = "version_jump"
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    KEY_NOT_ALLOWED = "key_not_allowed"
    NOT_FOR_A_DEVICE = "not_for_a_device"
    OLDER = "older"
    DEVICE_GONE = "device_gone"
    TOO_MANY_KEYS = "too_many_keys"
    TOO_MUCH_STATE = "too_much_state"
    CONTRACT_REFUSED = "contract_refused"
    INTEREST_REFUSED = "interest_refused"
    NO_INTEREST = "no_interest"
    BAD_ACKNOWLEDGEMENT = "bad_acknowledgement"

    # What cannot be read, or is no CloudEvent.
    NOT_BASE64 = "not_base64"
    NOT_JSON = "not_json"
    NOT_UTF8 = "not_utf8"
    BYTE_ORDER_MARK = "byte_order_mark"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_KEY = "duplicate_key"
    LONE_SURROGATE = "lone_surrogate"
    TOO_DEEP = "too_deep"
    NUMBER_TOO_LONG = "number_too_long"
    NUMBER_TOO_LARGE = "number_too_large"
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    NOT_ZLIB = "not_zlib"
    MISSING_ATTRIBUTE = "missing_attribute"
    ATTRIBUTE_NAME = "attribute_name"
    ATTRIBUTE_VALUE = "attribute_value"
    DATA_TWICE = "data_twice"
    DATA_BASE64 = "data_base64"
    DATA_NOT_TEXT = "data_not_text"
    CHARSET = "charset"
