"""A non-blocking TLS connection, remedies for its failures, and when a certificate is valid.

The standard library reads the validity of a connection's peer only.
"""

from __future__ import annotations

import binascii
import re
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from select import POLLIN, POLLOUT
from typing import Final, NamedTuple

from eventplane_mqtt.transport import CHUNK_BYTES, Transport

_CLOCK = "see that the device's clock is right"
_DEVICE = "see that the device's certificate is registered, active and the key's"
_REMEDY_OF_CODE: Final = {9: _CLOCK, 10: f"{_CLOCK}, or renew the server's certificate"}
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_REMEDY_OF_REASON: Final = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the server reports the device's certificate as expired: renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the server reports the device's certificate as revoked: renew it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DEVICE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _DEVICE,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _DEVICE,
    "TLSV1_ALERT_UNKNOWN_CA": _DEVICE,
    "TLSV1_ALERT_ACCESS_DENIED": _DEVICE,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _DEVICE,
    "WRONG_VERSION_NUMBER": "see that the port is one with TLS",
}


class TlsTransport(Transport):
    """Owns a non-blocking TLS socket; `handshake` comes first."""

    _socket: ssl.SSLSocket
    # A record is read as a whole: over a slow line a small packet would wait for a large one behind it.
    piece_bytes = 256

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        super().__init__(wrapped)
        # TLS sometimes has to read in order to write, and the other way round.
        self._send_waits_for = POLLOUT
        self._receive_waits_for = POLLIN

    def interest(self, *, sending: bool, receiving: bool) -> int:
        return (self._send_waits_for if sending else 0) | (self._receive_waits_for if receiving else 0)

    def handshake(self) -> int:
        """Continue the handshake; return 0 when it is done, else the events to poll for."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return POLLIN
        except ssl.SSLWantWriteError:
            return POLLOUT
        return 0

    def send(self, data: memoryview) -> int:
        self._send_waits_for = POLLOUT
        try:
            return self._socket.send(data)
        except ssl.SSLWantReadError:
            self._send_waits_for = POLLIN
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLEOFError as error:
            raise BrokenPipeError from error
        return 0

    def receive(self) -> bytes | None:
        self._receive_waits_for = POLLIN
        try:
            # OpenSSL returns at most one TLS record.
            data = self._socket.recv(CHUNK_BYTES)
        except ssl.SSLWantReadError:
            data = None
        except ssl.SSLWantWriteError:
            self._receive_waits_for = POLLOUT
            data = None
        self.buffered = bool(data) and self._socket.pending() > 0
        return data


def explain(error: OSError) -> str:
    """Return the text of `error`, with the remedy where one is known."""
    remedy = None
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _REMEDY_OF_CODE.get(error.verify_code, "see that ca is the authority of this server")
    elif isinstance(error, ssl.SSLError):
        remedy = _REMEDY_OF_REASON.get(error.reason)
    return f"{error}; {remedy}" if remedy else str(error)


_FIRST_CERTIFICATE: Final = re.compile(
    "(?ms)(?:^|\\A\xef\xbb\xbf)-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[\\0- ]*\n"
    "(?P<body>.*?)^-----END \\1-----"
)
"""A certificate in a PEM file as OpenSSL finds it: on lines of its own, among comments in any encoding.

A line's last blanks and control characters do not count, nor does a byte order mark before the first line."""

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


def first_certificate(pem: str) -> bytes:
    """Return the first certificate in a PEM text as DER, without OpenSSL's own notes on its trust.

    Raises `ValueError` if there is none.
    """
    found = _FIRST_CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("there is no PEM certificate in it")
    der = binascii.a2b_base64(found["body"])
    return der[: len(der) - len(_read(der).rest)]


def read_validity(pem: str) -> Validity:
    """Return the validity of the first certificate in a PEM text. Raises `ValueError` if there is none."""
    der = first_certificate(pem)
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
