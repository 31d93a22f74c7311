"""What the homes send: events at a steady pace, noted before they are sent, and again until they are kept."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic, time
from types import TracebackType
from typing import Final, Self

from eventplane.contract import Channel, Contract, Place
from eventplane.envelope import Envelope, write_event
from eventplane.receipts import SPOOL_FULL
from eventplane.values import timestamp
from local.chaos.careless import CarelessClient
from local.poison import Poison
from local.sent import Key, SentLog
from local.services import LISTENERS, CallService, Service

MOTION: Final = "org.eventplane.activity.motion.v1"
KEYWORD: Final = "org.eventplane.alarm.keyword.v1"
GREETING: Final = -1
"""The number of what is sent before the load."""

_SERVICES: Final = {MOTION: "activity-service", KEYWORD: "voice-service"}

_ROOM_S: Final = 600.0
"""How long a service waits for room in its window: longer than any fault lasts."""

WINDOW: Final = 1_000
"""Messages of one service without a receipt."""

_AGAIN_S: Final = 0.5
"""How long a service keeps what the device had no room for, before it comes again."""


@dataclass(frozen=True, slots=True)
class Load:
    """`events` of each home at `per_s`, each `urgent_every`-th an alarm (0: none).

    With `is_careless` the services publish at QoS 0 and wait for no receipt.
    """

    events: int
    per_s: float
    urgent_every: int = 100
    is_careless: bool = False


class TimedLog(SentLog):
    """A record of what was sent that knows when: `at` has the Unix time of each event's first sending."""

    def __init__(self, contract: Contract) -> None:
        super().__init__(contract)
        self.at: dict[Key, float] = {}

    def event(self, event: Envelope, channel: Channel, entered: Place = Place.DEVICE) -> None:
        """As `SentLog.event`."""
        self.at.setdefault(event.claim, time())
        super().event(event, channel, entered)


class Sender:
    """The services of one home at its broker on 127.0.0.1:`port`, the call-service among them.

    They send `load`. What the device has no room for comes again. `told` has what those heard that listen,
    and how often. Use it in a `with` block, which ends the connections.
    """

    def __init__(self, home: str, port: int, contract: Contract, sent: TimedLog, load: Load) -> None:
        self.home = home
        self._load = load
        self._careless = CarelessClient(home, port) if load.is_careless else None
        self.call_service = CallService(home, port, contract, sent)
        self._contract = contract
        self._sent = sent
        self._again: deque[tuple[float, str, bytes]] = deque()
        self.told: dict[str, Counter[Key]] = {service: Counter() for service in LISTENERS}
        self._services = {service: self._service(service, port) for service in _SERVICES.values()}

    def _service(self, service: str, port: int) -> Service:
        def refused(payload: bytes, reason: str) -> None:
            if reason == SPOOL_FULL:
                self._again.append((monotonic() + _AGAIN_S, service, payload))

        listen = partial(self._listen, service) if service in LISTENERS else None
        return Service(service, port, listen, on_refused=refused, window=WINDOW)

    def _listen(self, service: str, event: Envelope) -> None:
        self.told[service][event.claim] += 1

    def greet(self) -> None:
        """Return once the home stands: before its forwarder's first subscription nobody keeps a message."""
        for type, service in _SERVICES.items():
            self._services[service].client.put(self._noted(type, service, GREETING), _ROOM_S)

    def play(self, ending: threading.Event) -> None:
        """Send the whole load, each event at its time or as soon after as there is room."""
        load = self._load
        began = monotonic()
        for number in range(load.events):
            if ending.wait(max(0.0, began + number / load.per_s - monotonic())):
                return
            self._send_again()
            type = KEYWORD if load.urgent_every and number % load.urgent_every == 0 else MOTION
            self.send(type, number)

    def send(self, type: str, number: int) -> None:
        """One event."""
        service = _SERVICES[type]
        event = self._noted(type, service, number)
        if self._careless:
            self._careless.send(service, event)
        else:
            self._services[service].send(event, _ROOM_S)

    def send_poison(self, message: Poison) -> None:
        """Something that can never be delivered. It goes out among the events, when there is room."""
        self._sent.poison(message)
        self._again.append((monotonic(), "activity-service", message.payload))

    @property
    def waiting(self) -> int:
        """Messages that nobody has confirmed; asking sends again what is due."""
        self._send_again()
        return len(self._again) + sum(service.waiting for service in self._services.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections at once, and with them a sending that waits for room."""
        for service in self._services.values():
            service.close()
        self.call_service.close()
        if self._careless:
            self._careless.close()

    def _noted(self, type: str, service: str, number: int) -> Envelope:
        event = self._event(type, service, number)
        self._sent.event(event, self._contract.participants[service].outbox)
        return event

    def _send_again(self) -> None:
        while self._again and self._again[0][0] <= monotonic():
            _, service, payload = self._again.popleft()
            self._services[service].send_bytes(payload, _ROOM_S)

    def _event(self, type: str, service: str, number: int) -> Envelope:
        now = timestamp(datetime.now(UTC))
        return write_event(
            {
                "id": f"{number}",
                "source": f"/homes/{self.home}/{service}",
                "type": type,
                # What happens in the bedroom goes to one inbox only: a number sent is a number received.
                "subject": "/bedroom",
                "time": now,
                "recordedtime": now,
            },
            {"keyword": "help"} if type == KEYWORD else {"state": "moved"},
        )
