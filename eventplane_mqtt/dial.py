"""Opens a non-blocking connection to a broker's host, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from errno import EINPROGRESS
from os import strerror
from select import POLLOUT
from time import monotonic
from typing import Any, Final

from eventplane_mqtt.endpoint import Endpoint, is_socket
from eventplane_mqtt.transport import Transport

_ALPN_OF_AWS: Final = "x-amzn-mqtt-ca"

_Address = tuple[int, int, int, str, Any]

Wait = Callable[[int, int, float], None]
"""Waits until the file descriptor has one of the poll events. Raises TimeoutError at the deadline, in
monotonic seconds."""


def dial(endpoint: Endpoint, wait: Wait) -> Transport:
    """Look up the host, connect and, with TLS, shake hands, within the endpoint's timeout.

    Each of the host's addresses gets its share of the time, so that one that swallows everything (IPv6 in
    many homes) does not hide the next. The look-up itself has the system's own timeout.

    Raises:
        OSError: refused, unknown host, untrusted certificate, or timeout.
        TlsFileError: a certificate or key cannot be used.
    """
    context = None
    if endpoint.tls:
        # IoT Core accepts MQTT with certificates on the port of HTTPS, if asked by this protocol name.
        context = endpoint.tls.context((_ALPN_OF_AWS,) if endpoint.port == 443 else ())
    addresses = _look_up(endpoint.host, endpoint.port)
    deadline = monotonic() + endpoint.connect_timeout_s
    connected = _connect_first(addresses, deadline, wait)
    try:
        if connected.family != socket.AF_UNIX:
            _tune(connected, endpoint.keepalive_s)
        if context is None:
            return Transport(connected)
        from eventplane_mqtt.tls import TlsTransport  # only now: it costs memory

        # A server with the pinned certificate may have any name.
        name = endpoint.host if context.check_hostname else None
        wrapped = context.wrap_socket(connected, server_hostname=name, do_handshake_on_connect=False)
        connected = wrapped
        transport = TlsTransport(wrapped)
        while events := transport.handshake():
            wait(transport.fileno(), events, deadline)
    except BaseException:
        connected.close()
        raise
    return transport


def _look_up(host: str, port: int) -> Sequence[_Address]:
    if is_socket(host):
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", host)]
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:
        # Python's own, before the system is asked: two dots in a row, a label that is too long.
        raise OSError(f"{host!r} is no host name") from error


def _connect_first(addresses: Sequence[_Address], deadline: float, wait: Wait) -> socket.socket:
    failure: OSError = OSError("the name has no address")
    for index, (family, kind, protocol, _, address) in enumerate(addresses):
        now = monotonic()
        share = now + (deadline - now) / (len(addresses) - index)
        attempt = socket.socket(family, kind, protocol)
        try:
            attempt.setblocking(False)
            _connect(attempt, address, share, wait)
        except OSError as error:
            attempt.close()
            failure = error
        except BaseException:
            attempt.close()
            raise
        else:
            return attempt
    raise failure


def _connect(attempt: socket.socket, address: Any, deadline: float, wait: Wait) -> None:
    code = attempt.connect_ex(address)
    if code == EINPROGRESS:
        wait(attempt.fileno(), POLLOUT, deadline)
        code = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, strerror(code))


def _tune(connected: socket.socket, keepalive_s: int) -> None:
    # Otherwise a small packet waits up to 40 ms for the acknowledgement of the one before (Nagle).
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Bytes sent into a dead connection fail after this time instead of a quarter of an hour. An idle one
    # needs no TCP keepalive: MQTT's own PINGREQ is such bytes.
    if keepalive_s and hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, keepalive_s * 1000)
