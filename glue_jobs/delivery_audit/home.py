"""Device to home: what a device stored for services beside it, and how that ended. No Spark.

A manifest states for each inbox on the device how many events were stored, up to which number none is
pending, and which numbers still are. What is pending long after it was stored was not taken by any reader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from eventplane.account import OF_ROUTER, Fate
from eventplane.envelope import sender_in_frame
from eventplane.names import SENDER_SERVICE
from eventplane.report_reader import (
    SALVAGE_SHIFT,
    DiscardReport,
    HomeStatement,
    ManifestReport,
    Range,
    length,
    merged,
    within,
)
from glue_jobs.delivery_audit.completeness import Completeness
from glue_jobs.delivery_audit.event_group import DeliveryRow
from glue_jobs.delivery_audit.findings import Hop
from glue_jobs.delivery_audit.number_ranges import clipped, without
from glue_jobs.delivery_audit.rules import date_of

HOME: Final = ("stated", "receipt", "broker", "explained", "lost", "pending", "unattested", "unstated")
"""Counts of events for inboxes on the device. Of the `stated`, a reader confirmed the `receipt`, the broker
took the `broker`, the device gave up the `explained`, and no reader took the `lost`. The `pending` are too
young to be judged. Of the `unattested` no later manifest says how they ended; the forwarder of the
`unstated` never does."""

_FATES: Final = {"lost": Fate.LOST, "pending": Fate.WAITING, "unattested": Fate.UNKNOWN}

_NONE: Final = dict.fromkeys(HOME, 0)

_Stated = Mapping[tuple[str, str], Sequence[tuple[ManifestReport, HomeStatement]]]
"""The statements of an epoch for an inbox, in order."""


class JudgedHome(NamedTuple):
    """The statement of a `manifest` about one `inbox`, counted by `HOME`; by the manifest `by` the `lost`
    wait.

    `rows` are about those of its events that are due there, where that is listed.
    """

    manifest: ManifestReport
    inbox: str
    counts: Mapping[str, int]
    lost: Sequence[Range] = ()
    by: ManifestReport | None = None
    rows: Sequence[DeliveryRow] = ()


class _Word(NamedTuple):
    """The newest manifest that says what is `pending`: of all numbers up to `to`."""

    manifest: ManifestReport
    pending: Sequence[Range]
    to: int


class Due(NamedTuple):
    """An event of `client_id`, and by which contracts the device must store it where
    (`expect.expected_routes`). The hours of the tap have the fields between the first and the last."""

    epoch: str
    sequence: int
    due_at_home: str
    service: str | None = None
    source: str = ""
    id: str = ""
    type: str = ""
    said_at_ms: int | None = None
    recorded_at_ms: int | None = None
    accepted_at_ms: int = 0
    client_id: str = ""

    @property
    def inboxes(self) -> Iterator[list[str]]:
        """Yield a version of the contract and an inbox at a time."""
        return map(str.split, self.due_at_home.split("\n"))

    def row(
        self, inbox: str, by: ManifestReport, verdict: str, fate: Fate, at_ms: int | None = None
    ) -> DeliveryRow:
        """Return the row about the event at an inbox, by the manifest that says what became of it."""
        report = by.report
        return DeliveryRow(
            date=date_of(self.accepted_at_ms),
            sender=str(sender_in_frame(self.client_id, {SENDER_SERVICE: self.service or ""})),
            source=self.source,
            id=self.id,
            type=self.type,
            device=self.client_id,
            epoch=self.epoch,
            sequence=self.sequence,
            route=None,
            destination=inbox,
            contract_version=by.contract,
            hop=Hop.DEVICE_INBOX,
            verdict=verdict,
            fate=fate,
            said_at_ms=self.said_at_ms,
            stored_at_ms=self.recorded_at_ms,
            accepted_at_ms=self.accepted_at_ms,
            routed_at_ms=None,
            rung_at_ms=at_ms,
            taken_at_ms=None,
            rests_on="manifest",
            file=report.file,
        )


def judge_homes(
    completeness: Completeness, due: Iterable[Due], awaits: Callable[[str], bool]
) -> Iterator[JudgedHome]:
    """Judge what the device stored for inboxes of its own, and what was `due` there and is not stated.

    `awaits` returns whether another manifest of an epoch may still come.
    """
    # The line may have sent an event twice: it was there when it came first.
    newest_first = sorted(due, key=attrgetter("accepted_at_ms"), reverse=True)
    once = {(each.epoch, each.sequence, each.service, each.source, each.id): each for each in newest_first}
    by_number = sorted(once.values(), key=attrgetter("epoch", "sequence", "source", "id"))
    yield from _not_stored(completeness, by_number)
    homes, stated = completeness.scope.homes, _stated(completeness)
    ended: dict[tuple[str, str], list[DiscardReport]] = defaultdict(list)
    for each in completeness.reports.home_discards:
        ended[each.epoch, each.destination].append(each)
    heirs = {each.lost_epoch: each.epoch for each in completeness.reports.births.values()}
    for (epoch, inbox), statements in stated.items():
        word = _last_word(statements)
        if word and epoch in heirs:
            word = _of_heir(word, _last_word(stated.get((heirs[epoch], inbox), ())))
        given_up = merged(each.span for each in ended[epoch, inbox])
        for manifest, statement in statements:
            if not statement.count or not completeness.is_own(manifest):
                continue
            if word is None:
                counts = _NONE | {"stated": statement.count, "unstated": statement.count}
                yield JudgedHome(manifest, inbox, counts)
                continue
            counts, pending = _counted(statement, word, given_up)
            counts["receipt" if homes[inbox] else "broker"] = counts.pop("taken")
            verdict, left = _verdict_on_pending(completeness, manifest, word, awaits), counts.pop("left")
            if verdict != "lost":
                left += counts["unattested"]
                counts["unattested"] = 0
            counts[verdict] = left
            told = word, statements, ended[epoch, inbox], homes[inbox]
            is_listed = completeness.scope.is_listed
            due_here = _due_of(by_number, manifest, inbox, statement.span) if is_listed else ()
            rows = [_row(event, inbox, verdict, *told) for event in due_here]
            lost = pending if verdict == "lost" else ()
            yield JudgedHome(manifest, inbox, counts, lost, word.manifest, rows)


def _due_of(due: Sequence[Due], manifest: ManifestReport, inbox: str, span: Range) -> Iterator[Due]:
    """Yield the events with numbers in `span` that are due at `inbox` by the manifest's contract."""
    there = _numbered(due, manifest.epoch, span)
    return (each for each in there if [manifest.contract, inbox] in [*each.inboxes])


