"""What the archive has of one identity, as plain rows, and what a judgement of it says. No Spark.

All rows that name one `source` and `id` are one `EventGroup`, whoever sent them; so are all rows of refused
items with one client, reason and time of acceptance. `judge.judge` turns a group into a `Judgement`. Spark's
rows become these tuples by position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from glue_jobs.delivery_audit.findings import Finding

if TYPE_CHECKING:
    from glue_jobs.common.hours import Hour
    from glue_jobs.delivery_audit.contracts import ContractHistory
    from glue_jobs.delivery_audit.watermark import Watermark
    from glue_jobs.delivery_audit.window import Window

NO_ROUTE: Final = "(unrouted)"
"""Stands for a route where none matches. No route can be called so, or has a space in its name."""

EVERY_ROUTE: Final = "(every route)"
"""Stands for a route where a ledger row has none and yet is not `unrouted`: every route ends so."""

UNWANTED: Final = "~"
"""Stands before the name of a route that takes an event and does not forward it. No name begins so."""

REPLAY: Final = "replay"
"""The reason of a ledger record that was made by sending an event again; its `entered_at_ms` is that of the
original."""

HOUR_MS: Final = 3_600_000


class Verdict(StrEnum):
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
    Verdict.DELIVERED,
    Verdict.DEAD_LETTERED,
    Verdict.EXPIRED,
    Verdict.DROPPED,
    Verdict.LOST,
    Verdict.PENDING,
    Verdict.UNRECORDED,
    Verdict.NOT_UNDERSTOOD,
)
"""The ends of an expected delivery. (`unrecorded`, `not_understood` of an event that the tap does not have,
and of no route, are not among the expected: `Measure.EXPECTED` counts exactly.)"""


class TapRow(NamedTuple):
    """One copy of an event that IoT Core accepted, times in Unix milliseconds.

    `place` is the item's in its message (`index`), `service` the sender's as the event names it. `routes` has
    one text for each contract of the history, in its order: the names of the routes that the event takes by
    it, parted by spaces, `UNWANTED` before those that do not forward it, or `NO_ROUTE`. `sequence` is None
    where a simple client sends without numbers, `partition` is the `partitionkey`, `expires_at_ms` 0 for a
    time that cannot be read. `data_digest` is a hash of the payload, None where nobody made one. `file` is
    the object's name beneath the archive.
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
    expires_at_ms: int | None = None
    hops: int | None = None
    asks_best_effort: bool = False
    names_sender: bool = False
    is_too_large: bool = False
    data_digest: int | None = None
    routes: Sequence[str] = ()
    unknown_members: bool = False


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
    file: str = ""
    unknown_members: bool = False


class HandoverRow(NamedTuple):
    """A line of the handovers, as `eventplane.handover.HandoverRecord`; any member may be None."""

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


class RefusedItem(NamedTuple):
    """An item of the tap that is no event: its place, a digest of its bytes, and why it was refused."""

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

    The rows are those of the window: tap rows by acceptance, ledger rows by entry, handovers and lines that
    cannot be read by folder. `letters` are ids of dead letters that the cloud's router wrote and somebody
    received (ledger rows `delivered` of type `DEAD_LETTER_TYPE` by the sender `PLANE`): at least those about
    events of the group, more do no harm.
    """

    tap: Sequence[TapRow] = ()
    ledger: Sequence[LedgerRow] = ()
    handovers: Sequence[HandoverRow] = ()
    items: Sequence[RefusedItem] = ()
    bad: Sequence[BadRow] = ()
    letters: Collection[str] = frozenset()


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

    The judgement counts it as `unexplained` (`RouteCount(BY_VERDICT, date_of(entered_at_ms), route,
    destination, "unexplained")`) and makes no finding. `devices` decides whether it is forged or a hole.
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


BY_VERDICT: Final = "by_verdict"
"""RouteCount: events on the route that have the verdict."""
EXPECTED_ON: Final = "expected"
"""RouteCount, `verdict` None: events that are expected on the route; none on `NO_ROUTE`."""
EVENTS: Final = "events"
"""RouteCount, `verdict` None: different events that the tap has, each on one of its routes only."""
TAP_COPIES: Final = "tap_copies"
"""RouteCount, `verdict` None: copies in the tap beyond the first of each payload, on one of the event's
routes only. HourCount: the same by the hour of the event's acceptance."""
DUPLICATED: Final = "duplicated"
"""RouteCount, `verdict` None: copies in the inbox beyond the first of each payload."""
REPLAYED: Final = "replayed"
"""RouteCount, `verdict` None: events that were delivered by sending them again."""
TO_REPLAY: Final = "to_replay"
"""RouteCount, `verdict` None: rows of `Judgement.replay`."""

