"""`trace` and the control room show what became of each event; the audit has an oracle of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from eventplane.account import Fate
from eventplane.contract import Place
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import DISCARDED
from eventplane.envelope import parse_event
from eventplane.ledger import parse_ledger_text
from eventplane.reasons import REDRIVE
from eventplane.receipts import digest
from eventplane.resource_names import dead_letter_queue
from eventplane.sqs_binding import split
from lab.control_room.tally import PATIENCE_MS, Tally
from lab.histories.cloud import BUCKET
from lab.histories.oracles.delivered import discarded, heard, letters, letters_about, put, taken
from lab.histories.oracles.finding import OracleFinding
from operations.archive import BucketArchive, Days
from operations.letters import Letter, read_letter
from operations.trace import traces
from parts.simulate.timeline import START_S

if TYPE_CHECKING:
    from lab.histories.history import History

T = TypeVar("T")
Known = dict[tuple[str, str], dict[str, set[Fate]]]
"""By event and inbox the words that a screen may show."""

Statements = Iterator[tuple[str, tuple[str, str], str, Fate]]
"""A screen, an event and an inbox, and the word that the screen shows."""

MOST_TRACED: Final = 3
"""Events of a history that are traced, those that did not arrive first: each trace reads the archive."""

BEGINS: Final = date(2026, 1, 1)
"""The day on which every history begins and ends."""


class _Read(Days):
    """Days of an archive in memory, which no thread reads ahead."""

    def rows(self, folder: str, wanted: Callable[[bytes], T | None], about: Hashable = None) -> Iterator[T]:
        del about
        return chain.from_iterable(self.rows_of(name, wanted) for name in self.names(folder, self._hours))


def judged(history: History) -> Iterator[OracleFinding]:
    """Compare what the screens show with what the simulator knows."""
    known = _known(history)
    for screen, key, inbox, fate in chain(_traced(history, known), _shown(history, known)):
        right = known.get(key, {}).get(inbox, {fate})
        # The control room reads no receipts.
        seen = {Fate.HANDLED} if screen != "trace" and fate is Fate.IN_INBOX else {fate}
        if right.isdisjoint(seen | {fate}):
            kind = f"{screen} says {fate} of what is {' or '.join(sorted(right))}"
            yield OracleFinding(kind, f"{key} at {inbox}")


def _known(history: History) -> Known:
    """What is known of the events that homes said, at the inboxes to which the contract leads them."""
    arrived, ends = put(history), {(*key, each["channel"]) for key, each in letters_about(history)}
    ended = letters(history)
    rows = (each for each in history.ledger if each["reason"] == REDRIVE)
    again = {(each["source"], each["id"], each["destination"]) for each in rows}
    lost, refused = discarded(history), _refused(history)
    known: Known = {}
    for key, (_, thing, service, event) in history.said.items():
        at = known[key] = dict[str, set[Fate]]()
        attributes = {**event.attributes, "senderdevice": thing, "senderservice": service}
        for route in history.contract.routes:
            inbox = route.destination
            if not route.filter.matches(attributes) or inbox == history.contract.device.outbox.address:
                continue
            if route.place is Place.DEVICE:
                taken_there = {
                    Fate.IN_INBOX,
                    *({Fate.HANDLED} if history.contract.channel(inbox).receipts else ()),
                }
                is_taken = key in heard(history, thing, inbox.partition(".")[0])
                # The archive knows what the next manifest of the home says.
                at[inbox] = {Fate.UNKNOWN, *(taken_there if is_taken else {Fate.REFUSED})}
            elif (*key, inbox) in ends:
                # It may have been sent back, and its letter was delivered twice.
                at[inbox] = {
                    Fate.GIVEN_UP,
                    *({Fate.IN_INBOX, Fate.HANDLED} if (*key, inbox) in again else ()),
                }
            elif key in arrived[inbox]:
                at[inbox] = {Fate.HANDLED if key in taken(history, inbox) else Fate.IN_INBOX}
            elif key in ended:
                at[inbox] = {Fate.REFUSED}
            else:
                # The archive knows nothing of what never left a home.
                at[inbox] = {Fate.UNKNOWN, *({Fate.REFUSED} if key in refused else ())}
                if key not in refused and history.homes[thing].numbers.get(key) not in lost:
                    at[inbox].add(Fate.LOST)
    return known


def _refused(history: History) -> dict[tuple[str, str], str]:
    """What homes did not store, and why, as the receipts say."""
    found = {}
    for key, (_, thing, service, event) in history.said.items():
        _, refused = (
            history.homes[thing].services[service].accepted.get(digest(event.json.encode()), (0.0, ""))
        )
        if refused:
            found[key] = refused
    return found


def _traced(history: History, known: Known) -> Statements:
    days, waiting = _Read(BucketArchive(history.cloud.s3, BUCKET), BEGINS, BEGINS), list(_waiting(history))
    ordinary = {key: all(each == {Fate.IN_INBOX} for each in at.values()) for key, at in known.items()}
    for key in sorted(known, key=lambda each: (ordinary[each], each))[:MOST_TRACED]:
        for trace in traces(key, days, waiting, history.contract):
            yield from (("trace", key, each.inbox, each.fate) for each in trace.accounts)


def _waiting(history: History) -> Iterator[Letter]:
    """The letters in dead-letter queues, without a receive."""
    for address, url in history.cloud.inboxes.items():
        name = dead_letter_queue(url.rpartition("/")[2])
        for each in history.cloud.sqs.queues[name].messages:
            system = each.system_attributes()
            yield read_letter({"MessageId": each.id, "Body": each.body, "Attributes": system}, name, address)


def _shown(history: History, known: Known) -> Statements:
    """The control room, by what its observers see."""
    tally = Tally(history.contract)
    for said_s, _, sender, event in history.said.values():
        tally.sent(event, sender, 1_000 * (START_S + said_s))
    for key, refused in _refused(history).items():
        tally.refused(key, "the forwarder", refused, 0.0)
    for service in chain.from_iterable(home.services.values() for home in history.homes.values()):
        for _, source, id in service.handled:
            tally.received(service.name, (source, id), 0.0)
    _observe_cloud(history, known, tally)
    for now_ms in (history.ended_ms, history.ended_ms + PATIENCE_MS):
        tally.counters(0, is_idle=True, now_ms=now_ms)
    for each in tally.last():
        for one in each.deliveries:
            yield "the control room", (each.source, each.id), f"{one.inbox}.inbox", one.fate


def _observe_cloud(history: History, known: Known, tally: Tally) -> None:
    """Tell the control room what functions put into the ledger's queue and into inboxes."""
    sqs = history.cloud.sqs
    for text in chain.from_iterable(parse_ledger_text(body).lines for body in sqs.sent[history.cloud.ledger]):
        tally.decided(json.loads(text))
    for address, url in history.cloud.inboxes.items():
        for event in map(parse_event, chain.from_iterable(map(split, sqs.sent[url]))):
            if event.claim in known or event.type in (DEAD_LETTER_TYPE, DISCARDED):
                tally.sent(event, event.sender.service, 0.0)
                tally.received(address.partition(".")[0], event.claim, 0.0)
