"""The counterpart of a program under test: it is the forwarder, and the line between program and broker.

Everything runs in the thread of the caller, while it waits.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from select import POLLIN, POLLOUT
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple, cast

from eventplane.errors import EventPlaneError
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.topics import local_topic, receipt_topic
from eventplane_mqtt import Endpoint
from eventplane_mqtt.codec import PacketReader
from eventplane_mqtt.dial import dial, wait_for
from eventplane_mqtt.endpoint import MqttError
from eventplane_mqtt.probe import BlockingConnection
from eventplane_mqtt.transport import Transport
from operations.system import monotonic

CONNECT, PUBLISH, SUBSCRIBE, SUBACK = 1, 3, 8, 9
_MQTT_5: Final = 5
_TICK_S: Final = 0.02
_MOST_A_TURN: Final = 20
"""Pieces or messages that are taken in one turn, so that a flood does not stop the clock of a step."""
_SHOWN: Final = 200
"""Characters of a program's line, or of its errors, that a message shows."""


class RuleBrokenError(EventPlaneError):
    """The party under test did not do what was `expected`: `found` says what it did."""

    expected: str
    found: str
    message = "expected: {expected}; found: {found}"


class ForwarderPresentError(EventPlaneError):
    """Somebody else answers for `service` at the broker."""

    service: str
    message = (
        "another program sends receipts for {service!r}: a forwarder is at this broker; "
        "name a broker without one, for instance `mosquitto -p 1884`"
    )


class SentPacket(NamedTuple):
    """A packet of the program under test, over its connection number `line`; `text` is a topic or an id."""

    line: int
    kind: int
    text: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False


class ByteRelay:
    """Passes bytes between the program and the broker at `endpoint`, and reads what the program `sent`.

    It listens at `port` of the loopback interface. While it is `refusing`, it ends connections at once;
    `refused` counts them. While it is `denying`, SUBACK refuses each subscription over a new connection.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.sent: list[SentPacket] = []
        self.refusing = False
        self.refused = 0
        self.denying = False
        self._endpoint = endpoint
        self._lines: list[_Line] = []
        self._count = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=8)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]

    def close(self) -> None:
        """End everything."""
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self.refusing = True
        for each in self._lines:
            each.close()
        self._lines.clear()

    def pump(self) -> None:
        """Pass on what is there; wait a moment for it."""
        ends = [each.fileno() for line in self._lines for each in (line.program, line.broker)]
        files = [*ends, self._listener.fileno()]
        ready = wait_for(files, POLLIN, monotonic() + _TICK_S)
        if self._listener.fileno() in ready:
            self._accept()
        for line in list(self._lines):
            if not line.pass_on(ready, self.sent):
                line.close()
                self._lines.remove(line)

    def _accept(self) -> None:
        program, _ = self._listener.accept()
        if self.refusing:
            self.refused += 1
            program.close()
            return
        program.setblocking(False)
        self._count += 1
        try:
            broker = dial(self._endpoint, wait_for)
        except (OSError, MqttError):
            program.close()
            return
        self._lines.append(_Line(self._count, Transport(program), broker, self.denying))


class _Line:
    """One connection of the program."""

    def __init__(self, number: int, program: Transport, broker: Transport, is_denied: bool) -> None:
        self.program = program
        self.broker = broker
        self._number = number
        self._is_denied = is_denied
        self._unread = self._unsent = b""
        self._is_5 = False

    def close(self) -> None:
        self.program.close()
        self.broker.close()

    def pass_on(self, ready: Collection[int], sent: list[SentPacket]) -> bool:
        """Pass on what is there, and add the program's packets to `sent`; return False at the end."""
        with suppress(OSError):
            for source, target in ((self.program, self.broker), (self.broker, self.program)):
                for _ in range(_MOST_A_TURN):
                    data = source.receive() if source.fileno() in ready or source.buffered else None
                    if data is None:
                        break
                    if not data:
                        return False
                    if source is self.program:
                        self._read(data, sent)
                    elif self._is_denied:
                        data = self._deny(data)
                    _send(target, data)
            return True
        return False

    def _read(self, data: bytes, sent: list[SentPacket]) -> None:
        packets, self._unread = _packets(self._unread + data)
        for each in packets:
            reader = PacketReader("packet", each)
            first = reader.byte()
            packet = self._packet(first, PacketReader("packet", reader.take(reader.variable())))
            sent += [packet] if packet else []

    def _deny(self, data: bytes) -> bytes:
        """Return what the broker sent, with a refusal in each SUBACK."""
        packets, self._unsent = _packets(self._unsent + data)
        return b"".join(each[:-1] + b"\x80" if each[0] >> 4 == SUBACK else each for each in packets)

    def _packet(self, first: int, body: PacketReader) -> SentPacket | None:
        kind = first >> 4
        if kind == CONNECT:
            body.binary()  # MQTT
            self._is_5 = body.byte() == _MQTT_5
            body.take(3)
            self._skip_properties(body)
            return SentPacket(self._number, kind, body.text())
        if kind == SUBSCRIBE:
            body.two()
            self._skip_properties(body)
            return SentPacket(self._number, kind, body.text(), qos=body.byte() & 3)
        if kind == PUBLISH:
            qos, topic = first >> 1 & 3, body.text()
            if qos:
                body.two()
            self._skip_properties(body)
            return SentPacket(self._number, kind, topic, body.rest(), qos, bool(first & 1))
        return None

    def _skip_properties(self, body: PacketReader) -> None:
        if self._is_5:
            body.properties()