PUT_EVENTS: Final = "delivered_unique"
"""InboxCount: events that were put into the inbox, by the ledger alone."""
PUT_COPIES: Final = "delivered_total"
"""InboxCount: messages that were put into the inbox, by the ledger alone."""
MAY_EXPIRE: Final = "may_expire"
"""InboxCount: of the events, those with an `expirytime` in an inbox whose reader leaves no handovers."""
CONSUMED: Final = "consumed"
"""InboxCount with a `verdict`: events in a webhook's inbox, by what became of them there."""
HANDED_OVER_AGAIN: Final = "handed_over_again"
"""InboxCount: handovers beyond the copies that were put into a webhook's inbox."""

LETTERS: Final = "letters"
"""LetterCount: dead letters by the place of their making and their reason."""
LETTERS_MISSING: Final = "letters_missing"
"""LetterCount: items that the cloud refused, and no record says so."""
LETTERS_PENDING: Final = "letters_pending"
"""LetterCount: of the missing, those whose record may still come."""
LETTERS_UNRECORDED: Final = "letters_unrecorded"
"""LetterCount: of the missing, those whose record would lie in a hole of the ledger."""

ROWS: Final = "rows"
"""RowCount: different rows by archive; `reason` None for good ones, else why a row is in quarantine."""

CLOUD_EVENTS: Final = "cloud_events"
"""DayCount: events that entered in the cloud; they rest on the ledger alone."""

LOST_IN_HOUR: Final = "lost"
PENDING_IN_HOUR: Final = "pending"
LATE_IN_HOUR: Final = "late"
WITHOUT_RECORD_IN_HOUR: Final = "unrecorded"
"""HourCount: events and routes of a device, by the hour of acceptance."""

UNRECORDED_IN_HOUR: Final = "missing_records"
"""HoleCount: events and routes whose record the archive should have in the hour and does not."""


class RouteCount(NamedTuple):
    """A count of events on one route, by the day of acceptance (of entry, for what the tap does not have)."""

    measure: str
    date: str
    route: str | None
    destination: str | None
    verdict: str | None = None


class InboxCount(NamedTuple):
    """A count of what lies in one inbox."""

    measure: str
    date: str
    destination: str
    verdict: str | None = None


class LetterCount(NamedTuple):
    """A count of dead letters; `place` is a `Place` of the contract."""

    measure: str
    place: str
    reason: str | None


class RowCount(NamedTuple):
    """A count of rows of one archive (`tap`, `ledger`, `handovers`)."""

    measure: str
    archive: str
    reason: str | None = None


class DayCount(NamedTuple):
    """A count of events by day."""

    measure: str
    date: str


class HourCount(NamedTuple):
    """A count by device and hour, `hour` in hours since the Unix epoch."""

    measure: str
    client_id: str
    hour: int


class HoleCount(NamedTuple):
    """A count by archive (`ledger`, `handovers`) and hour, `hour` in hours since the Unix epoch."""

    measure: str
    archive: str
    hour: int


CountKey = RouteCount | InboxCount | LetterCount | RowCount | DayCount | HourCount | HoleCount
"""Figures are sums of counts by these keys. The first member tells them apart; they are tuples of texts and
whole numbers, so that Spark can carry them."""


class LatencyKey(NamedTuple):
    """A `hops.Span`, the ledger's priority, the route and how long it took, milliseconds."""

    span: str
    priority: str | None
    route: str
    ms: int


@dataclass(slots=True)
class Judgement:
    """What was found out about one group, or, after `add`, about many.

    `quarantine` has a row for each row of the archive that was not judged, those among them that the reader
    gave as bad.
    """

    findings: list[Finding] = field(default_factory=list)
    replay: list[ReplayRow] = field(default_factory=list)
    quarantine: list[BadRow] = field(default_factory=list)
    not_in_tap: list[NotInTap] = field(default_factory=list)
    counts: Counter[CountKey] = field(default_factory=Counter)
    latencies: Counter[LatencyKey] = field(default_factory=Counter)

    def add(self, other: Judgement, times: int = 1) -> None:
        """Add what `other` counts, `times` over: it may stand for many groups that are counted alike.

        Lists are appended once.
        """
        for name in ("findings", "replay", "quarantine", "not_in_tap"):
            getattr(self, name).extend(getattr(other, name))
        for key, count in other.counts.items():
            self.counts[key] += times * count
        for span, count in other.latencies.items():
            self.latencies[span] += times * count


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """By what a group is judged: contracts, times, and where the archive is known to have holes.

    Of `history` are used `uses` and `stale`, of `watermark` `ms` and `lateness_s`, of `window` `day`.
    `damaged` names, by folder of the archive (`ledger`, `handovers`), the hours of which an object is missing
    or unreadable, or has lines that cannot be read and name no event.
    """

    history: ContractHistory
    watermark: Watermark
    window: Window
    damaged: Mapping[str, frozenset[Hour]] = field(default_factory=dict)
