"""From when to when a certificate is valid; the standard library tells it only of a connection's peer."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _VERSION = 0x30, 0xA0
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_LONG, _MOST_LENGTH_BYTES = 0x80, 4
_CENTURY_PIVOT = 50
"""RFC 5280, 4.1.2.5.1: two digits from 50 on are of the last century."""


class Validity(NamedTuple):
    """Both ends, UTC."""

    start: datetime
    end: datetime


class _Value(NamedTuple):
    tag: int
    content: bytes
    rest: bytes


def read_validity(pem: str) -> Validity:
    """The validity of the first certificate in a PEM text. Raises `ValueError` when there is none to read."""
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    start = pem.find(begin)
    stop = pem.find(end, start)
    if start < 0 or stop < 0:
        raise ValueError(f"no {begin} in it")
    der = ssl.PEM_cert_to_DER_cert(pem[start : stop + len(end)])
    # Certificate > tbsCertificate > [version], serialNumber, signature, issuer, validity (RFC 5280, 4.1)
    body = _inside(_inside(der))
    version = _read(body)
    if version.tag == _VERSION:
        body = version.rest
    for _ in ("serialNumber", "signature", "issuer"):
        body = _read(body).rest
    not_before = _read(_inside(body))
    return Validity(_time(not_before), _time(_read(not_before.rest)))


def _inside(der: bytes) -> bytes:
    value = _read(der)
    if value.tag != _SEQUENCE:
        raise ValueError("it is no X.509 certificate")
    return value.content


def _read(der: bytes) -> _Value:
    """The first value of `der` with what follows it."""
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
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
