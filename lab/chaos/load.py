"""The load of homes and carers during a run: events at a steady rate, recorded before they are sent."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle
from time import monotonic, time
from typing import Final

from eventplane.contract import Channel, Contract, Place
from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from eventplane.values import timestamp
from lab.background import Background
from lab.demo.senders import MESSAGE, event_for
from lab.mosquitto import plain_client
from lab.oracle import CARERS, Key, SentLog
from lab.poison import Poison
from lab.services import HomeServices, utc_now

MOTION: Final = "org.eventplane.activity.motion.v1"
KEYWORD: Final = "org.eventplane.alarm.keyword.v1"
GREETING: Final = -1
"""The number of the events that are sent before the load."""

ALARMS: Final = "alarm-centre"
READINGS: Final = "care-analytics"
FAMILY: Final = "family-app"
"""The cloud services that receive alarms, motions, and both."""

SERVICES: Final = {MOTION: "activity-service", KEYWORD: "voice-service"}
"""The service that sends events of each type."""

_SEND_S: Final = 600.0
"""How long a service waits for room in its window: longer than any fault lasts."""

WINDOW: Final = 1_000
"""Most messages of one service without a receipt."""


@dataclass(frozen=True, slots=True)
class Load:
    """`events` of each home at `per_s`, each `urgent_every`-th an alarm (0: none).

    With `best_effort` the services publish at QoS 0 and wait for no receipt.
    """

    events: int
    per_s: float
    urgent_every: int = 100
    best_effort: bool = False


class TimedLog(SentLog):
    """A `SentLog` whose `at` has the Unix time of each event's first sending."""

    def __init__(self, contract: Contract) -> None:
        super().__init__(contract)
        self.at: dict[Key, float] = {}

    def event(self, event: Envelope, channel: Channel, entered: Place = Place.DEVICE) -> None:
        """Do what `SentLog.event` does, and record when."""
        self.at.setdefault(event.claim, time())
        super().event(event, channel, entered)


class LoadSender(HomeServices):
    """The services of one home at its broker on 127.0.0.1:`port`, which send `load`."""

    def __init__(self, home: str, port: int, contract: Contract, sent: TimedLog, load: Load) -> None:
        super().__init__(home, SERVICES.values(), port, contract, sent, window=WINDOW, send_seconds=_SEND_S)
        self._load = load
        self._open = ExitStack()
        # At QoS 0: no receipt, nothing is sent again.
        self._best_effort = (
            self._open.enter_context(plain_client(f"best-effort-{home}", port)) if load.best_effort else None
        )

    def greet(self) -> None:
        """Return once the forwarder has stored an event; the broker keeps none before it has subscribed."""
        for type, service in SERVICES.items():
            self.put(service, self._event(type, GREETING))

    def play(self, ending: threading.Event) -> None:
        """Send the whole load, each event at its time or as soon after as there is room."""
        load = self._load
        began = monotonic()
        for number in range(load.events):
            if ending.wait(max(0.0, began + number / load.per_s - monotonic())):
                return
            is_urgent = load.urgent_every and number % load.urgent_every == 0
            self.send_number(KEYWORD if is_urgent else MOTION, number)

    def send_number(self, type: str, number: int) -> None:
        """Send the event `number` of a type."""
        service, event = SERVICES[type], self._event(type, number)
        if self._best_effort:
            text = self.record(service, event).json.encode()
            self._best_effort.publish(local_topic(service, "outbox"), text, qos=0)
        else:
            self.send(service, event)

    def send_malformed(self, message: Poison) -> None:
        """Send a malformed message among the events, without waiting for room."""
        self.send_poison_later(SERVICES[MOTION], message)

    def close(self) -> None:
        """End the connections at once, and with them a sending that waits for room."""
        super().close()
        self._open.close()

    def _event(self, type: str, number: int) -> Envelope:
        return write_event(
            {
                "id": f"{number}",
                "source": f"/homes/{self.home}/{SERVICES[type]}",
                "type": type,
                # Events of the bedroom go to one inbox only: a number sent is a number received.
                "subject": "/bedroom",
                "time": timestamp(utc_now()),
            },
            {"keyword": "help"} if type == KEYWORD else {"state": "moved"},
        )


class CarerMessages(Background):
    """Sends a message to each of `homes` in turn while its `with` block runs.

    `send` puts an event into the outbox of the carers; each is recorded in `sent` first.
    """

    _EVERY_S: Final = 5.0

    def __init__(
        self, contract: Contract, homes: Sequence[str], send: Callable[[str], object], sent: SentLog
    ) -> None:
        super().__init__("messages")
        self._outbox = contract.participants[CARERS].outbox
        self._homes = homes
        self._send = send
        self._sent = sent

    def _run(self) -> None:
        for number, home in zip(count(), cycle(self._homes), strict=False):
            if self._ending.wait(self._EVERY_S):
                return
            event = event_for(home, f"message-{number}", MESSAGE, {"text": f"Message {number}"})
            self._sent.event(event, self._outbox, Place.CLOUD)
            self._send(event.json)
