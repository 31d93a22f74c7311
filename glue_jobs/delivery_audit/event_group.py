"""The archive's plain rows of one identity, and a judgement of it. No Spark.

All rows that name one `source` and `id` are one `EventGroup`, whoever sent them; so are all rows of refused
items with one client, reason and time of acceptance. `judge.judge` turns a group into a `Judgement`. Spark's
rows become these tuples by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from eventplane.ledger import Basis
from eventplane.reasons import REDRIVE, REPLAY
from glue_jobs.delivery_audit.findings import Finding

NO_ROUTE: Final = "(unrouted)"
"""Stands for a route where none matches. No route can be called so, or has a space in its name."""

EVERY_ROUTE: Final = "(every route)"
"""Stands for a route where a ledger row has none and yet is not `unrouted`: every route ends so."""

UNWANTED: Final = "~"
"""Stands before the name of a route that takes an event and does not forward it. No name begins so."""

HOUR_MS: Final = 3_600_000


class Ruling(StrEnum):
    """Exactly one for each event and route.

    An expected delivery gets one of `EXPECTED`, one that its reader does not want `no_interest`. An event
    that no route matches must be recorded as `unrouted`; without a record it is `lost`: no event vanishes.
    """

    DELIVERED = "delivered"
    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    DROPPED = "dropped"
    LOST = "lost"
    PENDING = "pending"
    """Without a record as well, but so young that one may still come (`watermark`)."""
    UNRECORDED = "unrecorded"
    """Without a record, and the archive has a hole where it would be, or another record proves it."""
    NOT_UNDERSTOOD = "not_understood"
    """The only record is of a newer version, or invalid: it neither proves nor accuses."""
    NO_INTEREST = "no_interest"
    """Not forwarded, because the contract in force says that its reader does not handle such events."""
    UNROUTED = "unrouted"
    MISROUTED = "misrouted"
    """Recorded on a route that no contract in force gives."""
    UNEXPLAINED = "unexplained"
    """Recorded as coming from a device, unknown to the tap; `devices` decides whether the tap has a hole."""
    INTERNAL = "internal"
    """Entered in the cloud: a service's outbox, or a dead letter that the router made. No tap row, so no
    expectation but the ledger's own word."""


EXPECTED: Final = (
    Ruling.DELIVERED,
    Ruling.DEAD_LETTERED,
    Ruling.EXPIRED,
    Ruling.DROPPED,
    Ruling.LOST,
    Ruling.PENDING,
    Ruling.UNRECORDED,
    Ruling.NOT_UNDERSTOOD,
)
"""The ends of an expected delivery, where the tap has the event."""


class TapRow(NamedTuple):
    """One copy of an event that IoT Core accepted, times in Unix milliseconds.

    `place` is the item's in its message (`index`), `service` the sender's as the event names it. `routes` has
    one text for each contract of the history, in its order: the names of the routes that the event takes by
    it, parted by spaces, `UNWANTED` before those that do not forward it, or `NO_ROUTE`. `sequence` is None
    where a simple client sends without numbers, `partition` is the `partitionkey`. `data_digest` is a hash of
    the payload, None where there is none. `digest` is the `eventplane.device_reports.short_digest` of the
    event, by the row's own word if it `is_redacted`. `said_at_ms` is read where deliveries are listed.
    `file` is the object's name beneath the archive, `unread` names what the core would not accept, and the
    audit cannot judge by, `within` is whether it belongs to the window. `followed` is the contract under
    which the device accepted the event, as the event names it.
    """

    accepted_at_ms: int
    message_id: str
    place: int
    archived_at_ms: int
    file: str
    client_id: str
    service: str | None
    source: str
    id: str
    type: str
    epoch: str | None = None
    sequence: int | None = None
    partition: str | None = None
    dead_letter_reason: str | None = None
    recorded_at_ms: int | None = None
    said_at_ms: int | None = None
    expires_at_ms: int | None = None
    hops: int | None = None
    asks_best_effort: bool = False
    names_sender: bool = False
    is_too_large: bool = False
    data_digest: int | None = None
    digest: str | None = None
    is_redacted: bool = False
    routes: Sequence[str] = ()
    unread: str | None = None
    unknown_members: bool = False
    within: bool = True
    followed: str | None = None


