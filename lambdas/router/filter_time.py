"""The filters of one message, bounded in computing time, so that costly ones do not keep others waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventplane.contract import Contract, Priority, Route
from eventplane.contract.subscription import has_costly
from eventplane.envelope import Envelope
from eventplane.errors import EventPlaneError
from eventplane.interest import is_wanted
from eventplane.router import Router
from lambdas.router.payload import Spent

MESSAGE_SECONDS: Final = 0.5
"""Most computing time for the filters of one queue message, seconds. Ours: a thousand events with ordinary
filters take a tenth of it, and a batch of ten such messages fits the function's timeout."""


class SlowFiltersError(EventPlaneError):
    """The filters of one queue message take longer than `MESSAGE_SECONDS`."""

    message = (
        f"the filters of one message take longer than {MESSAGE_SECONDS:g} s; find the participant with "
        "the costly subscriptions, or the device that sends such events"
    )


class FilterTime:
    """Evaluates the filters of `router` and of announced interest; the time counts from `begin`.

    `cpu_time` gives the seconds computed. Nothing is measured unless participants added costly filters to
    `contract`: its own are the operator's.
    """

    def __init__(
        self, router: Router, contract: Contract, cpu_time: Callable[[], float], *, has_time_limit: bool
    ) -> None:
        self._router = router
        self._cpu_time = cpu_time
        self._is_bounded = has_time_limit and has_costly(contract)
        self._spent = Spent()

    def begin(self, spent: Spent) -> None:
        """Count the time of another message in `spent`."""
        self._spent = spent

    def routes(self, event: Envelope, priority: Priority) -> list[tuple[Route, bool]]:
        """The routes that `event` takes, each with whether its reader wants it. Raises `SlowFiltersError`.

        One event takes a bounded time, by the bounds on filters; so looking between two events is enough.
        """
        if not self._is_bounded:
            return self._routes(event, priority)
        if self._spent.seconds >= MESSAGE_SECONDS:
            raise SlowFiltersError
        before = self._cpu_time()
        found = self._routes(event, priority)
        self._spent.seconds += self._cpu_time() - before
        return found

    def _routes(self, event: Envelope, priority: Priority) -> list[tuple[Route, bool]]:
        return [(route, is_wanted(route.interest, event, priority)) for route in self._router.route(event)]
