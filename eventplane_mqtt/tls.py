"""A non-blocking TLS connection, and remedies for its failures."""

from __future__ import annotations

import ssl
from select import POLLIN, POLLOUT
from typing import Final

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
