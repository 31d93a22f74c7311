"""One connection to a broker, from dialling to its end; a reconnect is a new one.

A fresh session for each connection is what makes the rest simple: what was not acknowledged is forgotten
here and sent again by whoever keeps it, and an acknowledgement cannot reach a later connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from select import POLLIN, poll
from time import monotonic
from typing import Final

from edge.errors import EdgeError
from edge.messages import Disconnected, LinkName, Message
from edge.mqtt.address import place
from edge.mqtt.dial import dial
from edge.mqtt.endpoint import Endpoint
from edge.mqtt.line import CHUNK_BYTES, Line
from edge.mqtt.session import Session
from edge.mqtt.waker import Waker

_HUNG_UP: Final = b""


class Connection:
    """Dials `endpoint` at once, in a thread of its own; everything that happens goes to `emit`."""

    def __init__(
        self, endpoint: Endpoint, link: LinkName, generation: int, emit: Callable[[Message], None]
    ) -> None:
        self._endpoint = endpoint
        self._link = link
        self._generation = generation
        self._emit = emit
        # Guards the session and the waker. The socket is the thread's alone.
        self._lock = threading.Lock()
        self._waker = Waker()
        self._session = Session(endpoint, link, generation)
        self._abandoned = False
        self._unsent = memoryview(b"")
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{link}-{generation}", daemon=True)
        self._thread.start()

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> int:
        """Send; the packet id comes back in `Acknowledged`, unless the connection ends before.

        With `retain` the broker keeps it for who subscribes later. The id is 0, which is none, at QoS 0, and
        when the connection does not stand (`Disconnected` is on its way then). Raises `UnsendableError` for a
        topic or payload that MQTT has no place for.
        """
        with self._lock:
            mid = self._session.publish(topic, payload, qos, retain=retain)
            self._waker.wake()
        return mid

    def ping(self) -> int:
        """Send PINGREQ; the number comes back in `Acknowledged` when it is answered. 0 as for `publish`."""
        with self._lock:
            mid = self._session.ping()
            self._waker.wake()
        return mid

    def acknowledge(self, mid: int) -> None:
        """Send PUBACK for a received message of this connection."""
        with self._lock:
            self._session.acknowledge(mid)
            self._waker.wake()

    def close(self, timeout_s: float) -> None:
        """Send what waits, say goodbye, and wait up to `timeout_s` seconds for the thread's end."""
        with self._lock:
            self._session.close()
            self._waker.wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.abandon()

    def abandon(self) -> None:
        """Cut the line without waiting for anybody; nothing more is sent over it."""
        with self._lock:
            self._abandoned = True
            self._session.end("abandoned")
            self._waker.wake()

    def _run(self) -> None:
        try:
            self._converse()
        finally:
            with self._lock:
                self._session.end("a bug; see the traceback")
                self._waker.close()
            self._report()
            self._emit(Disconnected(self._link, self._generation, self._session.ended or ""))

    def _converse(self) -> None:
        login = self._endpoint.login
        try:
            password = login.password() if login else None
            line = dial(self._endpoint, self._wait)
        except (OSError, EdgeError) as error:
            where = place(self._endpoint.host, self._endpoint.port)
            with self._lock:
                self._session.end(f"cannot connect to {where}: {self._explain(error)}")
            return
        try:
            self._exchange(line, password)
        except (ConnectionResetError, BrokenPipeError):
            with self._lock:
                self._session.lost(None)
        except (OSError, EdgeError) as error:
            with self._lock:
                self._session.lost(self._explain(error))
        finally:
            line.close()

    def _exchange(self, line: Line, password: bytes | None) -> None:
        watch = poll()
        watch.register(self._waker, POLLIN)
        with self._lock:
            self._session.start(monotonic(), password)
        finished = False
        while True:
            with self._lock:
                self._session.tick(monotonic())
            sent = self._send(line)
            self._report()
            with self._lock:
                if self._session.ended is not None:
                    return
                deadline = 0 if line.buffered else self._session.deadline()
                finish = sent and self._session.said_goodbye and not finished
            if finish:
                line.finish()
                finished = True
            watch.register(line, line.interest(sending=not sent))
            ready = {file for file, _ in watch.poll(_milliseconds(deadline))}
            with self._lock:
                self._waker.clear()
            if line.buffered or line.fileno() in ready:
                self._receive(line)

    def _send(self, line: Line) -> bool:
        """Send what there is; False when the line takes no more for now."""
        while True:
            if not self._unsent:
                with self._lock:
                    self._unsent = memoryview(self._session.take_bytes(CHUNK_BYTES))
            if not self._unsent or self._abandoned:
                return True
            try:
                count = line.send(self._unsent)
            except OSError:
                # It hung up; what it said before (a refusal, TLS's alert) is the better reason.
                while self._receive(line):
                    pass
                raise
            if not count:
                return False
            self._unsent = self._unsent[count:]
            with self._lock:
                self._session.sent(monotonic())

    def _receive(self, line: Line) -> bool:
        """Whether something came that may have more behind it."""
        data = line.receive()
        if data is None:
            return False
        with self._lock:
            if data == _HUNG_UP:
                self._session.lost(None)
            else:
                self._session.receive(data, monotonic())
        return data != _HUNG_UP

    def _report(self) -> None:
        with self._lock:
            messages = self._session.take_messages()
        for message in messages:
            self._emit(message)

    def _wait(self, file: int, events: int, deadline: float) -> None:
        """See `edge.mqtt.dial.Wait`."""
        watch = poll()
        watch.register(self._waker, POLLIN)
        watch.register(file, events)
        while True:
            ready = {each for each, _ in watch.poll(_milliseconds(deadline))}
            with self._lock:
                self._waker.clear()
                if self._session.ended is not None:
                    raise ConnectionAbortedError
            if file in ready:
                return
            if monotonic() >= deadline:
                raise TimeoutError("no answer in time")

    def _explain(self, error: Exception) -> str:
        if self._endpoint.tls and isinstance(error, OSError):
            from edge.mqtt.tls_line import explain  # only where it is in memory anyhow

            return explain(error)
        return str(error)


def _milliseconds(deadline: float | None) -> int | None:
    """From now, for poll. Rounded up: a turn too early would find nothing to do and come again at once."""
    return None if deadline is None else max(0, int((deadline - monotonic()) * 1000) + 1)
