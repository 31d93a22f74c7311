"""Looks at the fleet once a minute: counts it, and sends the notices that an outage holds back as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.envelope import parse_event
from eventplane.presence import PresenceItem, PresenceLimits, Standing
from eventplane.sqs_binding import to_message
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.metrics import Gauge, measure
from lambdas.common.sqs import send_all
from parts.presence.reports import OPENED, OVER, notice_of_many
from parts.presence.table import PAGE
from parts.presence.wiring import PresenceParts

MOST_NAMED: Final = 500
"""Devices in one notice. Ours: with the longest names they are 150 KB, and their writes take seconds."""

MOST_READ: Final = 5_000
"""Devices that one look reads to name them. Ours: more than it has time to name, and read in some seconds;
where all were read first, a large outage would leave no time to name any."""

NOTICE_MS: Final = 20_000
"""No notice is begun with less time left, milliseconds: who is not noted as told is told again."""

_COUNT_MS: Final = 2 * WORST_CALL_MS
"""Nothing is counted with less time left, milliseconds."""

_TRIES: Final = 3


class FleetWatch:
    """Counts the devices of `parts`, and sends notices that were held back to the queue at `outbox_url`."""

    def __init__(self, parts: PresenceParts, limits: PresenceLimits, outbox_url: str) -> None:
        self._parts = parts
        self._limits = limits
        self._outbox_url = outbox_url

    def look(self, remaining_ms: Callable[[], int]) -> dict[str, int]:
        """Send what is held back, count, and return both. What fails is logged, and left to the next look."""
        found: dict[str, int] = {}
        try:
            found["named"] = self._send_held(lambda: remaining_ms() >= NOTICE_MS)
            found |= self._count(lambda: remaining_ms() >= _COUNT_MS)
        except (TimeoutError, ClientError, BotoCoreError):
            logger.exception("the fleet was not looked at to the end", found=found)
        return found

    def _count(self, has_time: Callable[[], bool]) -> dict[str, int]:
        population, now_ms = self._parts.population, self._parts.clock()
        census = population.census(now_ms, has_time)
        settled_ms = round(1_000 * self._limits.disconnected_after_s)
        found = {
            Gauge.CONNECTED: census[Standing.CONNECTED],
            # Of whom carers are told as of one of many is most likely lost.
            Gauge.LOST: census[Standing.LOST] + census[Standing.HELD] + census[Standing.LISTED],
            Gauge.QUIET: census[Standing.QUIET],
            # Connections that are made anew at once are no outage.
            Gauge.OUTAGE: population.outage(now_ms, has_time, settled_ms, sum(census.values())),
        }
        for gauge, number in found.items():
            measure(gauge, number)
        return {str(gauge): number for gauge, number in found.items()}

    def _send_held(self, has_time: Callable[[], bool]) -> int:
        """Send what is held once the longest was held long enough; return how many devices were named.

        What is sent is noted afterwards: a device may be named twice, and none is left out.
        """
        now_ms = self._parts.clock()
        by_phase: defaultdict[str, list[PresenceItem]] = defaultdict(list)
        for state in islice(self._held(now_ms, has_time), MOST_READ):
            if state.held:
                by_phase[state.held.phase].append(state)
        if not by_phase:
            return 0
        named = 0
        for phase, states in by_phase.items():
            for at in range(0, len(states), MOST_NAMED):
                if has_time():
                    named += self._send(phase, states[at : at + MOST_NAMED], now_ms)
        logger.warning("notices were sent as one", devices=named, phases=sorted(by_phase))
        return named

    def _held(self, now_ms: int, has_time: Callable[[], bool]) -> Iterator[PresenceItem]:
        """Yield devices whose notices are held back, once the longest was held long enough."""
        pages = self._parts.population.pages
        if any(pages(Standing.HELD, 0, now_ms - 1_000 * self._limits.outage.held_s, has_time)):
            held = chain.from_iterable(pages(Standing.HELD, 0, now_ms, has_time))
            while devices := [*islice(held, PAGE)]:
                yield from self._parts.table.read(devices).values()

    def _send(self, phase: str, states: Sequence[PresenceItem], now_ms: int) -> int:
        message = to_message(parse_event(notice_of_many(phase, states, now_ms)))
        if send_all(self._parts.sender, self._outbox_url, [message]) != [True]:
            return 0
        for each in states:
            self._note(each)
        return len(states)

    def _note(self, told: PresenceItem) -> None:
        """Write that carers were told, unless something else is held by now.

        An incident that ended meanwhile ended as one that they had not been told of.
        """
        current, notice = told, told.held
        for _ in range(_TRIES):
            if notice is not None and current.held == notice:
                state = replace(current, held=None, listed=notice.incident)
            elif (
                notice
                and notice.phase == OPENED
                and not (current.held or current.incident or current.is_gone)
            ):
                state = replace(current, held=replace(notice, phase=OVER, at_ms=self._parts.clock()))
            else:
                return
            if self._parts.table.write(state, current.due_ms):
                return
            current = self._parts.table.read([told.device]).get(told.device, current)
