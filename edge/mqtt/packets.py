"""The packets that a broker may send to us, decoded (MQTT 3.1.1 and MQTT 5, chapter 3 of both).

A `reason` is MQTT 5's code; of the codes of MQTT 3.1.1, 0x80 in a SUBACK means the same and those of a
CONNACK are 1 to 5 (see `edge.mqtt.reasons`).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ConnAck(NamedTuple):
    """The answer to CONNECT. `properties` by identifier, see `edge.mqtt.properties`."""

    session_present: bool
    reason: int
    properties: dict[int, Any]


class SubAck(NamedTuple):
    """The answer to the SUBSCRIBE with packet id `mid`; one reason for each of its filters."""

    mid: int
    reasons: bytes


class Publish(NamedTuple):
    """An application message. `mid` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    mid: int
    duplicate: bool
    retain: bool


class PubAck(NamedTuple):
    """The answer to our QoS 1 PUBLISH with packet id `mid`."""

    mid: int
    reason: int


class PingResp(NamedTuple):
    """The answer to PINGREQ."""


class Disconnect(NamedTuple):
    """The broker's farewell, in MQTT 5 only; `text` is the reason in its own words, or empty."""

    reason: int
    text: str


Packet = ConnAck | SubAck | Publish | PubAck | PingResp | Disconnect
