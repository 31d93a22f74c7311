"""Read when a certificate is valid, which the standard library does only for a connection's peer."""

from __future__ import annotations

import binascii
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from eventplane_mqtt.endpoint import FIRST_CERTIFICATE

_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_LONG, _MOST_LENGTH_BYTES = 0x80, 4
_CENTURY_PIVOT = 50
"""RFC 5280, 4.1.2.5.1: years of two digits from 50 on are of the last century."""


class Validity(NamedTuple):
    """Both ends, UTC."""

    start: datetime
    end: datetime


def seconds_left(certificate: Path, now: datetime) -> float | None:
    """Return how long the certificate in a file is valid from `now` on, None if it cannot be read."""
    with suppress(OSError, ValueError):
        return (read_validity(certificate.read_text("latin-1")).end - now).total_seconds()
    return None


class _Value(NamedTuple):
    tag: int
    content: bytes
    rest: bytes


def read_validity(pem: str) -> Validity:
    """Return the validity of the first certificate in a PEM text. Raises `ValueError` if there is none."""
    found = FIRST_CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("there is no PEM certificate in it")
    der = binascii.a2b_base64(found["body"])
    # Certificate > tbsCertificate > [version], serialNumber, signature, issuer, validity (RFC 5280, 4.1)
    inside = _inside(_inside(der))
    version = _read(inside)
    if version.tag == _VERSION:
        inside = version.rest
    for _ in ("serialNumber", "signature", "issuer"):
        inside = _read(inside).rest
    not_before = _read(_inside(inside))
    return Validity(_time(not_before), _time(_read(not_before.rest)))


def _inside(der: bytes) -> bytes:
    value = _read(der)
    if value.tag != _SEQUENCE:
        raise ValueError("it is no X.509 certificate")
    return value.content


def _read(der: bytes) -> _Value:
    """Return the first value of `der` and what follows it."""
    if len(der) < 2:
        raise ValueError("it is cut short")
    length, at = der[1], 2
    if length & _LONG:
        count = length & ~_LONG
        if not 1 <= count <= _MOST_LENGTH_BYTES:
            raise ValueError("it is no X.509 certificate")
        at = 2 + count
        length = int.from_bytes(der[2:at], "big")
    if len(der) < at + length:
        raise ValueError("it is cut short")
    return _Value(der[0], der[at : at + length], der[at + length :])


def _time(value: _Value) -> datetime:
    if value.tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("it is no X.509 certificate")
    text = value.content.decode("ascii")
    if value.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_PIVOT else "20") + text
    if len(text) != len("YYYYMMDDHHMMSSZ") or not text.endswith("Z"):
        raise ValueError("it is no X.509 certificate")
    # Not strptime, which loads 350 KB of locales.
    month, day, hour, minute, second = (int(text[at : at + 2]) for at in range(4, 14, 2))
    return datetime(int(text[:4]), month, day, hour, minute, second, tzinfo=UTC)
