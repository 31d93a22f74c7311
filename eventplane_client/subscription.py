"""A participant's own route into its inbox, checked as the contract's routes are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eventplane.contract import Problem
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.filters import Filter
from eventplane_client.errors import SubscriptionError

_IN_FORCE: Final = timedelta(seconds=IN_FORCE_S)


def checked_filter(name: str, document: object) -> Filter:
    """The filter of `document`. Raises `SubscriptionError` with all that is wrong."""
    problems: list[Problem] = []
    filter = read_filter(document, "filter", problems)
    if problems:
        raise SubscriptionError(name, problems)
    return filter


def in_force_from(now: datetime, created: datetime | None = None) -> datetime:
    """From when on a subscription in the routers' table is in force, which the table has by now.

    One that was `created` long ago, by another machine's clock, is in force already (None: unknown).
    """
    latest = now + _IN_FORCE
    # Its clock may be wrong, and writing took some time: twice as long is enough for both.
    return latest if created is None else min(latest, created + 2 * _IN_FORCE)


class NoSubscriptions:
    """The subscriptions of a participant whose routes are the contract's alone: a service on a device."""

    def __init__(self, why: str) -> None:
        self._why = why

    def subscribe(self, name: str, filter: object) -> datetime:  # noqa: ARG002 (the others need it)
        raise SubscriptionError(name, [Problem("filter", self._why, "add a route to the contract")])

    def unsubscribe(self, name: str) -> None:
        self.subscribe(name, None)