class LedgerRow(NamedTuple):
    """A line of the ledger, as `eventplane.ledger.LedgerRecord`; any member may be None in what is read."""

    decided_at_ms: int
    entered_at_ms: int
    entered_by: str
    contract_version: str
    source: str
    id: str
    type: str | None
    priority: str | None
    client_id: str | None
    route: str | None
    destination: str | None
    outcome: str
    reason: str | None
    attempt: int | None
    message_id: str | None
    sender: str | None = ""
    received_at_ms: int | None = None
    basis: str | None = None
    put_back_by: str | None = None
    digest: str | None = None
    dead_letter_reason: str | None = None
    file: str = ""
    unknown_members: bool = False
    within: bool = True

    @property
    def has_times(self) -> bool:
        """True if it says when it entered and was decided."""
        return None not in self[:2]

    @property
    def is_whole(self) -> bool:
        """True if it also says by which channel it entered, and by which contract it was decided."""
        return None not in self[:4]

    @property
    def is_by_contract_in_force(self) -> bool:
        """True if the router decided by the contract that it had seen in force.

        A replay decides by the contract of then, a redrive decides nothing, and a router that has just
        started decides by what it has.
        """
        return self.basis != Basis.BUNDLED and self.reason not in (REPLAY, REDRIVE)


class HandoverRow(NamedTuple):
    """A line of the handovers, as `eventplane.ledger.HandoverRecord`; any member may be None."""

    decided_at_ms: int
    entered_at_ms: int
    channel: str
    contract_version: str | None
    source: str
    id: str
    type: str | None
    outcome: str
    reason: str | None
    status: int | None
    attempt: int | None
    message_id: str | None
    route: str | None = None
    sender: str | None = ""
    file: str = ""
    unknown_members: bool = False
    within: bool = True


class RefusedItem(NamedTuple):
    """An item of the tap that is not an event: its place, a digest of its bytes, and why it was refused."""

    place: int
    digest: str
    client_id: str
    reason: str
    accepted_at_ms: int
    file: str


class BadRow(NamedTuple):
    """A row of an archive that cannot be judged, with the reason and the text, as the quarantine keeps it.

    `date` is that of its folder. `sender`, `source` and `id` are what can be read of whom it is about.
    """

    archive: str
    date: str
    file: str
    reason: str
    text: str | None
    sender: str | None = None
    source: str | None = None
    id: str | None = None


class EventGroup(NamedTuple):
    """Everything that the archive has of one identity, in any order, copies in several objects included.

    The rows are those of all folders that are read: those `within` the window by their own time (handovers
    and lines that cannot be read by folder), and those of the days around. `dead_letters` are ids of those
    that the cloud's router wrote and somebody received (ledger rows `delivered` of type `DEAD_LETTER_TYPE` by
    the sender `PLANE`): at least those about events of the group, more do no harm. `given_up` has those of
    readers (`judging.letters_of_readers`). `beyond` is how many rows there are besides, where there are so
    many that the group is not judged.
    """

    tap: Sequence[TapRow] = ()
    ledger: Sequence[LedgerRow] = ()
    handovers: Sequence[HandoverRow] = ()
    items: Sequence[RefusedItem] = ()
    bad: Sequence[BadRow] = ()
    dead_letters: Collection[str] = frozenset()
    beyond: int = 0
    given_up: Mapping[str, Sequence[LedgerRow]] = MappingProxyType({})


class ReplayRow(NamedTuple):
    """An event and a route that the cloud lost and the tap still has: what to send again.

    `entered_at_ms` is to stand in the ledger's record of the replay, with `REPLAY` as its reason, so that the
    record belongs to the event's own day.
    """

    date: str
    sender: str
    source: str
    id: str
    type: str
    device: str
    route: str
    destination: str | None
    contract_version: str | None
    entered_at_ms: int
    archive_file: str


class NotInTap(NamedTuple):
    """The ledger has it from a device, and the tap does not: one for each event and route, times in Unix ms.

    The judgement counts it as `unexplained`, on the day of entry, and makes no finding: `devices` decides
    whether it is forged or a hole.
    """

    client_id: str | None
    sender: str | None
    source: str
    id: str
    type: str | None
    route: str
    destination: str | None
    contract_version: str | None
    entered_at_ms: int
    file: str
    digest: str | None = None


