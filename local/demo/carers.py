"""What carers tell each home: a message, said once, and a threshold that stays until it is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from eventplane.contract import Contract, Place
from eventplane.envelope import Envelope, write_event
from eventplane.fleet import FleetTable, LifecycleState, change, made
from eventplane.values import timestamp
from local.sent import SentLog
from local.services import utc_now

CARERS: Final = "carers"
CARERS_SOURCE: Final = f"/{CARERS}"

MESSAGE: Final = "org.eventplane.home.message.v1"
THRESHOLD: Final = "org.eventplane.home.threshold.v1"


class Home(Protocol):
    """The part of a home that matters here."""

    def cut_network(self) -> None: ...
    def heal_network(self) -> None: ...


class Carers:
    """Tell the fleet in `registry` through `send`, which puts a text into their outbox; note it in `sent`."""

    def __init__(
        self, contract: Contract, registry: FleetTable, send: Callable[[str], Any], sent: SentLog
    ) -> None:
        self._outbox = contract.participants[CARERS].outbox
        self._registry = registry
        self._send = send
        self._sent = sent

    def tell(self, homes: Mapping[str, Home]) -> list[Envelope]:
        """Register `homes` as devices in service, and tell them while the line of one of them is cut."""
        now_ms = int(utc_now().timestamp() * 1_000)
        for name in homes:
            new = replace(made(name, now_ms), state=LifecycleState.PROVISIONED)
            change(self._registry, name, lambda found, new=new: found or new)  # type: ignore[misc]
        away = next(iter(homes.values()))
        away.cut_network()
        # One by one: by the contract carers may address no more than one home at a time.
        events = [event for name in homes for event in _events(name)]
        for event in events:
            self._sent.event(event, self._outbox, Place.CLOUD)
            self._send(event.json)
        away.heal_network()
        return events


def _events(home: str) -> Iterable[Envelope]:
    now = timestamp(utc_now())
    names = {"source": CARERS_SOURCE, "todevice": home, "time": now, "recordedtime": now}
    yield write_event(
        {"id": f"good-morning-{home}", "type": MESSAGE, **names},
        {"text": "Good morning. We come at ten today."},
    )
    yield write_event(
        {
            "id": f"pulse-1-{home}",
            "type": THRESHOLD,
            "statekey": "threshold/home/pulse",
            **names,
        },
        {"reading": "pulse", "high": 110},
    )
