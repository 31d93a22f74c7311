"""Names and remedies of MQTT 5's reason codes (chapter 2.4) and MQTT 3.1.1's return codes."""

from __future__ import annotations

from typing import Final

from eventplane_mqtt.endpoint import Endpoint, TlsFiles

FAILURE: Final = 0x80
"""Codes from here on are failures."""

_NAMES: Final = {
    0x00: "success",
    0x10: "no matching subscribers",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive timeout",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}

_OF_RETURN_CODE: Final = {1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}

_CERTIFICATE: Final = "see that the certificate is active and its policy allows client id {client_id!r}"
_LOGIN: Final = "see that the broker knows this user name and password, and lets client id {client_id!r} in"
_NO_IDENTITY: Final = (
    "see whether the broker wants a user name and password, and client id {client_id!r} may connect"
)
_OF_IDENTITY: Final = frozenset({0x85, 0x86, 0x87, 0x8A})
"""The broker does not accept our identity."""

HUNG_UP: Final = "the broker hung up"
"""All that is known of an end without a reason, as MQTT 3.1.1 has it."""

_REMEDIES: Final = {
    0x84: "set local.protocol (or cloud.protocol) to the other version",
    0x8E: "another connection uses client id {client_id!r}; give each client its own",
    0x93: "a smaller window of unacknowledged publishes is needed",
    0x95: "see the broker's limit of a message",
    0x9C: "set another host",
    0x9D: "set another host",
}


def name(code: int) -> str:
    """Return the code's name in MQTT 5."""
    return _NAMES.get(code, f"unknown reason 0x{code:02x}")


def identity(endpoint: Endpoint) -> str:
    """Return the remedy when the broker does not accept our identity."""
    if isinstance(endpoint.tls, TlsFiles):
        remedy = _CERTIFICATE
    else:
        remedy = _LOGIN if endpoint.login else _NO_IDENTITY
    return remedy.format(client_id=endpoint.client_id)


def of_connack(code: int) -> int:
    """Return MQTT 5's code for a CONNACK's, whose codes below 0x80 are MQTT 3.1.1's."""
    return _OF_RETURN_CODE.get(code, code)


def explain(code: int, text: str, endpoint: Endpoint) -> str:
    """Return the name, the broker's own words if any, and the remedy if there is one."""
    details = f" ({text})" if text else ""
    if code in _OF_IDENTITY:
        return f"{name(code)}{details}; {identity(endpoint)}"
    remedy = _REMEDIES.get(code)
    return f"{name(code)}{details}" + (f"; {remedy.format(client_id=endpoint.client_id)}" if remedy else "")
