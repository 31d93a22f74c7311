"""Write orders for the replay, from an audit's manifest or from a request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from eventplane.archive_layout import AUDIT
from eventplane.contract import Contract, ParticipantKind, Place
from eventplane.envelope import EventKey
from eventplane.errors import EnvelopeError
from eventplane.ledger import TAP
from eventplane.reasons import REPLAY
from eventplane.router import Router
from eventplane.sending import SendingRights
from eventplane_aws.rules import SQS_BATCH
from operations.archive import Days, json_object
from operations.command import ChoiceError
from operations.errors import OrdersRefusedError
from operations.names import event_in_tap
from parts.replay.order import Order, Owed, WindowOrder, order_text, orders_of

MANIFEST: Final = f"{AUDIT}/{REPLAY}"
"""The folder of the archive in which the delivery audit lists what to send again."""

_NAMES: Final = tuple(each.name for each in fields(Owed))


@dataclass(frozen=True, slots=True)
class Asked:
    """A past window, by acceptance, for the inbox of `participant` or over the one `route`."""

    since: datetime
    until: datetime
    participant: str | None
    route: str | None

    def order(self, file: str) -> WindowOrder:
        """The order for one file of the tap."""
        since_ms, until_ms = (round(each.timestamp() * 1_000) for each in (self.since, self.until))
        return WindowOrder(file, since_ms, until_ms, self.participant, self.route)

    def routes(self, contract: Contract) -> set[str]:
        """The routes that are meant. Raises `ChoiceError` when `contract` has none."""
        found = {each.name for each in contract.routes_at(Place.CLOUD) if self._means(each.name, contract)}
        if not found:
            known = sorted(each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
            what = f"leads to {self.participant}" if self.participant else f"is called {self.route}"
            raise ChoiceError(f"no route of the cloud {what}; its services are {', '.join(known)}")
        return found

    def _means(self, name: str, contract: Contract) -> bool:
        if self.participant is None:
            return name == self.route
        leads_to = next(each.destination for each in contract.routes if each.name == name)
        return contract.channel(leads_to).participant == self.participant


def owed_by_file(days: Days, route: str | None) -> dict[str, list[Owed]]:
    """Return the events that the audits of `days` report lost, on `route` or on all, by the tap's file."""

    def wanted(line: bytes) -> tuple[str, Owed] | None:
        row = json_object(line)
        if row is None or (route is not None and row["route"] != route):
            return None
        return row["archive_file"], Owed(**{name: row[name] for name in _NAMES})

    found: defaultdict[str, list[Owed]] = defaultdict(list)
    for file, owed in days.rows(MANIFEST, wanted):
        found[file].append(owed)
    return found


def owed_orders(owed: Mapping[str, Sequence[Owed]]) -> Iterator[Order]:
    """The orders for what is owed."""
    for file in sorted(owed):
        yield from orders_of(file, owed[file])


def window_files(days: Days, asked: Asked, late: timedelta) -> list[str]:
    """The tap's files that can hold what was accepted in the window, if it was written at most `late`."""
    return list(days.names(TAP, (asked.since, asked.until + late)))


def matching(days: Days, asked: Asked, contract: Contract) -> Counter[str]:
    """Count the events of the window that take the requested routes, by route: the size of the order."""
    routes, router = asked.routes(contract), Router(contract, Place.CLOUD)
    rights = SendingRights(contract)
    bounds = asked.order("")

    def wanted(line: bytes) -> tuple[EventKey, list[str]] | None:
        row = json_object(line)
        if row is None or row["event"] is None or not bounds.from_ms <= row["accepted_at_ms"] < bounds.to_ms:
            return None
        try:
            event = event_in_tap(row)
        except EnvelopeError:
            return None
        if rights.refusal(event):
            return None
        taken = [each.name for each in router.route(event) if each.name in routes]
        return (event.key, taken) if taken else None

    found = dict(days.rows(TAP, wanted))
    return Counter(route for taken in found.values() for route in taken)


def send(sqs: Any, url: str, orders: Sequence[Order]) -> None:
    """Put `orders` into the queue at `url`. Raises `OrdersRefusedError`, and what botocore raises."""
    # Ten of the largest are still less than SQS takes at once.
    for start in range(0, len(orders), SQS_BATCH.most):
        entries = [
            {"Id": str(at), "MessageBody": order_text(order)}
            for at, order in enumerate(orders[start : start + SQS_BATCH.most])
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        taken = len(answer.get("Successful", []))
        if taken < len(entries):
            codes = [str(each["Code"]) for each in answer.get("Failed", [])] or ["no answer"]
            raise OrdersRefusedError(codes[0], start + taken)