def _packets(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the packets in `data`, and the beginning of one that is not all there yet."""
    found: list[bytes] = []
    with suppress(MqttError):
        while data:
            reader = PacketReader("packet", data)
            reader.byte()
            reader.take(reader.variable())
            rest = reader.rest()
            found.append(data[: len(data) - len(rest)])
            data = rest
    return found, data


def _send(to: Transport, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[to.send(left) :]
        if left and not wait_for([to.fileno()], POLLOUT, monotonic() + 1.0):
            raise TimeoutError


class Bench:
    """Runs `command` as the service `service` against the broker at `endpoint`, over a relay.

    The program gets host, port and service as its last arguments and events as lines of its input; it prints
    `stored <digest>` or `refused <digest> <reason>` for each. While it is `answering`, receipts confirm what
    arrives, or say that it is `refused`. No step takes more than `timeout_s` seconds.
    """

    def __init__(self, command: Sequence[str], service: str, endpoint: Endpoint, timeout_s: float) -> None:
        self.service = service
        self.answering = False
        self.refused: str | None = None
        self.arrived: list[bytes] = []
        self.answered: set[bytes] = set()
        self.reports: list[str] = []
        self.given: list[bytes] = []
        self.relay = ByteRelay(endpoint)
        self._timeout_s = timeout_s
        self._endpoint = endpoint
        self._outbox, self._receipts = local_topic(service, "outbox"), receipt_topic(service, "outbox")
        self._ours: set[bytes] = set()
        self._connection = BlockingConnection(replace(endpoint, subscriptions=(self._outbox, self._receipts)))
        self._connection.wait_connected()
        self._errors = TemporaryFile()  # noqa: SIM115 - closed with the bench
        self._line = b""
        self._program = subprocess.Popen(
            [*command, "127.0.0.1", str(self.relay.port), service],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._input = cast("IO[bytes]", self._program.stdin)
        self._output = cast("IO[bytes]", self._program.stdout)
        os.set_blocking(self._output.fileno(), False)

    def close(self) -> None:
        """End the program and the connections."""
        self._program.kill()
        self._program.wait()
        with suppress(BrokenPipeError):
            self._input.close()
        self._output.close()
        self._errors.close()
        self.relay.close()
        self._connection.close()

    def give(self, count: int, size: int = 0) -> list[bytes]:
        """Give the program the next `count` events, of `size` bytes at least; return their texts."""
        texts = [_event(number, size) for number in range(len(self.given), len(self.given) + count)]
        self.given += texts
        with suppress(BrokenPipeError):  # that it has ended is found by who waits for it
            self._input.write(b"".join(each + b"\n" for each in texts))
            self._input.flush()
        return texts

    def answer(self, *payloads: bytes, refused: str | None = None) -> None:
        """Send one message with a receipt of each of `payloads`."""
        self.answered.update(payloads)
        self.say(write_receipts([Receipt(digest(each), refused) for each in payloads]))

    def say(self, payload: bytes) -> None:
        """Send a message to the program's receipts."""
        self._ours.add(payload)
        self._connection.publish(self._receipts, payload, self._timeout_s)

    def wait(self, condition: Callable[[], object], expected: str) -> None:
        """Work until `condition` holds. Raises `RuleBrokenError` if it does not in time."""
        deadline = monotonic() + self._timeout_s
        while not condition():
            ended = self._program.poll()
            self._turn()
            if condition():
                return
            if ended is not None or monotonic() > deadline:
                what = "nothing of it in time" if ended is None else f"it ended with status {ended}"
                raise RuleBrokenError(expected, f"{what}{self._last_words()}")

    def work(self, seconds: float) -> None:
        """Go on for so long."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            self._turn()

    def finish(self) -> None:
        """End the input; the program has to end by itself, with each event reported once."""
        with suppress(BrokenPipeError):
            self._input.close()
        self.wait(lambda: self._program.poll() is not None, "the end of the program after that of its input")
        self._turn()
        ends = [each.split(" ")[1] for each in self.reports if each.startswith(("stored ", "refused "))]
        expected = sorted(map(digest, self.given))
        if self._program.returncode != 0 or sorted(ends) != expected:
            found = (
                f"status {self._program.returncode}, {len({*ends})} of {len(expected)} in {len(ends)} lines"
            )
            raise RuleBrokenError("status 0, and one line for each event", f"{found}{self._last_words()}")

    def forget_session(self) -> None:
        """Have the broker forget the program's session, as one without persistence does in a restart."""
        ids = [each.text for each in self.relay.sent if each.kind == CONNECT and each.text]
        if ids:
            other = BlockingConnection(
                replace(self._endpoint, client_id=ids[-1], clean_session=True, subscriptions=())
            )
            other.wait_connected()
            other.close()

    def published(self, after: int = 0) -> list[bytes]:
        """Return what the program published, over the connections after the number `after`."""
        return [each.payload for each in self.relay.sent if each.kind == PUBLISH and each.line > after]

    @property
    def lines(self) -> int:
        """The number of the program's newest connection."""
        return max((each.line for each in self.relay.sent), default=0)

    def _turn(self) -> None:
        self.relay.pump()
        self._read_reports()
        for _ in range(_MOST_A_TURN):
            if (message := self._connection.receive(0.0)) is None:
                return
            if message.topic == self._outbox:
                self.arrived.append(message.payload)
                if self.answering:
                    self.answer(message.payload, refused=self.refused)
            elif message.payload not in self._ours:
                raise ForwarderPresentError(self.service)

    def _read_reports(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(_MOST_A_TURN):
                data = os.read(self._output.fileno(), 65_536)
                *lines, self._line = (self._line + data).split(b"\n")
                self.reports += [each.decode("utf-8", "replace")[:_SHOWN] for each in lines]

    def _last_words(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()[-_SHOWN:]
        return f"; its errors end with: {text!r}" if text else ""


def _event(number: int, size: int) -> bytes:
    """Return an event whose text no writer of JSON would make again."""
    head = f'{{ "specversion":"1.0", "id":"{number}", "source":"/conformance", '
    data = f'"data":{{"n":{number}.0, "t":"\u00fc \\u00fc{"x" * size}"}} }}'
    return f'{head}"type":"org.example.conformance.v1", {data}'.encode()
