"""The services of one home: they send its events, place its calls, and receive what carers send it."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Final, Self

from eventplane.contract import Contract
from eventplane.envelope import Envelope, write_event
from eventplane.receipts import SPOOL_FULL
from eventplane.values import timestamp
from eventplane_client import Client, ClientSettings, Inbox, Mode
from eventplane_client.connection import client_over
from eventplane_client.errors import NoRoomError
from eventplane_client.mqtt import MqttTransport, RefusalHandler
from eventplane_client.notices import log_notice
from lab.network import LOOPBACK
from lab.oracle import Arrived, Key, SentLog
from lab.poison import Poison

CALL_SERVICE: Final = "call-service"
LISTENERS: Final = ("voice-service", "health-service")
"""Services that receive what carers send to a home."""

ON_DEVICE: Final = (CALL_SERVICE, *LISTENERS)
"""Services whose received events never pass the cloud, nor its archive."""

CALL_TYPE: Final = "org.eventplane.call.placed.v1"

SEND_SECONDS: Final = 120.0
"""How long a service waits for room in its window: longer than any fault of the demo."""

_CALL_SECONDS: Final = 600.0
"""How long the call-service waits until its call is stored: longer than any fault lasts."""

_RESEND_S: Final = 0.5
"""Delay before a message that the spool had no room for is sent again."""

_ID_DIGITS: Final = 32


def utc_now() -> datetime:
    return datetime.now(UTC)


class Service:
    """The on-device service `name` at the broker on 127.0.0.1:`port`, with its `client` and `transport`.

    `handler` gets each event of the inbox at least once, in a thread of its own. `on_refused` gets the
    payload and the reason of each refused message. `window` limits the messages without a receipt. Two
    programs of one service need different client ids.
    """

    def __init__(
        self,
        name: str,
        port: int,
        handler: Callable[[Envelope], object] | None = None,
        *,
        on_refused: RefusalHandler | None = None,
        window: int = 200,
        client_id: str | None = None,
    ) -> None:
        settings = ClientSettings("mqtt:", name, state="memory:", mode=Mode.AT_LEAST_ONCE)
        self.transport = MqttTransport(
            name,
            LOOPBACK,
            port,
            on_refused=on_refused,
            window=window,
            client_id=client_id,
        )
        self.client: Client = client_over(settings, log_notice, self.transport)
        if handler is not None:
            self.listen(handler)

    def listen(self, handler: Callable[[Envelope], object]) -> None:
        """Start to pass the events of the inbox to `handler`."""
        handle = self.client.subscribe().handle
        threading.Thread(target=handle, args=(handler,), daemon=True).start()

    def send_bytes(self, payload: bytes, timeout_s: float) -> None:
        """Send any payload, malformed ones too, and return once the client has it."""
        self.transport.send(payload, timeout_s)

    @property
    def waiting(self) -> int:
        """The number of messages that are not stored yet."""
        return self.transport.waiting

    def close(self) -> None:
        """Close the connection at once."""
        self.client.close()


@contextmanager
def repeated(step: Callable[[], object]) -> Iterator[None]:
    """Call `step` again and again in a thread, until the end of the block."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def answering(inbox: Inbox, handler: Callable[[Envelope], object]) -> AbstractContextManager[None]:
    """Handle what comes into an inbox, until the end of the block."""
    return repeated(lambda: inbox.handle(handler, idle_s=1))


class CallService:
    """Places a call for every alarm in its inbox, over the broker at 127.0.0.1:`port`.

    `calls` has the call event by the key of its alarm, in the order of arrival, `received` how often each
    alarm arrived. A redelivered alarm repeats the same call event.
    """

    def __init__(self, home: str, port: int, contract: Contract, sent: SentLog) -> None:
        self.calls: dict[Key, Envelope] = {}
        self.received: Counter[Key] = Counter()
        self._home = home
        self._outbox = contract.participants[CALL_SERVICE].outbox
        self._sent = sent
        self._closing = threading.Event()
        self._service = Service(CALL_SERVICE, port)
        self._service.listen(self._place_call)

    def close(self) -> None:
        self._closing.set()
        self._service.close()

    def _place_call(self, alarm: Envelope) -> None:
        call = self.calls.setdefault(alarm.claim, self._call(alarm))
        self.received[alarm.claim] += 1
        self._sent.event(call, self._outbox)
        # The alarm is acknowledged when this returns: by then its call must be stored as well.
        while not self._closing.is_set():
            try:
                self._service.client.put(call, _CALL_SECONDS)
            except NoRoomError:
                self._closing.wait(_RESEND_S)
            else:
                return

    def _call(self, alarm: Envelope) -> Envelope:
        now = timestamp(utc_now())
        attributes = {
            # From the alarm alone, so that a redelivered alarm leads to the same call.
            "id": "call-" + sha256("\n".join(alarm.claim).encode()).hexdigest()[:_ID_DIGITS],
            "source": f"/homes/{self._home}/{CALL_SERVICE}",
            "type": CALL_TYPE,
            "subject": "/alarm-centre",
            "time": now,
            "recordedtime": now,
        }
        return write_event(attributes, {"alarm_source": alarm.source, "alarm_id": alarm.id})


