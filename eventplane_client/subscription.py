"""A participant's own route into its inbox, checked as the contract's routes are."""

from __future__ import annotations

from eventplane.contract import Problem
from eventplane.contract.filter_reader import read_filter
from eventplane.filters import Filter
from eventplane_client.errors import SubscriptionError


def checked_filter(name: str, document: object) -> Filter:
    """The filter of `document`. Raises `SubscriptionError` with all that is wrong."""
    problems: list[Problem] = []
    filter = read_filter(document, "filter", problems)
    if problems:
        raise SubscriptionError(name, problems)
    return filter


class NoSubscriptions:
    """Of a participant whose routes are the contract's alone: a service on a device."""

    def __init__(self, why: str) -> None:
        self._why = why

    def subscribe(self, name: str, filter: object) -> None:  # noqa: ARG002 (the others need it)
        raise SubscriptionError(name, [Problem("filter", self._why, "add a route to the contract")])

    def unsubscribe(self, name: str) -> None:
        self.subscribe(name, None)
