"""Names and remedies of MQTT 5's reason codes (chapter 2.4) and MQTT 3.1.1's return codes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from eventplane_mqtt.endpoint import Endpoint, TlsFiles

FAILURE: Final = 0x80
"""Codes from here on are failures."""

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
    with suppress(Exception):  # the program's file may be damaged by now
        from eventplane_mqtt.reason_names import NAMES  # which a device without refusals need not hold

        return NAMES.get(code, f"unknown reason 0x{code:02x}")
    return f"reason 0x{code:02x}"


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
