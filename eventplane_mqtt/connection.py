"""One connection to a broker, from dialling to its end; a reconnect is a new one.

Each connection has a session of its own: unacknowledged packets are forgotten here and sent again by their
owner, and an acknowledgement cannot reach a later connection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from select import POLLIN, poll
from time import monotonic
from typing import Final

from eventplane_mqtt.dial import dial, milliseconds
from eventplane_mqtt.endpoint import Endpoint, MqttError, is_on_this_device, place
from eventplane_mqtt.mailbox import Disconnected, LinkName, Message, Received, Share
from eventplane_mqtt.reconnection import Sending
from eventplane_mqtt.session import Session, Skips
from eventplane_mqtt.transport import CHUNK_BYTES, Transport

_END_OF_STREAM: Final = b""

_SMALL_BYTES: Final = CHUNK_BYTES // 8
"""A read of less has emptied the socket."""


class SelfPipe:
    """Wakes a thread that waits in poll: a pipe with one byte at most.

    Not thread-safe: callers hold a lock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._awake = False
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to poll for input."""
        return self._read

    def wake(self) -> None:
        """End the current wait, or the next one at once."""
        if not self._awake and not self._closed:
            self._awake = True
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """Take the byte out; the thread is awake."""
        if self._awake:
            self._awake = False
            os.read(self._read, 1)

    def close(self) -> None:
        """Free the descriptors; no thread may wait any more."""
        self._closed = True
        os.close(self._read)
        os.close(self._write)


class Connection:
    """Dials `endpoint` at once, in a thread of its own; reports everything to `emit`.

    With a `share`, messages go there instead; when it is full, the connection stops reading, or drops them.
    Messages that it `skips` are acknowledged at once and not reported.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        link: LinkName,
        generation: int,
        emit: Callable[[Message], None],
        share: Share | None = None,
        skips: Skips | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._link = link
        self._generation = generation
        self._emit = emit
        self._share = share
        # Guards the session and the self-pipe. The socket is the thread's alone.
        self._lock = threading.Lock()
        self._self_pipe = SelfPipe()
        self._session = Session(
            endpoint, link, generation, drops=share is not None and share.drops, skips=skips
        )
        self._abandoned = False
        self._unsent = memoryview(b"")
        self._transport: Transport | None = None
        self._held = self._left = 0
        self._sent_at = self._moved_at = 0.0
        self._may_be_slow = link is LinkName.CLOUD or not is_on_this_device(endpoint.host)
        self._send_error: OSError | None = None
        self._gather_until = 0.0
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{link}-{generation}", daemon=True)
        self._thread.start()

    @property
    def resumed(self) -> bool:
        """True if the broker resumed a lasting session."""
        return self._session.resumed

    @property
    def queued_bytes(self) -> int:
        """The bytes that there were to send so far."""
        return self._session.queued_bytes  # one number, which needs no lock

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> int:
        """Send; return the packet id, which comes back in `Acknowledged` unless the connection ends before.

        With `retain` the broker keeps the message for later subscribers; an empty payload deletes it. The id
        is 0, which is none, at QoS 0 and while the connection is not up (`Disconnected` follows then). Raises
        `UnsendableError` for a topic or payload that MQTT cannot carry.
        """
        with self._lock:
            mid = self._session.publish(topic, payload, qos, retain=retain)
            self._self_pipe.wake()
        return mid

    def unsubscribe(self, *filters: str) -> int:
        """Send UNSUBSCRIBE; return the packet id that comes back in `Acknowledged`, 0 while not up."""
        with self._lock:
            mid = self._session.unsubscribe(filters)
            self._self_pipe.wake()
        return mid

    def ping(self) -> int:
        """Send PINGREQ; return the number that comes back in `Acknowledged`, 0 as for `publish`."""
        with self._lock:
            mid = self._session.ping()
            self._self_pipe.wake()
        return mid

    def sending(self, now: float) -> Sending:
        """Return how far it is with sending, by what the kernel still holds."""
        with self._lock:
            return self._look(now)

    def acknowledge(self, *mids: int) -> None:
        """Send PUBACK for received messages of this connection."""
        with self._lock:
            for mid in mids:
                self._session.acknowledge(mid)
            self._self_pipe.wake()

    def close(self, timeout_s: float) -> None:
        """Send what waits and DISCONNECT, and wait up to `timeout_s` seconds for the thread's end."""
        with self._lock:
            self._session.close()
            self._self_pipe.wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.abandon()

    def abandon(self) -> None:
        """Cut the connection without waiting; nothing more is sent."""
        with self._lock:
            self._abandoned = True
            self._session.end("abandoned")
            self._self_pipe.wake()

    def _run(self) -> None:
        try:
            self._dial_and_exchange()
        finally:
            with self._lock:
                self._session.end("a bug; see the traceback")
                self._self_pipe.close()
            self._report()
            self._emit(Disconnected(self._link, self._generation, self._session.ended or ""))

    def _dial_and_exchange(self) -> None:
        login = self._endpoint.login
        try:
            password = login.password() if login else None
            transport = dial(self._endpoint, self._wait)
        except (OSError, MqttError) as error:
            where = place(self._endpoint.host, self._endpoint.port)
            with self._lock:
                self._session.end(f"cannot connect to {where}: {self._explain(error)}")
            return
        try:
            self._exchange(transport, password)
        except (ConnectionResetError, BrokenPipeError):
            with self._lock:
                self._session.lost(None)
        except (OSError, MqttError) as error:
            with self._lock:
                self._session.lost(self._explain(error))
        finally:
            with self._lock:
                self._transport = None
            transport.close()

    def _exchange(self, transport: Transport, password: bytes | None) -> None:
        watch = poll()
        watch.register(self._self_pipe, POLLIN)
        with self._lock:
            self._transport = transport
            self._session.start(monotonic(), password)
        finished = False
        while True:
            reading = self._may_read()
            with self._lock:
                if reading and self._session.has_undecoded:
                    self._session.decode(*self._room())
                now = monotonic()
                if self._may_be_slow:
                    self._look(now)
                self._session.tick(now, reading=reading)
            sent = self._send(transport)
            self._report()
            with self._lock:
                if self._session.ended is not None:
                    return
                # Without undecoded packets there is room for at least one more piece.
                receives = reading and not self._session.has_undecoded
                finish = sent and self._session.disconnect_is_out and not finished
                at_once = reading and (transport.buffered or not receives or self._send_error is not None)
                deadline = 0.0 if at_once else self._session.deadline()
            if receives and not at_once and monotonic() < self._gather_until:
                # The loop gathers messages too: one larger piece costs both less than many small ones.
                receives, deadline = False, min(self._gather_until, deadline or inf)
            if finish:
                transport.finish()
                finished = True
            if events := transport.interest(sending=not sent, receiving=receives):
                watch.register(transport, events)
            else:
                with suppress(KeyError):
                    watch.unregister(transport)  # or a broker that hung up would be reported again and again
            ready = {file for file, _ in watch.poll(milliseconds(deadline))}
            with self._lock:
                self._self_pipe.clear()
            if receives and (at_once or transport.fileno() in ready):
                self._receive(transport)

    def _may_read(self) -> bool:
        """Whether there is room for messages; if not, the share wakes this thread when there is."""
        # What comes after our DISCONNECT is dropped anyway.
        return self._share is None or self._session.is_closing or self._share.may_read(self._resume)

    def _room(self) -> tuple[float, float]:
        if self._share is None:
            return inf, inf
        return self._share.room, self._share.room_for_qos_0

    def _resume(self) -> None:
        with self._lock:
            self._self_pipe.wake()

    def _send(self, transport: Transport) -> bool:
        """Send what there is; False when the transport takes no more for now."""
        while True:
            if not self._unsent:
                with self._lock:
                    self._unsent = memoryview(self._session.take_bytes(transport.piece_bytes))
            if not self._unsent or self._abandoned or self._send_error is not None:
                return True
            try:
                count = transport.send(self._unsent)
            except OSError as error:
                # The broker closed it; what it sent before (a refusal, messages, a TLS alert) is read first.
                self._send_error = error
                return True
            if not count:
                return False
            with self._lock:
                self._unsent = self._unsent[count:]
                self._sent_at = monotonic()
                self._session.sent(self._sent_at)

    def _look(self, now: float) -> Sending:
        """See what has left. When it left is known exactly only where the kernel held nothing."""
        taken = self._session.taken_bytes - len(self._unsent)
        if self._transport and taken > self._left:  # otherwise all has left, and the kernel need not be asked
            held = self._transport.held()
            if taken - held > self._left:
                self._moved_at = now if self._held or held else self._sent_at
                self._session.progressed(self._left, self._moved_at)
                self._left = taken - held
            self._held = held
        return Sending(self._left, self._moved_at)

    def _receive(self, transport: Transport) -> None:
        data = transport.receive()
        if not data and self._send_error is not None:
            raise self._send_error
        if data is None:
            return
        now = monotonic()
        # After a large piece more is there already.
        if self._share is not None:
            self._gather_until = now + self._share.gather_s if len(data) < _SMALL_BYTES else 0.0
        with self._lock:
            if data == _END_OF_STREAM:
                self._session.lost(None)
            else:
                self._session.receive(data, now, *self._room())

    def _report(self) -> None:
        with self._lock:
            messages = self._session.take_messages()
            dropped, self._session.dropped = self._session.dropped, 0
        if self._share is None:
            for message in messages:
                self._emit(message)
            return
        if dropped:
            self._share.count_dropped(dropped)
        if received := [each for each in messages if isinstance(each, Received)]:
            self._share.put(received)
        for message in messages:
            if not isinstance(message, Received):
                self._emit(message)

    def _wait(self, files: Collection[int], events: int, deadline: float) -> Collection[int]:
        """Wait as `Wait` says. Raises `ConnectionAbortedError` when it is abandoned or closed."""
        watch = poll()
        watch.register(self._self_pipe, POLLIN)
        for each in files:
            watch.register(each, events)
        while True:
            ready = {each for each, _ in watch.poll(milliseconds(deadline))}.intersection(files)
            with self._lock:
                self._self_pipe.clear()
                if self._session.ended is not None:
                    raise ConnectionAbortedError
            if monotonic() >= deadline:
                return ()  # also where something comes drop by drop
            if ready:
                return ready

    def _explain(self, error: Exception) -> str:
        if self._endpoint.tls and isinstance(error, OSError):
            from eventplane_mqtt.tls import explain  # only where it is in memory anyhow

            return explain(error)
        return str(error)