class DeliveryRow(NamedTuple):
    """The end of one event on one route, where that is listed; times in Unix milliseconds.

    `verdict` is that of the last `hop` that is seen, `fate` that of the account. `rests_on` are the folders
    of the records, or a device's manifest.
    """

    date: str
    sender: str | None
    source: str
    id: str
    type: str | None
    device: str | None
    epoch: str | None
    sequence: int | None
    route: str | None
    destination: str | None
    contract_version: str | None
    hop: str
    verdict: str
    fate: str | None
    said_at_ms: int | None
    stored_at_ms: int | None
    accepted_at_ms: int | None
    routed_at_ms: int | None
    rung_at_ms: int | None
    taken_at_ms: int | None
    rests_on: str
    file: str


class RouteCount(NamedTuple):
    """Events on one route, by the day of acceptance (of entry, for what the tap does not have).

    `measure` is a `Ruling`; `expected` (nothing is expected on `NO_ROUTE`); `duplicated`: copies in the
    inbox beyond the first of each payload; `replayed`: events delivered by sending them again; `to_replay`:
    rows of `Judgement.replay`. On one of its routes only, each event counts as `events` if the tap has it,
    with `tap_copies` beyond the first of each payload, and as `cloud_events` if it entered in the cloud.
    """

    measure: str
    date: str
    route: str | None
    destination: str | None


class InboxCount(NamedTuple):
    """The content of one inbox.

    `measure` is `delivered_unique` (events) or `delivered_total` (messages), by the ledger alone;
    `may_expire`: of the events, those with an `expirytime` in an inbox whose reader leaves no handovers. Of a
    webhook it is a `Ruling` on the last hop, or `duplicated`: handovers beyond what was put into the inbox.
    """

    measure: str
    date: str
    destination: str


class AccountCount(NamedTuple):
    """Events at one inbox ('': every inbox) by what became of them: `measure` is an `account.Fate`."""

    date: str
    inbox: str
    measure: str


class DeadLetterCount(NamedTuple):
    """Dead letters by the `Place` of their making and their reason.

    `measure` is `count`, or `missing`: items that the cloud refused and no record says so; of these `pending`
    may still have one, and that of the `unrecorded` would lie in a hole of the ledger.
    """

    measure: str
    place: str
    reason: str | None


class RowCount(NamedTuple):
    """Different rows of an archive (`tap`, `ledger`, `handovers`); `reason` is why they are in quarantine."""

    archive: str
    reason: str | None = None


class HourCount(NamedTuple):
    """Events and routes of a device that are `lost`, `pending`, `unrecorded` or `late`, and its `tap_copies`.

    `hour` is that of acceptance, counted from the Unix epoch.
    """

    measure: str
    client_id: str
    hour: int


class HoleCount(NamedTuple):
    """Events and routes whose record the `ledger` or the `handovers` should have in an hour and do not.

    `second`, counted from 1970, is theirs where objects are gone of which the number of rows is known.
    """

    archive: str
    hour: int
    second: int | None = None


CountKey = RouteCount | InboxCount | AccountCount | DeadLetterCount | RowCount | HourCount | HoleCount
"""Figures are sums of counts by these keys: tuples of texts and whole numbers, none of which equals one of
another kind."""


class LatencyKey(NamedTuple):
    """A `findings.Span`, the ledger's priority, the route and how long it took, milliseconds."""

    span: str
    priority: str | None
    route: str
    ms: int


@dataclass(slots=True)
class Judgement:
    """The judgement of one group, or, after `add`, about many.

    `quarantine` has a row for each row of the archive that was not judged, those among them that the reader
    gave as bad.
    """

    findings: list[Finding] = field(default_factory=list)
    replay: list[ReplayRow] = field(default_factory=list)
    quarantine: list[BadRow] = field(default_factory=list)
    not_in_tap: list[NotInTap] = field(default_factory=list)
    deliveries: list[DeliveryRow] = field(default_factory=list)
    counts: Counter[CountKey] = field(default_factory=Counter)
    latencies: Counter[LatencyKey] = field(default_factory=Counter)

    def add(self, other: Judgement, times: int = 1) -> None:
        """Add what `other` counts, `times` over: it may stand for many groups that are counted alike.

        Lists are appended once.
        """
        for name in ("findings", "replay", "quarantine", "not_in_tap", "deliveries"):
            getattr(self, name).extend(getattr(other, name))
        for key, count in other.counts.items():
            self.counts[key] += times * count
        for span, count in other.latencies.items():
            self.latencies[span] += times * count
