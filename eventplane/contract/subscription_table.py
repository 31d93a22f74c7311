"""The table of subscriptions, and the one way to read and to change them."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from eventplane.contract.subscription import MAX_OWN, Subscription, age
from eventplane.records import Item, OnForeign, RecordError, RecordKind, Records, Tables

PARTITION: Final = "participant"
SORT: Final = "name"

SUBSCRIPTIONS_TABLE: Final = "subscriptions"
"""The name of an environment's table, before `resource_name`."""

SUBSCRIPTION: Final = RecordKind(type=Subscription, key=(PARTITION, SORT))
"""How the table keeps its items."""


def _ignored(item: Item, error: RecordError) -> None:
    """Ignore an item that is no record."""


class SubscriptionTable:
    """`name` in `tables`, whose errors are raised as they are. Unreadable items go to `on_foreign`."""

    def __init__(self, tables: Tables, name: str, on_foreign: OnForeign = _ignored) -> None:
        self._records = Records(tables, name, SUBSCRIPTION)
        self._on_foreign = on_foreign

    def all(self) -> frozenset[Subscription]:
        """Return every subscription; of a participant with too many, the oldest `MAX_OWN` and one more.

        `with_subscriptions` refuses that one, so that the refusal is reported.
        """
        found: defaultdict[str, list[Subscription]] = defaultdict(list)
        for each in self._records.all(self._on_foreign):
            own = found[each.participant]
            own.append(each)
            if len(own) > 2 * MAX_OWN:
                own[:] = _oldest(own)
        return frozenset(each for own in found.values() for each in _oldest(own))

    def of(self, participant: str) -> list[Subscription]:
        """Return the subscriptions of `participant`, by name."""
        return list(self._records.of(participant, on_foreign=self._on_foreign))

    def get(self, participant: str, name: str) -> Subscription | None:
        """Return the subscription `name` of `participant`; None if there is none."""
        try:
            return self._records.read(participant, name)
        except RecordError as error:
            self._on_foreign(SUBSCRIPTION.key_of(participant, name), error)
            return None

    def write(self, subscription: Subscription) -> Subscription | None:
        """Write the successor of `subscription` and return it; None if its name is taken, or was changed."""
        return self._records.write(subscription)

    def remove(self, subscription: Subscription) -> bool:
        """Delete `subscription` if it is unchanged; return whether it is gone."""
        return self._records.remove(subscription)


def _oldest(own: list[Subscription]) -> list[Subscription]:
    return sorted(own, key=age)[: MAX_OWN + 1]