def _numbered(due: Sequence[Due], epoch: str, span: Range) -> Sequence[Due]:
    """Return the events of `epoch` with numbers in `span`."""
    start, end = (bisect_left(due, (epoch, at)) for at in (span[0], span[1] + 1))
    return due[start:end]


def _row(
    event: Due,
    inbox: str,
    verdict: str,
    word: _Word,
    statements: Sequence[tuple[ManifestReport, HomeStatement]],
    ended: Sequence[DiscardReport],
    confirms: bool,
) -> DeliveryRow:
    """Return the row about an event that a manifest states; its `verdict` is for what is pending since."""
    number = event.sequence
    for lost in ended:
        if within(number, lost.span):
            return event.row(inbox, word.manifest, lost.outcome, OF_ROUTER[lost.outcome])
    if clipped(word.pending, (number, number)):
        return event.row(inbox, word.manifest, verdict, _FATES[verdict])
    if number > word.to:
        unknown = "unattested" if verdict == "lost" else verdict
        return event.row(inbox, word.manifest, unknown, _FATES[unknown])
    fate = Fate.HANDLED if confirms else Fate.IN_INBOX
    by = next((each for each, said in statements if said.ended(number, each.sequence)), word.manifest)
    return event.row(inbox, by, "delivered", fate, by.report.accepted_at_ms)


