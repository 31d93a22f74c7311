"""What carers tell the homes while a run goes on: events on the way down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, cycle
from typing import Final

from eventplane.contract import Contract, Place
from eventplane.envelope import write_event
from eventplane.values import timestamp
from local.background import Background
from local.demo.carers import CARERS, CARERS_SOURCE, MESSAGE
from local.sent import SentLog
from local.services import utc_now

_EVERY_S: Final = 5.0


class Messages(Background):
    """Sends a message to one of `homes` after the other through `put`, while its `with` block runs.

    `put` writes a text into the outbox of the carers. Every message is noted in `sent`.
    """

    def __init__(
        self, contract: Contract, homes: Sequence[str], put: Callable[[str], object], sent: SentLog
    ) -> None:
        super().__init__("messages")
        self._outbox = contract.participants[CARERS].outbox
        self._homes = homes
        self._put = put
        self._sent = sent

    def _run(self) -> None:
        for number, home in zip(count(), cycle(self._homes), strict=False):
            if self._ending.wait(_EVERY_S):
                return
            now = timestamp(utc_now())
            names = {"source": CARERS_SOURCE, "todevice": home, "time": now, "recordedtime": now}
            event = write_event(
                {"id": f"message-{number}", "type": MESSAGE, **names}, {"text": f"Message {number}"}
            )
            self._sent.event(event, self._outbox, Place.CLOUD)
            self._put(event.json)
