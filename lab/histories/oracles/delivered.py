"""Accepted events are delivered, dead-lettered or dropped by declaration, and the ledger says which.

A reader handles each event once, and knows what it has acknowledged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from eventplane.attributes import Attributes
from eventplane.contract import Contract, Ordering, Place
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DISCARDED
from eventplane.envelope import Envelope, parse_event
from eventplane.names import EPOCH
from eventplane.reader_receipts import is_asked
from eventplane.receipts import digest
from eventplane.sqs_binding import split
from lab.histories.oracles.finding import OracleFinding, seen_once
from lab.histories.reader import DependencyDownError
from lab.histories.story import READERS

if TYPE_CHECKING:
    from lab.histories.history import History
    from parts.simulate.home import HomeModel


class _Ends:
    """Where events of a history have come to, by source and id."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.queued, self.letters = _queued(history), letters(history)
        self.ledger = {(each["destination"], each["source"], each["id"]) for each in history.ledger}
        self.discarded = discarded(history)

    def is_at(self, destination: str, key: tuple[str, str]) -> bool:
        """Return whether a reader handled it, or it lies in an inbox that nothing reads here."""
        name = destination.partition(".")[0]
        if name in READERS:
            return (name, *key) in self._history.handled.done
        # The plane's own functions read theirs.
        return name in ("presence-monitor", "downlink") or (destination, *key) in self.queued


def judged(history: History) -> Iterator[OracleFinding]:
    """Look at each event that a service of a home said, and each that a reader in the cloud handled."""
    yield from _repeated(history)
    ends = _Ends(history)
    for about, letter in letters_about(history):
        # In an inbox with an order all that follows waits: there an event is given up sooner.
        is_ordered = history.contract.channel(letter["channel"]).ordering is Ordering.SOURCE
        if letter["reason"] == DependencyDownError.__name__ and not is_ordered:
            yield OracleFinding("given up while what its reader depends on was down", f"{about}")
    for key, (_, thing, service, event) in history.said.items():
        home = history.homes[thing]
        accepted = home.services[service].accepted.get(digest(event.json.encode()))
        if accepted is None:
            yield OracleFinding("never accepted", f"{key}")
        elif _is_kept(home, accepted, event) and home.numbers.get(key) not in ends.discarded:
            attributes = {**event.attributes, "senderdevice": thing, "senderservice": service}
            here = _destinations(history.contract, Place.DEVICE, attributes)
            stored = home.for_cloud.get(home.numbers.get(key, ("", 0)))
            if stored is not None and (contract := home.contract_at(stored.at_s)) is not None:
                here = _destinations(contract, Place.DEVICE, attributes)
            yield from _at_home(history, thing, key, here)
            if history.contract.device.outbox.address in here:
                yield from _in_cloud(ends, key, _destinations(history.contract, Place.CLOUD, attributes))


@seen_once
def taken(history: History, inbox: str) -> set[tuple[str, str]]:
    """Return the events that the reader of `inbox` handled, and of which it leaves a receipt."""
    channel, reader = history.contract.channel(inbox), inbox.partition(".")[0]
    percent = channel.receipts_percent if channel.asks_for_receipts else 0
    return {
        (source, id)
        for participant, source, id in history.handled.done
        if participant == reader and is_asked(source, id, percent)
    }


def _is_kept(home: HomeModel, accepted: tuple[float, str | None], event: Envelope) -> bool:
    """Whether the device stored an event, or has an alarm in memory that found no room on the disk."""
    at_s, refused = accepted
    return refused is None or (".alarm." in event.type and not any(each >= at_s for each in home.ended_s))


def _destinations(contract: Contract, place: Place, attributes: Attributes) -> list[str]:
    routes = contract.routes_at(place)
    return sorted({each.destination for each in routes if each.filter.matches(attributes)})


def _at_home(
    history: History, thing: str, key: tuple[str, str], destinations: Iterable[str]
) -> Iterator[OracleFinding]:
    for name in (each.partition(".")[0] for each in destinations):
        if name in history.homes[thing].services and key not in heard(history, thing, name):
            yield OracleFinding("accepted and not delivered in the home", f"{key} to {name}")


@seen_once
def heard(history: History, thing: str, service: str) -> set[tuple[str, str]]:
    """Return the events that a `service` of the home `thing` handled."""
    return {(source, id) for _, source, id in history.homes[thing].services[service].handled}


def _in_cloud(ends: _Ends, key: tuple[str, str], destinations: Iterable[str]) -> Iterator[OracleFinding]:
    for each in destinations:
        if not ends.is_at(each, key) and key not in ends.letters:
            what = "only waits" if (each, *key) in ends.queued else "gone"
            yield OracleFinding(f"accepted and {what} in the cloud", f"{key} to {each}")
        if not {(each, *key), (None, *key)} & ends.ledger:
            yield OracleFinding("not in the ledger", f"{key} to {each}")


def _queued(history: History) -> set[tuple[str, str, str]]:
    found = set()
    for address, url in history.cloud.inboxes.items():
        for body in history.cloud.sqs.bodies(url):
            found |= {(address, each.source, each.id) for each in map(parse_event, split(body))}
    return found


@seen_once
def letters(history: History, *, ever: bool = False) -> set[tuple[str, str]]:
    """Return the events that dead letters are about; `ever` those that were put back, too."""
    return {about for about, _ in letters_about(history, ever=ever)}


@seen_once
def put(history: History) -> dict[str, set[tuple[str, str]]]:
    """The events that were ever put into each inbox."""
    return {
        address: {
            (each["source"], each["id"])
            for body in history.cloud.sqs.sent[url]
            for each in map(json.loads, split(body))
        }
        for address, url in history.cloud.inboxes.items()
    }


@seen_once
def letters_about(history: History, *, ever: bool = False) -> list[tuple[tuple[str, str], Any]]:
    """The data of each dead letter in the operators' inbox, and which event it is about."""
    sqs, url = history.cloud.sqs, history.cloud.inboxes["operations.inbox"]
    found = []
    for body in sqs.sent[url] if ever else sqs.bodies(url):
        event = parse_event(body)
        if event.type == DEAD_LETTER_TYPE:
            letter = event.data()
            about = parse_event(base64.b64decode(letter["original_base64"]))
            found.append(((about.source, about.id), letter))
    return found


@seen_once
def discarded(history: History, *, at_home: bool = False) -> set[tuple[str, int]]:
    """The numbers that devices reported as not sent to the cloud, or to services in the home, by epoch."""
    found: set[tuple[str, int]] = set()
    for body in history.cloud.sqs.bodies(history.cloud.inboxes["operations.inbox"]):
        event = parse_event(body)
        if event.type == DISCARDED:
            epoch = str(event.attributes[EPOCH])
            for tally in event.data()["deliveries"]:
                if (tally["destination"] != history.contract.device.outbox.address) == at_home:
                    found |= {
                        (epoch, each) for first, last in tally["ranges"] for each in range(first, last + 1)
                    }
    return found


def _repeated(history: History) -> Iterator[OracleFinding]:
    for key, times in history.handled.done.items():
        if len(times) > 1:
            yield OracleFinding("handled twice", f"{key} at {times}")
    for key in history.handled.doubted:
        yield OracleFinding("in doubt after it was settled", f"{key}")
