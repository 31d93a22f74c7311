"""Opens a non-blocking connection to a broker's host, over TCP, TLS or a Unix socket, or through a proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Sequence
from errno import EINPROGRESS
from itertools import chain, zip_longest
from math import inf
from os import strerror
from select import POLLOUT, poll
from time import monotonic
from typing import Any, Final

from eventplane_mqtt.endpoint import MOST_ADDRESSES, STAGGER_S, Endpoint, is_socket
from eventplane_mqtt.transport import Transport, Wait

ANSWER_S: Final = 10.0
"""How long an address may take to answer, seconds. Linux repeats an unanswered SYN after 1, 3, 7 and 15 s, so
once the line is back, a new attempt reaches the broker sooner than one that is older than this."""

_ALPN_OF_AWS: Final = "x-amzn-mqtt-ca"

_Address = tuple[int, int, int, str, Any]


def wait_for(files: Collection[int], events: int, deadline: float) -> Collection[int]:
    """Wait as `Wait` says; nothing else ends it."""
    watch = poll()
    for each in files:
        watch.register(each, events)
    return {each for each, _ in watch.poll(milliseconds(deadline))} if monotonic() < deadline else ()


def milliseconds(deadline: float | None) -> int | None:
    """Convert to a timeout of poll, rounded up: a turn too early would find nothing due."""
    return None if deadline is None else max(0, int((deadline - monotonic()) * 1000) + 1)


def dial(endpoint: Endpoint, wait: Wait) -> Transport:
    """Look up the host, connect and, with TLS, shake hands: each step within the endpoint's timeout.

    Each of the host's addresses has that timeout, or `ANSWER_S`, from its own start, so that neither a slow
    line nor one that swallows everything (IPv6 in many homes) hides the next.

    Raises:
        OSError: refused, unknown host, untrusted certificate, or timeout.
        TlsFileError, PasswordFileError: a certificate, a key, or the proxy's password cannot be used.
        ProxyError: the proxy cannot be reached, or refuses.
    """
    context = None
    if endpoint.tls:
        # IoT Core accepts MQTT with certificates on the port of HTTPS, if asked by this protocol name.
        context = endpoint.tls.context((_ALPN_OF_AWS,) if endpoint.port == 443 else ())
    first, timeout_s = endpoint.proxy or endpoint, endpoint.connect_timeout_s
    try:
        addresses = _look_up(first.host, first.port, timeout_s)
        connected = _connect_first(addresses, min(timeout_s, ANSWER_S), wait)
    except OSError as error:
        if endpoint.proxy is None:
            raise
        from eventplane_mqtt.proxy import failure

        raise failure(endpoint, str(error), "see that its host and port are right, and it is up") from error
    try:
        if connected.family != socket.AF_UNIX:
            _tune(connected, endpoint.keepalive_s)
        if endpoint.proxy is not None:
            from eventplane_mqtt.proxy import open_tunnel  # only where it is used: it costs memory

            open_tunnel(connected, endpoint, wait, monotonic() + timeout_s)
        if context is None:
            return Transport(connected)
        from eventplane_mqtt.tls import TlsTransport  # only now: it costs memory

        # A server with the pinned certificate may have any name.
        name = _encoded(endpoint.host) if context.check_hostname else None
        wrapped = context.wrap_socket(connected, server_hostname=name, do_handshake_on_connect=False)
        connected = wrapped
        transport = TlsTransport(wrapped)
        deadline, events = monotonic() + timeout_s, transport.handshake()
        while events and wait([transport.fileno()], events, deadline):
            events = transport.handshake()
    except BaseException:
        connected.close()
        raise
    if events:
        transport.close()
        raise TimeoutError("the handshake of TLS got no answer in time")
    return transport


class _LookUp(threading.Thread):
    """Asks the system for the addresses of `host`, which takes as long as its name servers like.

    Who wants the same while it is in flight waits for the same answer, so there is one thread for each name.
    """

    in_flight: Final[dict[tuple[str, int], _LookUp]] = {}
    lock: Final = threading.Lock()

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name=f"look-up-{host}", daemon=True)
        self.answer: Sequence[_Address] | Exception = ()
        self._asked = host, port

    def run(self) -> None:
        host, port = self._asked
        try:
            self.answer = socket.getaddrinfo(_encoded(host), port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001 - raised by all who wait for it
            self.answer = error
        with self.lock:
            del self.in_flight[self._asked]

    @classmethod
    def of(cls, host: str, port: int) -> _LookUp:
        """Return the look-up that is in flight, or a new one."""
        with cls.lock:
            if (found := cls.in_flight.get((host, port))) is None:
                found = cls(host, port)
                found.start()
                cls.in_flight[host, port] = found
        return found


def _encoded(host: str) -> str | bytes:
    """Return `host` as bytes where it can be: for a text Python loads the tables of all letters, 0.1 MiB."""
    return host.encode() if host.isascii() else host


def _look_up(host: str, port: int, timeout_s: float) -> Sequence[_Address]:
    if is_socket(host):
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", host)]
    look_up = _LookUp.of(host, port)
    look_up.join(timeout_s)
    servers = "see the device's name servers"
    if look_up.is_alive():
        raise TimeoutError(f"look-up of {host} gave no answer in {timeout_s:g} s; {servers}")
    answer = look_up.answer
    if isinstance(answer, socket.gaierror):
        is_wrong = answer.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
        remedy = "see that it is the right name" if is_wrong else servers
        raise OSError(f"look-up of {host} failed: {answer.strerror}; {remedy}") from answer
    if isinstance(answer, ValueError):
        # Python's own, before the system is asked: two dots in a row, a label that is too long.
        raise OSError(f"{host!r} is no host name") from answer
    if isinstance(answer, Exception):
        raise answer
    return answer


def _interleaved(addresses: Sequence[_Address]) -> list[_Address]:
    """Return the first addresses, the families in turn, that of the first address first (RFC 8305, 4)."""
    families = {each[0]: [other for other in addresses if other[0] == each[0]] for each in addresses}
    return [each for each in chain(*zip_longest(*families.values())) if each][:MOST_ADDRESSES]


def _connect_first(addresses: Sequence[_Address], timeout_s: float, wait: Wait) -> socket.socket:
    """Return the first connection; attempts begin staggered, or at once when one fails (RFC 8305, 5)."""
    left = _interleaved(addresses)
    failure: OSError = OSError("the name has no address")
    deadlines: dict[socket.socket, float] = {}
    begin_at = -inf
    try:
        while left or deadlines:
            if left and (not deadlines or monotonic() >= begin_at):
                try:
                    deadlines[_begin(left.pop(0))] = monotonic() + timeout_s
                    begin_at = monotonic() + STAGGER_S
                except OSError as error:
                    failure = error
                continue
            by_file = {each.fileno(): each for each in deadlines}
            ready = wait(by_file, POLLOUT, min([*deadlines.values(), begin_at if left else inf]))
            for file, attempt in by_file.items():
                if file in ready:
                    code = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    failure = OSError(code, strerror(code))
                    if not code:
                        del deadlines[attempt]
                        return attempt
                elif deadlines[attempt] <= monotonic():
                    failure = TimeoutError("no answer in time")
                else:
                    continue
                del deadlines[attempt]
                attempt.close()
                begin_at = -inf
        raise failure
    finally:
        for attempt in deadlines:
            attempt.close()


def _begin(address: _Address) -> socket.socket:
    family, kind, protocol, _, to = address
    attempt = socket.socket(family, kind, protocol)
    try:
        attempt.setblocking(False)
        code = attempt.connect_ex(to)
    except BaseException:
        attempt.close()
        raise
    if code not in (0, EINPROGRESS):
        attempt.close()
        raise OSError(code, strerror(code))
    return attempt


def _tune(connected: socket.socket, keepalive_s: int) -> None:
    # Otherwise a small packet waits up to 40 ms for the acknowledgement of the one before (Nagle).
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Bytes sent into a dead connection fail after this time instead of a quarter of an hour. An idle one
    # needs no TCP keepalive: MQTT's own PINGREQ is such bytes.
    if keepalive_s and hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, keepalive_s * 1000)