def _not_stored(completeness: Completeness, due: Sequence[Due]) -> Iterator[JudgedHome]:
    """Yield what a manifest states for the cloud, and not for an inbox to which a route leads as well."""
    for epoch, manifests in completeness.manifests.items():
        for manifest in filter(completeness.is_own, manifests):
            if manifest.span is None or manifest.report.accepted_at_ms > completeness.scope.watermark_ms:
                continue
            led: dict[str, set[int]] = defaultdict(set)
            for each in _numbered(due, epoch, manifest.span):
                for version, inbox in each.inboxes:
                    if version == manifest.contract:
                        led[inbox].add(each.sequence)
            for statement in manifest.homes:
                numbers = merged((each, each) for each in led.get(statement.inbox, ()))
                lost = without(numbers, [statement.span])
                more = length(clipped(numbers, statement.span)) - statement.count
                if count := length(lost) + max(0, more):
                    rows = [
                        event.row(statement.inbox, manifest, "lost", Fate.LOST)
                        for span in (lost if completeness.scope.is_listed else ())
                        for event in _due_of(due, manifest, statement.inbox, span)
                    ]
                    yield JudgedHome(manifest, statement.inbox, _NONE | {"lost": count}, lost, None, rows)


def _stated(completeness: Completeness) -> _Stated:
    """Return what manifests state; numbers that an earlier one states too are a contradiction."""
    found: dict[tuple[str, str], list[tuple[ManifestReport, HomeStatement]]] = defaultdict(list)
    last: dict[tuple[str, str], int] = {}
    for epoch, manifests in completeness.manifests.items():
        for manifest in manifests:
            for each in manifest.homes:
                key, (first, end) = (epoch, each.inbox), each.span
                if each.inbox not in completeness.scope.homes:
                    continue
                if each.count and first <= last.get(key, first - 1):
                    why = f"an earlier manifest states numbers from {first} on for {each.inbox} too"
                    completeness.contradictions.append((manifest.report, why))
                    continue
                if each.count:
                    last[key] = end
                found[key].append((manifest, each))
    return found


def _counted(
    statement: HomeStatement, word: _Word, given_up: Sequence[Range]
) -> tuple[dict[str, int], Sequence[Range]]:
    """Return how many events were taken, given up, are left, or unattested; and the numbers left."""
    span, pending = statement.span, clipped(word.pending, statement.span)
    left = min(statement.count, length(pending))
    ended = clipped(given_up, span)
    explained = min(statement.count - left, length(ended))
    untold = without([(max(span[0], word.to + 1), span[1])], [*pending, *ended])
    unattested = min(statement.count - left - explained, length(untold))
    taken = statement.count - left - explained - unattested
    counts = {"stated": statement.count, "taken": taken, "explained": explained, "left": left}
    return {**_NONE, **counts, "unattested": unattested}, pending


def _verdict_on_pending(
    completeness: Completeness, manifest: ManifestReport, word: _Word, awaits: Callable[[str], bool]
) -> str:
    """Return what is said of an event that one manifest states, and that is pending by the last word."""
    at_ms, scope = manifest.report.accepted_at_ms, completeness.scope
    if at_ms > scope.watermark_ms:
        return "pending"
    waited_ms = word.manifest.report.accepted_at_ms - at_ms
    if waited_ms >= scope.lateness_ms or completeness.is_end(word.manifest):
        return "lost"
    return "pending" if awaits(word.manifest.epoch) else "unattested"


def _last_word(statements: Sequence[tuple[ManifestReport, HomeStatement]]) -> _Word | None:
    for manifest, statement in reversed(statements):
        if statement.pending is not None:
            return _Word(manifest, statement.pending, min(statement.told_to, manifest.sequence - 1))
    return None


def _of_heir(word: _Word, heir: _Word | None) -> _Word:
    """Return what is known of a damaged store: what the next one saved of it has negative numbers there."""
    to = word.pending[0][0] - 1 if word.pending else word.to
    if heir is None:
        return _Word(word.manifest, (), to)
    saved = [(first + SALVAGE_SHIFT, last + SALVAGE_SHIFT) for first, last in heir.pending if last < 0]
    return _Word(heir.manifest, saved, to)
