"""From when to when a certificate is valid (RFC 5280), read without a crypto library."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from edge.provisioning.errors import ValidityError

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)

_INTEGER = 0x02
_UTC_TIME = 0x17
_GENERALIZED_TIME = 0x18
_SEQUENCE = 0x30
_VERSION = 0xA0
"""Tags of DER. The version, [0], is left out of certificates of version 1."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Both ends as seconds since 1970."""

    not_before_s: int
    not_after_s: int

    def is_due(self, now_s: float, max_age_s: float) -> bool:
        """Whether it is time for a new one: less than a third of its life is left, or it is too old.

        AWS IoT's own certificates live until 2049, so that for them only `max_age_s` means anything. Before
        `not_before_s` the clock is wrong, and nothing is due.
        """
        life_s = self.not_after_s - self.not_before_s
        return self.not_after_s - now_s < life_s / 3 or now_s - self.not_before_s > max_age_s


def read_validity(pem: str) -> Validity:
    """The validity of the first certificate in `pem`. Raises `ValidityError`."""
    found = _PEM.search(pem)
    if found is None:
        raise ValidityError("there is no BEGIN CERTIFICATE in it")
    try:
        der = binascii.a2b_base64("".join(found[1].split()), strict_mode=True)
    except binascii.Error as error:
        raise ValidityError(str(error)) from error
    signed = _Reader(_Reader(_Reader(der).take(_SEQUENCE)).take(_SEQUENCE))
    signed.skip(_VERSION)
    signed.take(_INTEGER)  # serial number
    signed.take(_SEQUENCE)  # algorithm
    signed.take(_SEQUENCE)  # issuer
    dates = _Reader(signed.take(_SEQUENCE))
    return Validity(_seconds(*dates.any()), _seconds(*dates.any()))


class _Reader:
    """Walks over the elements of a DER value, each of them tag, length, content."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def any(self) -> tuple[int, bytes]:
        """Tag and content of the next element."""
        tag = self._byte()
        length = self._byte()
        if length >= 0x80:  # the length of the length
            length = int.from_bytes(self._bytes(length & 0x7F), "big")
        return tag, self._bytes(length)

    def take(self, tag: int) -> bytes:
        """Content of the next element, which has to be a `tag`."""
        found, content = self.any()
        if found != tag:
            raise ValidityError(f"tag {found:#04x} where {tag:#04x} belongs")
        return content

    def skip(self, tag: int) -> None:
        """Pass the next element if it is a `tag`."""
        if self._data[self._at : self._at + 1] == bytes([tag]):
            self.any()

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise ValidityError("it ends in the middle")
        self._at += count
        return self._data[self._at - count : self._at]


def _seconds(tag: int, content: bytes) -> int:
    text = content.decode("ascii", "replace")
    if tag == _UTC_TIME:
        # Two digits of the year: 50 to 99 belong to the last century (RFC 5280, 4.1.2.5.1).
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValidityError(f"tag {tag:#04x} is not a date")
    if not re.fullmatch("[0-9]{14}Z", text):
        raise ValidityError(f"{text!r} is not a date")
    try:
        return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise ValidityError(f"{text!r} is not a date") from error
