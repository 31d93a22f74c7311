"""One device: what the tap and the ledger have of it, and what it states, judged together. No Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from eventplane.archive_layout import AUDIT_DEVICES_FOLDER
from eventplane.device_record import LifecycleState
from eventplane.device_reports import MANIFEST, key_digest
from eventplane.reasons import Outcome
from eventplane.report_reader import DIGESTS, MOST, Range, Report, length, merged, read_reports
from glue_jobs.delivery_audit.claims import Claims, HourRow, reports_of, seen_in
from glue_jobs.delivery_audit.completeness import Arrival, Completeness, Life, Scope, each_once, new_lives
from glue_jobs.delivery_audit.coverage import RESTS, Attendance, Attestation
from glue_jobs.delivery_audit.event_group import HOUR_MS, DeliveryRow, NotInTap
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.home import HOME, Due, judge_homes
from glue_jobs.delivery_audit.number_ranges import (
    EVENT_BYTES,
    MAX_NUMBERED,
    SeenNumbers,
    first_number,
    in_order,
    one_by_one,
    overlap,
    without,
)
from glue_jobs.delivery_audit.rules import date_of

TOLERANCE_MS: Final = 10_000
"""How far a clock may seem off without being reported, milliseconds. Ours: more than a normal event waits on
its way up (a batch's delay, a busy line), less than what would turn the order of a person's day."""

MAX_FINDINGS: Final = 10_000
"""Most findings of a device, whatever it says; of the rest there is one for each kind at each hop. Ours: what
a table of thousands of devices can hold."""

_MAX_KINDS: Final = 100
"""More than there are kinds of findings at hops that a device's judgement can have."""

_MAX_DETAIL: Final = 500
"""Longest detail of a finding, characters: it may quote what a device says."""

MIN_SAMPLES: Final = 20
"""Fewest events that can show a clock to be behind. Ours: a few late events look the same."""

STATED: Final = (
    "stated", "missing", "explained", "lost", "acknowledged_lost", "pending", "not_stored", "unrecorded",
)  # fmt: skip
"""Counts of a day by what manifests and reports of the day state."""

COUNTS: Final = (*STATED, *RESTS, "awaiting", "best_effort", *(f"home_{each}" for each in HOME))

DEVICE: Final = tuple(each.name for each in AUDIT_DEVICES_FOLDER.columns)
"""One device's epoch. `events` counts different numbers, `first` and `last` are the least and the greatest,
`gaps` those between them that were not seen: not yet losses, the event may have had no route to the cloud.
`tap_copies` counts copies beyond one each. Events without a number have rows of their own with `epoch`,
`first`, `last` and `gaps` null. What manifests state: numbered events that are `stated`; those `missing` from
the tap, of which the device gave up the `explained`, the tap has a hole for the `unrecorded`, the `pending`
are too young to be judged and the `lost` are lost, `acknowledged_lost` of them after IoT Core had
acknowledged them; events `not_stored`. `home_` stands before counts of `HOME`, for all inboxes on the device.
What the events rest on: `coverage.Coverage`. `skew_ms` is what the clock is ahead (null: unknown), `coverage`
the device's `Attendance`."""

_ZEROS: Final = dict.fromkeys(("events", "tap_copies", *COUNTS), 0)

_OF_DELIVERY: Final = ("source", "id", "type", "route", "destination", "contract_version")


class DeviceRows(NamedTuple):
    """The rows of one device that Spark brings together; `state` and `since_ms` are the fleet registry's.

    `counts` are (measure, hour counted from 1970, count) of the router's hop: `event_group.HourCount`.
    """

    client_id: str
    hours: Sequence[HourRow]
    not_in_tap: Sequence[NotInTap] = ()
    counts: Sequence[tuple[str, int, int]] = ()
    state: str | None = None
    since_ms: int | None = None


class DeviceJudgement(NamedTuple):
    """The judgement of one device.

    `days` are rows of `date` and `DEVICE`, `epochs` of `DEVICE` over all days, `hours` what came in each hour
    of acceptance on all hops. `holes` counts events without a record in the tap by hour (counted from 1970),
    `recovered` those of them that the ledger has by day, route and destination. `silences` are hours that the
    device's numbers surround, with whether something is missing there. `homes` counts by inbox and `HOME`.
    """

    client_id: str
    standing: str | None
    expected: bool
    findings: list[Finding]
    days: list[tuple[Any, ...]]
    epochs: list[dict[str, Any]]
    hours: list[dict[str, Any]]
    holes: Counter[int]
    recovered: Counter[tuple[str, str, str | None]]
    silences: list[tuple[int, bool]]
    homes: Counter[tuple[str, str]]
    deliveries: Sequence[DeliveryRow] = ()


def judge_device(rows: DeviceRows, scope: Scope, absent: Collection[int] = ()) -> DeviceJudgement:
    """Judge one device; `absent` are hours without a tap object, for which it says what it misses there.

    `rows` may have those of other client ids that sent in one of its epochs. A device that cannot be judged
    has a finding that says so: what one says must not end the audit of all.
    """
    try:
        return _Device(rows, scope).judgement(absent)
    except Exception as error:  # noqa: BLE001 - see above
        return _not_judged(rows, scope, error)


def _not_judged(rows: DeviceRows, scope: Scope, error: Exception) -> DeviceJudgement:
    own = [each for each in rows.hours if each.within and each.client_id == rows.client_id]
    events = sum(len(each.events) + len(each.others) for each in own) // EVENT_BYTES
    at_ms, file = min((each.first for each in own), default=(0, None))
    standing = Attendance.PARTLY if own else Attendance.SILENT if _is_expected(rows, scope) else None
    row = _row(rows.client_id, {**_ZEROS, "events": events, "tap": events}, standing)
    finding = Finding(
        date_of(at_ms) if own else None,
        str(Kind.NOT_UNDERSTOOD),
        str(Hop.DEVICE_CLOUD),
        rows.client_id,
        archive_file=file,
        at_ms=at_ms if own else None,
        detail=f"its {events} events and its reports could not be judged: {error!r}"[:_MAX_DETAIL],
    )
    return DeviceJudgement(
        rows.client_id,
        standing,
        _is_expected(rows, scope),
        [finding],
        [(date_of(at_ms), *row.values())] if own else [],
        [row] if standing else [],
        [],
        Counter(),
        Counter(),
        [],
        Counter(),
    )


def _is_expected(rows: DeviceRows, scope: Scope) -> bool:
    end_ms = scope.end_ms if scope.end_ms is not None else scope.watermark_ms
    return rows.state == LifecycleState.PROVISIONED and (rows.since_ms or 0) < end_ms


def _claims_of(rows: DeviceRows, scope: Scope) -> dict[str, Claims]:
    """Return the claims on each epoch of the device that came under several client ids."""
    by_epoch: dict[str, list[HourRow]] = defaultdict(list)
    for each in rows.hours:
        if each.epoch is not None and each.epoch in scope.owners:
            by_epoch[each.epoch].append(each)
    return {
        epoch: Claims(rows.client_id, scope.owners[epoch], hours, scope.uplinks)
        for epoch, hours in sorted(by_epoch.items())
        if any(each.client_id == rows.client_id for each in hours)
    }


class _Days(dict[tuple[str, str | None], dict[str, Any]]):
    """Figures by date and epoch."""

    def __missing__(self, key: tuple[str, str | None]) -> dict[str, Any]:
        self[key] = {"date": key[0], "epoch": key[1], "numbers": [], **_ZEROS}
        return self[key]


class _Device:
    """One device while it is judged."""

    def __init__(self, rows: DeviceRows, scope: Scope) -> None:
        self._client_id = rows.client_id
        self._scope = scope
        self._counts = rows.counts
        self._not_in_tap = rows.not_in_tap
        self._is_expected = _is_expected(rows, scope)
        self._is_known = rows.state is not None
        self._claims = _claims_of(rows, scope)
        own = (each for each in rows.hours if each.client_id == self._client_id)
        self._own_hours = sorted(own, key=_order)
        self._own = {epoch: each.counted for epoch, each in self._claims.items()}
        """Of the epochs that came under several client ids, what counts for this one."""
        joined = (row for each in self._claims.values() for row in (*each.proven, *each.joined))
        self._hours = sorted([*self._own_hours, *joined], key=_order)
        self._quickest = min((each.quickest for each in self._own_hours if each.quickest), default=None)
        self._samples = sum(each.samples for each in self._own_hours)
        numbered: dict[str, list[HourRow]] = defaultdict(list)
        for each in self._hours:
            if each.epoch is not None and each.events:
                numbered[each.epoch].append(each)
        self._seen = {epoch: seen_in(hours) for epoch, hours in numbered.items()}
        self._last_hour = max((seen.hours[1] for seen in self._seen.values()), default=0)
        self._reports = read_reports(reports_of(self._hours), scope.uplinks)
        self._arrivals = _arrivals(rows.not_in_tap, scope.watermark_ms)
        damaged = scope.damaged.intersection(each.hour for each in self._arrivals)
        self._preceded = {hour: self._is_preceded(hour) for hour in damaged}
        arrivals = [*self._arrivals, *_unread(self._hours)]
        shares = {epoch: claims.share for epoch, claims in self._claims.items()}
        self._completeness = Completeness(self._seen, self._reports, arrivals, scope, shares)
        self._attestation = Attestation(self._completeness)
        due = [
            Due(each.epoch, *event)._replace(client_id=each.client_id)
            for each in self._hours
            if each.epoch
            for event in each.due
        ]
        homes = judge_homes(self._completeness, due, lambda epoch: bool(self._attestation.awaiting(epoch)))
        self._homes = [each for each in homes if each.manifest.report.within]
        self._within = {each.hour for each in self._hours if each.within}
        self._days = self._count_days()
        self._one_by_one = MAX_NUMBERED

    def judgement(self, absent: Collection[int]) -> DeviceJudgement:
        keys = sorted(self._days, key=lambda key: (key[0], key[1] or ""))
        days = [_with_numbers(self._days[key]) for key in keys]
        standing = self._attestation.standing(days, is_expected=self._is_expected, is_known=self._is_known)
        epochs = self._epochs(days) or ([_ZEROS] if standing is Attendance.SILENT else [])
        beyond = [each for each in self._completeness.unmatched if self._is_beyond_view(each)]
        alone = {each.key for each in self._completeness.unmatched}.difference(each.key for each in beyond)
        holes = self._completeness.holes + Counter(each.hour for each in beyond)
        return DeviceJudgement(
            self._client_id,
            standing,
            self._is_expected,
            _bounded(self._findings(alone)),
            [(each["date"], *self._row(each, standing).values()) for each in days],
            [self._row(each, standing) for each in epochs],
            self._hour_rows(),
            holes,
            self._recovered(alone),
            list(self._completeness.silences(absent)),
            self._by_home(),
            [row for home in self._homes for row in home.rows],
        )

    # Counts.

    def _count_days(self) -> _Days:
        days = _Days()
        for epoch, seen in self._seen.items():
            self._count_numbered(epoch, seen, days)
        within = [each for each in self._hours if each.within]
        for hour, count in Counter(
            at for _, at in in_order((each.hour, each.others) for each in within)
        ).items():
            day = days[_date_of_hour(hour), None]
            day["events"] += count
            day["tap"] += count
        for each in within:
            if each.best_effort:
                day = days[_date_of_hour(each.hour), None]
                day["events"] += each.best_effort
                day["best_effort"] += each.best_effort
        self._count_stated(days)
        self._count_copies(days)
        return days

    def _count_stated(self, days: _Days) -> None:
        for judged in self._completeness.judged:
            if judged.manifest.report.within:
                day = days[judged.manifest.report.date, judged.manifest.epoch]
                day["stated"] += judged.statement.count
                day["missing"] += judged.missing
                day["explained"] += judged.explained
                day["unrecorded"] += judged.unrecorded
                day["pending" if judged.open else "lost"] += judged.unexplained
                day["acknowledged_lost"] += 0 if judged.open else judged.acknowledged
        for refused in self._reports.not_stored:
            if refused.report.within:
                days[refused.report.date, refused.report.epoch]["not_stored"] += refused.count
        for home in self._homes:
            day = days[home.manifest.report.date, home.manifest.epoch]
            for name, count in home.counts.items():
                day[f"home_{name}"] += count

    def _count_numbered(self, epoch: str, seen: SeenNumbers, days: _Days) -> None:
        attested = self._completeness.attested(epoch)
        awaiting = self._attestation.awaiting(epoch)
        by_date: dict[str, list[Range]] = defaultdict(list)
        for span, hour in self._own.get(epoch, seen).runs:
            if hour in self._within:
                by_date[_date_of_hour(hour)].append(span)
        for date, spans in by_date.items():
            day, numbers = days[date, epoch], merged(spans)
            events, stated = length(numbers), length(overlap(numbers, attested))
            waiting = length(overlap(without(numbers, attested), awaiting))
            day["numbers"] = numbers
            day["events"] += events
            day["manifest"] += stated
            day["awaiting"] += waiting
            day["numbering"] += events - stated
        for span, hour in self._completeness.unstated(epoch):
            if hour in self._within:
                days[_date_of_hour(hour), epoch]["nothing"] += length(without([span], awaiting))

    def _count_copies(self, days: _Days) -> None:
        """Add the copies to the epoch of the day that has most events: the router's hop has no epochs."""
        largest: dict[str, dict[str, Any]] = {}
        for (date, _), day in days.items():
            if day["events"] > largest.setdefault(date, day)["events"]:
                largest[date] = day
        for measure, hour, count in self._counts:
            if measure == "tap_copies" and _date_of_hour(hour) in largest:
                largest[_date_of_hour(hour)]["tap_copies"] += count

    def _by_home(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for each in self._homes:
            found.update({(each.inbox, name): count for name, count in each.counts.items()})
        return found

    def _epochs(self, days: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        by_epoch: dict[str | None, dict[str, Any]] = {}
        for day in days:
            whole = by_epoch.setdefault(day["epoch"], {"epoch": day["epoch"], "numbers": [], **_ZEROS})
            for name in ("numbers", *_ZEROS):
                whole[name] += day[name]
        return [_with_numbers(each) for each in by_epoch.values()]

    def _row(self, figures: Mapping[str, Any], standing: Attendance | None) -> dict[str, Any]:
        return _row(self._client_id, {**figures, "skew_ms": self._skew_ms}, standing)

    def _hour_rows(self) -> list[dict[str, Any]]:
        """Return what came in each hour, on all hops. What never came counts in the manifest's hour."""
        hours: dict[int, Counter[str]] = defaultdict(Counter)
        for epoch, seen in self._seen.items():
            for span, hour in self._own.get(epoch, seen).runs:
                if hour in self._within:
                    hours[hour]["events"] += length([span])
        for each in self._hours:
            if each.within:
                hours[each.hour]["events"] += len(each.others) // EVENT_BYTES + each.best_effort
        for measure, hour, count in self._counts:
            hours[hour][measure] += count
        for judged in self._completeness.judged:
            if judged.manifest.report.within:
                counted = hours[judged.manifest.report.accepted_at_ms // HOUR_MS]
                counted["pending" if judged.open else "lost"] += judged.unexplained
                counted["unrecorded"] += judged.unrecorded
        for home in self._homes:
            at = home.manifest.report.accepted_at_ms // HOUR_MS
            hours[at].update({name: home.counts[name] for name in ("lost", "pending")})
        return [
            {
                "client_id": self._client_id,
                "from_ms": hour * HOUR_MS,
                "until_ms": (hour + 1) * HOUR_MS,
                **{name: counted[name] for name in ("events", "lost", "late", "pending", "unrecorded")},
            }
            for hour, counted in sorted(hours.items())
        ]

    # What the ledger has and the tap has not.

    def _is_beyond_view(self, arrival: Arrival) -> bool:
        """Return whether the tap may have had the event though the device misses no number.

        Its hour is gone, or damaged and the device's first without its first number, so that no number
        precedes the gap, or nothing came later.
        """
        if arrival.hour in self._scope.gone:
            return True
        if not self._preceded.get(arrival.hour, True):
            return True
        newest = self._attestation.newest
        attested_ms = newest.report.accepted_at_ms if newest else 0
        return bool(self._seen) and arrival.entered_at_ms > attested_ms and arrival.hour >= self._last_hour

    def _is_preceded(self, hour: int) -> bool:
        """Return whether a number, or the start of all numbers, precedes whatever this hour lacks."""
        if self._hours and self._hours[0].hour < hour:
            return True
        lost = {each.epoch for each in self._reports.births.values() if each.lost_epoch}
        first = [epoch for epoch, seen in self._seen.items() if seen.hours[0] == hour]
        return bool(first) and all(self._seen[each].ranges[0][0] == 1 and each not in lost for each in first)

    def _recovered(self, alone: Collection[tuple[str, ...]]) -> Counter[tuple[str, str, str | None]]:
        """Count what is in holes of the tap, by day and route; `alone` is not."""
        held = {each.key for each in self._arrivals}.difference(alone)
        return Counter(
            (date_of(row.entered_at_ms), row.route, row.destination)
            for row in self._not_in_tap
            if _key(row) in held
        )

    def _forged(self, alone: Collection[tuple[str, ...]]) -> Iterator[Finding]:
        """Report what the ledger alone has."""
        for row in self._not_in_tap if alone else ():
            if _key(row) in alone:
                named = {name: getattr(row, name) for name in _OF_DELIVERY}
                place = Life("", date_of(row.entered_at_ms), row.entered_at_ms, row.file, None)
                why = "the tap has no such event, and the device misses none"
                yield self._finding(Kind.FORGED, place, hop=Hop.ROUTER, detail=why, **named)

    # Findings.

    def _findings(self, alone: Collection[tuple[str, ...]]) -> Iterator[Finding]:
        yield from self._lost()
        yield from self._lost_at_home()
        yield from self._given_up()
        for manifest, after in self._completeness.missing_manifests:
            # One that is missing may still come, as what it states may.
            if (report := manifest.report).within and report.accepted_at_ms <= self._scope.watermark_ms:
                detail = f"no manifest states the numbers {after} to {manifest.statements[0].span[0] - 1}"
                yield self._about_report(Kind.MISSING_MANIFEST, report, detail, sequence=None, type=None)
        for report, why in self._completeness.mismatched:
            if report.within:
                yield self._about_report(Kind.MANIFEST_MISMATCH, report, why)
        forged = chain.from_iterable(each.forged for each in self._claims.values())
        for report, why in chain(self._reports.forged, forged):
            if report.within:
                yield self._about_report(Kind.FORGED, report, why, device=report.client_id)
        for report, why in self._completeness.contradictions:
            if report.within:
                yield self._about_report(Kind.CONTRADICTION, report, why)
        yield from self._not_understood()
        yield from self._new_epochs()
        yield from self._clock()
        yield from self._forged(alone)
        # Last, so that what names others takes no place of this device's own findings.
        yield from self._foreign()

    def _not_understood(self) -> Iterator[Finding]:
        """Report what cannot be read: each reason once an hour, with the first report, and numbers."""
        alike: dict[tuple[int, str, str], list[Report]] = defaultdict(list)
        for report, why in self._reports.not_understood:
            if report.within:
                alike[report.accepted_at_ms // HOUR_MS, report.type, why].append(report)
        for (*_, why), (first, *others) in alike.items():
            more = f"; so are {len(others)} more of the hour" if others else ""
            yield self._about_report(Kind.NOT_UNDERSTOOD, first, why + more)
        for hour in self._hours:
            for epoch, count in Counter(epoch for epoch, *_ in hour.unread if hour.within).items():
                at_ms, file = hour.first
                detail = f"{count} events with a number that cannot be read"
                place = Life("", date_of(at_ms), at_ms, file, None)
                yield self._finding(Kind.NOT_UNDERSTOOD, place, epoch=epoch, detail=detail)

    def _spans(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """Yield numbers one by one, as long as few were for this device, then ranges."""
        for span in one_by_one(ranges, self._one_by_one):
            self._one_by_one = max(0, self._one_by_one - 1)
            yield span

    def _given_up(self) -> Iterator[Finding]:
        for discard, pieces in self._completeness.given_up:
            if discard.report.within:
                why = f"{discard.reason}, reported by {discard.report.id}"
                for span in self._spans(pieces):
                    yield self._numbered(Kind(discard.outcome), discard.report, discard.epoch, span, why)
        for discard, whole in each_once(self._reports.home_discards):
            if discard.report.within and discard.destination in self._scope.homes:
                why = f"{discard.reason}, reported by {discard.report.id}"
                for span in self._spans([whole]):
                    kind, to = Kind(discard.outcome), discard.destination
                    yield self._numbered(kind, discard.report, discard.epoch, span, why, Hop.DEVICE_INBOX, to)
        for each in self._reports.not_stored:
            if each.report.within:
                detail = f"{each.count} not stored: {each.reason}, from {each.channel}"
                yield self._finding(
                    Kind(Outcome.DROPPED), each.report, epoch=each.report.epoch, type=each.type, detail=detail
                )

    def _lost(self) -> Iterator[Finding]:
        for each in self._completeness.judged:
            report, epoch = each.manifest.report, each.manifest.epoch
            if not report.within or each.open or not each.unexplained:
                continue
            stated = f"stated by manifest {report.id}"
            acknowledged = f"{stated}, and acknowledged by IoT Core"
            lost, up_to = each.lost or [], [(min(each.acknowledged_to, 0), each.acknowledged_to)]
            others = each.unexplained - each.acknowledged
            for hop, count, numbers, why in (
                (Hop.IOT_RULE, each.acknowledged, overlap(lost, up_to), acknowledged),
                (Hop.DEVICE_CLOUD, others, without(lost, up_to), stated),
            ):
                if each.lost is None and count:
                    detail = f"{count} events; {why}"
                    yield self._finding(Kind.LOST, report, hop=hop, epoch=epoch, detail=detail)
                for span in self._spans(numbers):
                    yield self._numbered(Kind.LOST, report, epoch, span, why, hop)

    def _lost_at_home(self) -> Iterator[Finding]:
        """Report what is still pending for a service on the device and was due."""
        for each in self._homes:
            report, epoch = each.manifest.report, each.manifest.epoch
            why = f"stated by manifest {report.id}, and still pending by {each.by and each.by.report.id}"
            if each.by is None:
                why = f"due by contract {each.manifest.contract}, and not stated by manifest {report.id}"
            for span in self._spans(each.lost):
                yield self._numbered(Kind.LOST, report, epoch, span, why, Hop.DEVICE_INBOX, each.inbox)
            if (others := each.counts["lost"] - length(each.lost)) > 0:
                why, named = f"{others} events; {why}", {"epoch": epoch, "destination": each.inbox}
                yield self._finding(Kind.LOST, report, hop=Hop.DEVICE_INBOX, detail=why, **named)

    def _foreign(self) -> Iterator[Finding]:
        """Report clients that sent in one epoch and had no store in common."""
        for epoch, claims in self._claims.items():
            for claim, other, is_foreign in claims.disputes():
                if not (count := claim.count):
                    continue
                at_ms, file = min(each.first for each in claim.rows if each.within)
                named = f"{count} events in the epoch of {other}"
                yield self._finding(
                    Kind.FOREIGN_EPOCH if is_foreign else Kind.CONTRADICTION,
                    Life(epoch, date_of(at_ms), at_ms, file, None),
                    device=claim.client_id if is_foreign else None,
                    epoch=epoch,
                    sequence=claim.first,
                    detail=named
                    if is_foreign
                    else f"{claim.client_id} sent {named}, and no digest proves one store",
                )

    def _new_epochs(self) -> Iterator[Finding]:
        first: dict[str, Life] = {}
        for hour in self._own_hours:
            if hour.epoch is not None and hour.within:
                at_ms, file = hour.first
                life = first.get(hour.epoch) or Life(hour.epoch, date_of(at_ms), at_ms, file, None)
                numbers = [each for each in (first_number(hour.events), life.sequence) if each is not None]
                first[hour.epoch] = replace(life, sequence=min(numbers, default=None))
        births = [each for each in self._reports.births.values() if each.report.within]
        for life, birth, before in new_lives(list(first.values()), births):
            detail = f"{birth or 'not reported'}; epoch before: {before or '?'}"
            yield self._finding(
                Kind.EPOCH_CHANGE, life, epoch=life.epoch, sequence=life.sequence, detail=detail
            )

    @property
    def _skew_ms(self) -> int | None:
        """What the clock is ahead (negative: behind), by the quickest of the events; None: unknown.

        No event arrives before it is recorded. So the least time from `recordedtime` to acceptance is the
        quickest way up less what the clock is ahead, and what a device differs from the fleet's median is its
        clock. One that was offline all day looks as if it were behind.
        """
        return self._scope.usual_ms - self._quickest[0] if self._quickest else None

    def _clock(self) -> Iterator[Finding]:
        skew_ms = self._skew_ms
        if skew_ms is None or self._quickest is None:
            return
        if skew_ms > TOLERANCE_MS or (skew_ms < -TOLERANCE_MS and self._samples >= MIN_SAMPLES):
            _, at_ms, file = self._quickest
            date = max(date_of(each.first[0]) for each in self._own_hours if each.samples)
            detail = f"{abs(skew_ms)} ms {'ahead' if skew_ms > 0 else 'behind'}, by {self._samples} events"
            yield self._finding(Kind.CLOCK_SKEW, Life("", date, at_ms, file, None), detail=detail)

    def _about_report(self, kind: Kind, report: Report, detail: str, **other: Any) -> Finding:
        named = {
            "epoch": report.epoch,
            "sequence": report.sequence,
            "source": report.source,
            "id": report.id,
            "type": report.type,
            **other,
        }
        return self._finding(kind, report, detail=detail, **named)

    def _numbered(
        self,
        kind: Kind,
        report: Report,
        epoch: str,
        span: Range,
        detail: str,
        hop: Hop = Hop.DEVICE_CLOUD,
        inbox: str | None = None,
    ) -> Finding:
        first, last = span
        several = f"numbers {first} to {last}; " if last > first else ""
        named = {"epoch": epoch, "sequence": first, "destination": inbox}
        return self._finding(kind, report, hop=hop, detail=several + detail, **named)

    def _finding(
        self, kind: Kind, place: Report | Life, *, hop: Hop = Hop.DEVICE_CLOUD, detail: str, **more: Any
    ) -> Finding:
        return Finding(
            **{
                "date": place.date,
                "kind": str(kind),
                "hop": str(hop),
                "device": self._client_id,
                "archive_file": place.file,
                "at_ms": place.accepted_at_ms,
                "detail": detail[:_MAX_DETAIL],
                **more,
            }
        )


def _order(row: HourRow) -> tuple[Any, ...]:
    return row.hour, row.first, row.client_id, row.epoch or ""


def _row(client_id: str, figures: Mapping[str, Any], standing: Attendance | None) -> dict[str, Any]:
    """Return a row of `DEVICE`. What a device states may be more than 64 bits hold."""
    known = {**figures, "client_id": client_id, "coverage": standing and str(standing)}
    found = {name: known.get(name) for name in DEVICE}
    return {name: min(each, MOST) if isinstance(each, int) else each for name, each in found.items()}


def _bounded(findings: Iterator[Finding]) -> list[Finding]:
    """Return `MAX_FINDINGS` at most; of the rest the first of each kind at each hop, with their number."""
    kept = list(islice(findings, MAX_FINDINGS - _MAX_KINDS))
    rest: dict[tuple[str, str], tuple[Finding, int]] = {}
    for each in findings:
        first, count = rest.get(each[1:3], (each, 0))
        rest[each[1:3]] = first, count + 1
    return kept + [
        each._replace(detail=f"{each.detail}; and {count - 1} more findings of this kind"[:_MAX_DETAIL])
        for each, count in rest.values()
    ]


def _unread(hours: Iterable[HourRow]) -> Collection[Arrival]:
    """Return the events that came with a number that cannot be read, each once: copies may come later."""
    events: dict[tuple[str, ...], Arrival] = {}
    for hour in hours:
        for epoch, *digests in hour.unread:
            key = epoch or "", *map(str, digests)
            own = tuple(each % DIGESTS for each in digests)
            came = Arrival(hour.hour * HOUR_MS, hour.hour, key, False, own, epoch, is_unread=True)
            events.setdefault(key, came)
    return events.values()


def usual_ms(median_ms: float | None) -> int:
    """Return the quickest way up, milliseconds, by the `median_ms` of the fleet's least times.

    A fleet that is wrong as a whole is measured against the cloud.
    """
    return int(min(max(median_ms or 0, 0), TOLERANCE_MS))


def _date_of_hour(hour: int) -> str:
    return date_of(hour * HOUR_MS)


def _key(row: NotInTap) -> tuple[str, str, str]:
    return row.sender or "", row.source, row.id


def _arrivals(rows: Sequence[NotInTap], watermark_ms: int) -> list[Arrival]:
    """Return the events, each once; what entered after the watermark may still come to the tap."""
    events: dict[tuple[str, str, str], NotInTap] = {}
    for row in rows:
        if row.entered_at_ms <= watermark_ms:
            events.setdefault(_key(row), row)
    return sorted(
        Arrival(
            row.entered_at_ms,
            row.entered_at_ms // HOUR_MS,
            key,
            row.type == MANIFEST,
            _digests(row),
        )
        for key, row in events.items()
    )


def _digests(row: NotInTap) -> tuple[int | None, ...]:
    """Return the event's digests by each of `RULES`."""
    service = (row.sender or "").partition("/")[2]
    by_key = int.from_bytes(key_digest((service, row.source, row.id)), "big") % DIGESTS
    try:
        return by_key, int(row.digest or "", 16) % DIGESTS
    except ValueError:
        return by_key, None


def _with_numbers(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Add what the numbers come to; where there are none, events count themselves."""
    ranges = merged(figures["numbers"])
    if not ranges:
        return {**figures, "first": None, "last": None, "gaps": None}
    first, last, seen = ranges[0][0], ranges[-1][1], length(ranges)
    return {**figures, "first": first, "last": last, "events": seen, "gaps": last - first + 1 - seen}
