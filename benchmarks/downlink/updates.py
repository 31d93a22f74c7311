"""The updates of these runs: new thresholds for a home."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.downlink.usage import SENDER
from eventplane.contract import Downlink
from eventplane.downlink.table import sort_key
from eventplane.envelope import write_event
from tests.integration.downlink import THRESHOLD


@dataclass(frozen=True, slots=True)
class Update:
    """A new state for a device; its sort key is `sk`."""

    thing: str
    key: str
    version: int

    @property
    def sk(self) -> str:
        return sort_key(Downlink.STATE, self.key)

    @property
    def stored(self) -> tuple[str, str, int]:
        """As the meter notes it."""
        return self.thing, self.sk, self.version

    def text(self) -> str:
        """The event, as a carers' service writes it."""
        attributes = {
            "id": f"{self.thing}-{self.key}-{self.version}",
            "source": f"/{SENDER}",
            "type": THRESHOLD,
            "todevice": self.thing,
            "statekey": self.key,
            "stateversion": str(self.version),
        }
        return write_event(attributes, {"reading": "pulse", "high": self.version}).json
