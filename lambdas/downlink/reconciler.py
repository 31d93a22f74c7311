"""The function that reconciles: once a minute it finds due items by the index, even if messages were lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from eventplane.downlink.desired import Desired
from eventplane.downlink.table import due_in
from eventplane.downlink.transitions import Transition, reconcile
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count, metrics
from lambdas.common.queue import Context
from lambdas.common.queue_function import at_init
from lambdas.downlink.items import RESERVE_MS
from lambdas.downlink.parts import DownlinkParts, wired

PAGE: Final = 100
"""Items of one look at the index: as many devices as one look at presence takes."""


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result of one run: items looked at; whether time ran out before the end. What is left stays due."""

    items: int
    is_complete: bool


class Reconciler:
    """Compares what devices shall have with what they have acknowledged."""

    def __init__(self, parts: DownlinkParts) -> None:
        self._parts = parts

    def reconcile(self, buckets: Sequence[int], remaining_ms: Callable[[], int]) -> Reconciled:
        """Look at what is due in `buckets`, the longest first. Each minute begins with another bucket."""
        looked, is_complete, now_ms = 0, True, self._parts.clock()
        first = now_ms // 60_000 % len(buckets)
        for bucket in (*buckets[first:], *buckets[:first]):
            pages = self._parts.table.key_pages(due_in(bucket, now_ms, PAGE))
            while is_complete and (keys := next(pages, None)):
                done = self._look(keys, remaining_ms)
                looked += done
                is_complete = done == len(keys) and remaining_ms() >= RESERVE_MS
        log = logger.info if is_complete else logger.warning
        log("reconciled", buckets=list(buckets), items=looked, complete=is_complete)
        return Reconciled(looked, is_complete)

    def _look(self, keys: Sequence[tuple[str, ...]], remaining_ms: Callable[[], int]) -> int:
        """The number of those that there was time for."""
        present = self._parts.presence.present({thing for thing, _ in keys})
        known: dict[str, bool] = {}
        for at, (thing, sk) in enumerate(keys):
            if remaining_ms() < RESERVE_MS:
                return at
            try:
                if thing not in known:
                    known[thing] = self._parts.fleet.has(thing)
                self._one(thing, sk, thing in present, known[thing])
            except Exception:  # noqa: BLE001 - one item must not keep all behind it from being looked at
                logger.exception("not reconciled", device=thing, sk=sk)
        return len(keys)

    def _one(self, thing: str, sk: str, is_present: bool, is_known: bool) -> None:
        def decide(item: Desired | None, now_ms: int) -> Transition:
            return Transition(None) if item is None else reconcile(item, now_ms, is_present, is_known)

        self._parts.items.change(thing, sk, decide)


@at_init
def service() -> Reconciler:
    """Return the reconciler that the environment describes. Raises `SettingsError`."""
    return Reconciler(wired())


@logger.inject_lambda_context
@metrics.log_metrics
def handle(event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Reconcile the `buckets` that the schedule names."""
    done = service().reconcile(event["buckets"], context.get_remaining_time_in_millis)
    count(Count.RECONCILED, done.items)
    return asdict(done)
