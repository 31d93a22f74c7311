"""The services on one home's device: what plays its events, and the one that answers its alarms."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from types import TracebackType
from typing import Final, Protocol, Self

from eventplane.contract import Contract
from eventplane.envelope import Envelope, write_event
from eventplane.values import timestamp
from eventplane_client import Client, ClientSettings, Mode
from eventplane_client.connection import client_over
from eventplane_client.errors import NoRoomError
from eventplane_client.mqtt import MqttTransport, RefusalHandler
from eventplane_client.notices import log_notice
from local.oracle import Arrived
from local.poison import Poison
from local.ports import LOOPBACK
from local.sent import Key, SentLog

CALL_SERVICE: Final = "call-service"
LISTENERS: Final = ("voice-service", "health-service")
"""Services that take in what carers tell a home."""

ON_DEVICE: Final = (CALL_SERVICE, *LISTENERS)
"""Whose events never see the cloud, nor its archive."""

CALL_TYPE: Final = "org.eventplane.call.placed.v1"

SEND_SECONDS: Final = 120.0
"""How long a service waits for room in its window: longer than any fault that the demo injects."""

_CALL_SECONDS: Final = 600.0
"""How long the call-service waits until its call is stored: longer than any fault lasts."""

_AGAIN_SECONDS: Final = 0.5
"""After which a call that the device had no room for is put again."""

_ID_DIGITS: Final = 32

_ALWAYS: Final = 1_000
"""Deliveries before a dead letter: more than any fault lasts."""


def utc_now() -> datetime:
    return datetime.now(UTC)


class Service:
    """The on-device service `name` at the broker on 127.0.0.1:`port`, with its `client` and `transport`.

    `handler` gets each event of the inbox at least once, in a thread of its own. `on_refused` gets the
    payload and the reason of what was sent and then refused. `window`: most messages without a receipt. Two
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
        settings = ClientSettings(name, "mqtt:", state="memory:", mode=Mode.AT_LEAST_ONCE)
        self.transport = MqttTransport(
            name,
            LOOPBACK,
            port,
            max_receives=_ALWAYS,
            on_refused=on_refused,
            window=window,
            client_id=client_id,
        )
        self.client: Client = client_over(settings, log_notice, self.transport)
        if handler is not None:
            handle = self.client.subscribe().handle
            threading.Thread(target=handle, args=(handler,), name=f"{name}-inbox", daemon=True).start()

    def send(self, event: Envelope, timeout_s: float) -> None:
        """Return once the client has the event, and sends it until the forwarder has stored it."""
        self.client.send(event, timeout_s)

    def send_bytes(self, payload: bytes, timeout_s: float) -> None:
        """Do what `send` does with anything, also with what is no event."""
        self.transport.send(payload, timeout_s)

    @property
    def waiting(self) -> int:
        """The number of messages that are not stored yet."""
        return self.transport.waiting

    def close(self) -> None:
        """Close the connection at once."""
        self.client.close()


class CallService:
    """Places a call for every alarm in its inbox, over the broker at 127.0.0.1:`port`.

    `alarms` has the key of every alarm once, in the order of arrival; `duplicates` counts repetitions. An
    alarm that comes again repeats the same call event.
    """

    def __init__(
        self, home: str, port: int, contract: Contract, sent: SentLog, now: Callable[[], datetime] = utc_now
    ) -> None:
        self.alarms: dict[Key, Envelope] = {}
        self.duplicates = 0
        self._home = home
        self._outbox = contract.participants[CALL_SERVICE].outbox
        self._sent = sent
        self._now = now
        self._connected = threading.Event()
        self._closing = threading.Event()
        self._service = Service(CALL_SERVICE, port, self._place_call)
        self._connected.set()

    @property
    def arrived(self) -> Arrived:
        """What the oracle compares, as of now."""
        return Arrived(frozenset(list(self.alarms)), self.duplicates)

    def close(self) -> None:
        self._closing.set()
        self._service.close()

    def _place_call(self, alarm: Envelope) -> None:
        # The first alarm can come while the client is still being made.
        self._connected.wait()
        if alarm.claim in self.alarms:
            self.duplicates += 1
        else:
            self.alarms[alarm.claim] = self._call(alarm)
        call = self.alarms[alarm.claim]
        self._sent.event(call, self._outbox)
        # The alarm's receipt goes out when this returns: by then its call must be as safe as the alarm was.
        while not self._closing.is_set():
            try:
                self._service.client.put(call, _CALL_SECONDS)
            except NoRoomError:
                self._closing.wait(_AGAIN_SECONDS)
            else:
                return

    def _call(self, alarm: Envelope) -> Envelope:
        now = timestamp(self._now())
        attributes = {
            # From the alarm alone, so that whoever gets the alarm again places the same call.
            "id": "call-" + sha256("\n".join(alarm.claim).encode()).hexdigest()[:_ID_DIGITS],
            "source": f"/homes/{self._home}/{CALL_SERVICE}",
            "type": CALL_TYPE,
            "subject": "/alarm-centre",
            "time": now,
            "recordedtime": now,
        }
        return write_event(attributes, {"alarm_source": alarm.source, "alarm_id": alarm.id})


