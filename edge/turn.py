"""One turn of the loop: what it takes in, what it commits, and what it sends when that is on the disk."""

from __future__ import annotations

from collections import ChainMap, Counter
from dataclasses import dataclass, field

from edge.intake import Slot
from edge.memory_lane import Fleeting
from edge.messages import Received
from edge.reports import NotStored
from edge.spool import Arrival, Delivery, Discard, Holding
from eventplane.contract import Channel
from eventplane.delivery import Refusal
from eventplane.downlink.wire import Incoming
from eventplane.questions import HandlersQuestion, StateQuestion
from eventplane.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Offer:
    """Bytes that somebody wants to be kept; with a `refusal` it is their dead letter.

    They came over or were meant for `address`; `channel` gives priority and `when_full`. `answer` is the
    service that gets a receipt, `ends` the delivery in whose place the dead letter comes.
    """

    payload: bytes
    address: str
    channel: Channel
    refusal: Refusal | None = None
    answer: str | None = None
    ends: Delivery | None = None


@dataclass(slots=True)
class Turn:
    """To commit at `life_ms` of the device's life: `arrivals`, numbered from `first_sequence`, the deliveries
    that are `done`, those to the cloud that became dead letters (`dead_lettered`), those `replaced` by other
    dead letters or by a newer state, and the `holdings` of the cloud's state. To send afterwards: the rest.

    `counted` has the last number of each counter as committed, `numbers` those of `arrivals`.

    `offers` and `keys` (what is remembered as stored) allow for taking the turn again when the disk is full.
    `receipts` are by service, `refused` counts dead letters by channel address and reason, `turned_away` what
    found no room, `not_wanted` what its reader does not handle. `descents` came from the cloud, `descended`
    counts what became of them, `new_keys` and `new_characters` what is held in addition; `questions` of
    services are answered from what is committed.
    """

    first_sequence: int
    life_ms: int
    counted: dict[str, int]
    numbers: dict[str, int] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    done: list[Delivery] = field(default_factory=list)
    dead_lettered: list[Discard] = field(default_factory=list)
    replaced: list[Delivery] = field(default_factory=list)
    acknowledge: list[Received] = field(default_factory=list)
    fleeting: list[Fleeting] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    turned_away: Counter[NotStored] = field(default_factory=Counter)
    not_wanted: Counter[NotStored] = field(default_factory=Counter)
    offers: list[Offer] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    descents: list[Incoming] = field(default_factory=list)
    holdings: dict[tuple[str, str], Holding] = field(default_factory=dict)
    new_keys: int = 0
    new_characters: int = 0
    descended: Counter[str] = field(default_factory=Counter)
    contract_changed: bool = False
    uplink_interest_changed: bool = False
    questions: list[StateQuestion | HandlersQuestion] = field(default_factory=list)

    @property
    def slot(self) -> Slot:
        """What the next arrival gets."""
        counted = ChainMap(self.numbers, self.counted)
        return Slot(self.first_sequence + len(self.arrivals), self.life_ms, counted)

    def store(self, arrival: Arrival) -> None:
        """Take the `arrival` of the current `slot`."""
        self.arrivals.append(arrival)
        self.numbers.update(arrival.positions)
