"""The meter of benchmarks/cost for the calls of the way down; it notes when an answer is recorded."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from benchmarks.cost.meter import DYNAMODB, Meter
from benchmarks.cost.prices import Units
from benchmarks.downlink.usage import PUBLISH

_PATIENCE_S: Final = 180.0

Stored = tuple[str, str, int]
"""Thing, sort key and version of a state that its device has stored."""


class DownlinkMeter(Meter):
    """`calls` counts by operation; `stored` has when each acknowledgement was written (`monotonic_ns`)."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.calls: Counter[str] = Counter()
        self.stored: dict[Stored, int] = {}
        self._tick = threading.Condition()

    @property
    def transmissions(self) -> int:
        """Publishes to devices so far."""
        return self.calls[PUBLISH]

    def wait_for(self, is_done: Callable[[], bool]) -> None:
        """Wait until `is_done`, which looks at `stored`; nothing written for three minutes ends the run."""
        with self._tick:
            while not is_done():
                if not self._tick.wait(_PATIENCE_S):
                    raise SystemExit("devices do not answer any more; see the run's logs")

    def _count(self, action: str, request: bytes, answer: bytes) -> None:
        now = monotonic_ns()
        with self._tick:
            self.calls[action] += 1
            if action == PUBLISH:
                # One message from the cloud to the broker, one from there to the device.
                with self._lock:
                    self.units += Units({"iot_message": 2})
            else:
                super()._count(action, request, answer)
            if action == f"{DYNAMODB}PutItem" and b"__type" not in answer:
                self._note(json.loads(request)["Item"], now)
            self._tick.notify_all()

    def _note(self, item: dict[str, Any], now: int) -> None:
        version = item.get("acknowledged_version")
        if version is not None:
            self.stored.setdefault((item["thing"]["S"], item["sk"]["S"], int(version["N"])), now)