class AnswersAlarms(Protocol):
    """A home with its call-service."""

    @property
    def home(self) -> str: ...

    @property
    def call_service(self) -> CallService: ...


def arrived_at_call_services(homes: Iterable[AnswersAlarms]) -> Arrived:
    """What the call-services of all `homes` received, as of now.

    An alarm arrives in its own home: one of another home is named with the place where it was answered, so
    that nobody expects it.
    """
    received: set[Key] = set()
    duplicates = 0
    for home in homes:
        arrived = home.call_service.arrived
        duplicates += arrived.duplicates
        for source, id in arrived.received:
            is_own = source.startswith(f"/homes/{home.home}/")
            received.add((source if is_own else f"{source} at {home.home}", id))
    return Arrived(received, duplicates)


def arrived_in_homes(told: Iterable[Mapping[Key, int]]) -> Arrived:
    """Return what a service was `told` in each home, and how often; each event is for one home only."""
    homes = [dict(each) for each in told]  # they are still added to
    keys = frozenset[Key]().union(*homes)
    return Arrived(keys, sum(count for each in homes for count in each.values()) - len(keys))


class HomeServices:
    """The sending `services` of `home` and its call-service, connected to its broker at 127.0.0.1:`port`.

    `told` has what those heard that listen (`LISTENERS`), and how often.

    Whatever they send is noted in `sent` first. `refused` has the reason for every message of theirs that
    the forwarder refused. Use it in a `with` block, which ends the connections.
    """

    def __init__(
        self,
        home: str,
        services: Iterable[str],
        port: int,
        contract: Contract,
        sent: SentLog,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.home = home
        self.call_service = CallService(home, port, contract, sent, now)
        self.refused: list[str] = []
        self.told: dict[str, Counter[Key]] = {service: Counter() for service in LISTENERS}
        self._contract = contract
        self._sent = sent
        self._now = now
        self._services = {
            service: Service(
                service,
                port,
                partial(self._listen, service) if service in LISTENERS else None,
                on_refused=self._note_refusal,
            )
            for service in dict.fromkeys((*services, *LISTENERS))
        }

    def send(self, service: str, event: Envelope) -> None:
        """Put `event` into the service's outbox with the time of doing so as its `recordedtime`.

        The `time` of a replayed event is years old: latency is measured from `recordedtime`. Raises
        `WindowFullError` when nothing moved for `SEND_SECONDS`.
        """
        event = event.stamped(recordedtime=timestamp(self._now()))
        self._sent.event(event, self._contract.participants[service].outbox)
        self._services[service].send(event, SEND_SECONDS)

    def send_poison(self, service: str, message: Poison) -> None:
        """Put a malformed message into the service's outbox. Raises `WindowFullError` as `send` does."""
        self._sent.poison(message)
        self._services[service].send_bytes(message.payload, SEND_SECONDS)

    @property
    def waiting(self) -> int:
        """How many messages have no receipt yet."""
        return sum(service.waiting for service in self._services.values())

    def flush(self, timeout_seconds: float) -> None:
        """Wait until the forwarder has confirmed every message. Raises `FlushTimeoutError`."""
        for service in self._services.values():
            service.client.flush(timeout_seconds)

    def close(self) -> None:
        """End the connections at once."""
        for service in self._services.values():
            service.close()
        self.call_service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self, service: str, event: Envelope) -> None:
        self.told[service][event.claim] += 1

    def _note_refusal(self, _: bytes, reason: str) -> None:
        self.refused.append(reason)