class HomeServices:
    """The sending `services` of `home` and its call-service, connected to its broker at 127.0.0.1:`port`.

    Each message is recorded in `sent` before it is sent. `received` counts the events that each service on
    the device received, `refused` has the reason of every message that the forwarder refused. A message that
    the spool had no room for is sent again instead. Use it in a `with` block, which ends the connections.
    """

    def __init__(
        self,
        home: str,
        services: Iterable[str],
        port: int,
        contract: Contract,
        sent: SentLog,
        *,
        window: int = 200,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        self.home = home
        self.call_service = CallService(home, port, contract, sent)
        self.refused: list[str] = []
        self.received = {CALL_SERVICE: self.call_service.received} | {name: Counter() for name in LISTENERS}
        self._contract = contract
        self._sent = sent
        self._send_seconds = send_seconds
        self._again: deque[tuple[float, str, bytes]] = deque()
        self._services = {
            service: Service(
                service,
                port,
                partial(self._receive, service) if service in LISTENERS else None,
                on_refused=partial(self._refuse, service),
                window=window,
            )
            for service in dict.fromkeys((*services, *LISTENERS))
        }

    def send(self, service: str, event: Envelope) -> None:
        """Send `event` with the present time as its `recordedtime`, and do not wait for its receipt.

        The `time` of a replayed event is years old: latency is measured from `recordedtime`. Raises
        `WindowFullError` when the window had no room for so long.
        """
        self._send_again()
        self._services[service].client.send(self.record(service, event), self._send_seconds)

    def put(self, service: str, event: Envelope) -> None:
        """Send `event` and return once the forwarder has stored it."""
        self._services[service].client.put(self.record(service, event), self._send_seconds)

    def record(self, service: str, event: Envelope) -> Envelope:
        """Return `event` with its `recordedtime`, recorded as sent."""
        event = event.stamped(recordedtime=timestamp(utc_now()))
        self._sent.event(event, self._contract.participants[service].outbox)
        return event

    def send_poison(self, service: str, message: Poison) -> None:
        """Send a malformed message. Raises `WindowFullError` as `send` does."""
        self._sent.poison(message)
        self._services[service].send_bytes(message.payload, self._send_seconds)

    def send_poison_later(self, service: str, message: Poison) -> None:
        """Send a malformed message before the next event, without waiting for room in the window."""
        self._sent.poison(message)
        self._again.append((monotonic(), service, message.payload))

    @property
    def waiting(self) -> int:
        """The number of messages without a receipt. Reading it sends again what is due."""
        self._send_again()
        return len(self._again) + sum(service.waiting for service in self._services.values())

    def flush(self, timeout_seconds: float) -> None:
        """Wait until the forwarder has confirmed every message. Raises `FlushTimeoutError`."""
        for service in self._services.values():
            service.client.flush(timeout_seconds)

    def close(self) -> None:
        """End the connections at once, and with them a call that waits for room."""
        for service in self._services.values():
            service.close()
        self.call_service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, service: str, event: Envelope) -> None:
        self.received[service][event.claim] += 1

    def _refuse(self, service: str, payload: bytes, reason: str) -> None:
        if reason == SPOOL_FULL:
            self._again.append((monotonic() + _RESEND_S, service, payload))
        else:
            self.refused.append(reason)

    def _send_again(self) -> None:
        while self._again and self._again[0][0] <= monotonic():
            _, service, payload = self._again.popleft()
            self._services[service].send_bytes(payload, self._send_seconds)


def arrived_on_device(homes: Sequence[HomeServices]) -> dict[str, Arrived]:
    """Return what the services of all `homes` received so far, by the service's name.

    Each event is for one home only: a second home that receives it counts as a duplicate, and an alarm of
    another home is named with the place where it was answered, so that it is unexpected.
    """
    found = {}
    for service in ON_DEVICE:
        counts: Counter[Key] = Counter()
        for home in homes:
            for (source, id), count in list(home.received[service].items()):
                is_foreign = source.startswith("/homes/") and not source.startswith(f"/homes/{home.home}/")
                counts[f"{source} at {home.home}" if is_foreign else source, id] += count
        found[service] = Arrived(counts.keys(), counts.total() - len(counts))
    return found
