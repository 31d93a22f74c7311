"""What the judgement of one device has found, as findings of its hop. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from eventplane.delivery import Outcome
from glue_jobs.delivery_audit.clocks import is_off
from glue_jobs.delivery_audit.completeness import Completeness, Judged, Life, new_lives
from glue_jobs.delivery_audit.device_reports import Report, Told
from glue_jobs.delivery_audit.findings import Finding, Kind
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.numbers import Range, one_by_one

_HOP: Final = Hop.DEVICE_CLOUD


class DeviceEvidence:
    """Lost, given up, not stored, manifests missing, forged reports, new epochs, the clock."""

    def __init__(
        self,
        client_id: str,
        hours: Sequence[Any],
        skew_ms: int | None,
        told: Told,
        completeness: Completeness,
        judged: Sequence[Judged],
    ) -> None:
        self._client_id = client_id
        self._hours = hours
        self._skew = skew_ms
        self._told = told
        self._completeness = completeness
        self._judged = judged

    def found(self) -> Iterator[Finding]:
        """All of them."""
        yield from self._lost()
        for discard, pieces in self._completeness.given_up():
            if discard.report.within:
                why = f"{discard.reason}, reported by {discard.report.id}"
                for span in one_by_one(pieces):
                    yield self._numbered(Kind(discard.outcome), discard.report, discard.epoch, span, why)
        for refused in self._told.not_stored:
            if refused.report.within:
                detail = f"{refused.count} not stored: {refused.reason}, from {refused.channel}"
                report = refused.report
                yield self._finding(
                    Kind(Outcome.DROPPED), report, epoch=report.epoch, type=refused.type, detail=detail
                )
        for gone, after in self._completeness.gone():
            detail = f"no manifest states the numbers {after} to {gone.span[0] - 1}"
            yield self._finding(
                Kind.MISSING_MANIFEST,
                gone.report,
                epoch=gone.epoch,
                source=gone.report.source,
                id=gone.report.id,
                detail=detail,
            )
        for report, why in self._told.forged:
            if report.within:
                yield self._finding(
                    Kind.FORGED,
                    report,
                    epoch=report.epoch,
                    sequence=report.sequence,
                    source=report.source,
                    id=report.id,
                    type=report.type,
                    detail=why,
                )
        yield from self._new_epochs()
        yield from self._clock()

    def _lost(self) -> Iterator[Finding]:
        for each in self._judged:
            report, epoch = each.statement.report, each.statement.epoch
            stated = f"stated by manifest {report.id}"
            if each.open or not each.unexplained:
                continue
            behind = each.unexplained - each.acknowledged
            acknowledged = f"{stated}, and acknowledged by IoT Core"
            if each.lost is None:
                for hop, count, why in (
                    (_HOP, behind, stated),
                    (Hop.IOT_RULE, each.acknowledged, acknowledged),
                ):
                    if count:
                        detail = f"{count} events; {why}"
                        yield self._finding(Kind.LOST, report, hop=hop, epoch=epoch, detail=detail)
                continue
            first_unacknowledged = each.acknowledged_to + 1
            for first, last in one_by_one(each.lost):
                if first < first_unacknowledged:
                    span = first, min(last, each.acknowledged_to)
                    yield self._numbered(Kind.LOST, report, epoch, span, acknowledged, Hop.IOT_RULE)
                if last >= first_unacknowledged:
                    span = max(first, first_unacknowledged), last
                    yield self._numbered(Kind.LOST, report, epoch, span, stated)

    def _new_epochs(self) -> Iterator[Finding]:
        first: dict[str, Life] = {}
        for hour in sorted(self._hours, key=lambda hour: hour["first"]["accepted_at_ms"]):
            epoch, (at_ms, file) = hour["epoch"], hour["first"]
            if epoch is not None and hour["within"]:
                known = first.get(epoch)
                numbers = [*hour["starts"][:1], *([known.sequence] if known and known.sequence else [])]
                least = min(numbers, default=None)
                life = known or Life(epoch, date_of(at_ms), at_ms, file, None)
                first[epoch] = Life(epoch, life.date, life.accepted_at_ms, life.file, least)
        births = [each for each in self._told.births if each.report.within]
        for life, birth, before in new_lives(list(first.values()), births):
            detail = f"{birth or 'not reported'}; epoch before: {before or '?'}"
            yield self._finding(
                Kind.EPOCH_CHANGE, life, epoch=life.epoch, sequence=life.sequence, detail=detail
            )

    def _clock(self) -> Iterator[Finding]:
        samples = sum(hour["samples"] for hour in self._hours)
        if self._skew is None or not is_off(self._skew, samples):
            return
        _, at_ms, file = min(hour["quickest"] for hour in self._hours if hour["quickest"] is not None)
        date = max(date_of(hour["first"]["accepted_at_ms"]) for hour in self._hours if hour["samples"])
        detail = f"{abs(self._skew)} ms {'ahead' if self._skew > 0 else 'behind'}, by {samples} events"
        yield self._finding(Kind.CLOCK_SKEW, Life("", date, at_ms, file, None), detail=detail)

    def _numbered(
        self, kind: Kind, report: Report, epoch: str, span: Range, detail: str, hop: Hop = _HOP
    ) -> Finding:
        first, last = span
        several = f"numbers {first} to {last}; " if last > first else ""
        return self._finding(kind, report, hop=hop, epoch=epoch, sequence=first, detail=several + detail)

    def _finding(self, kind: Kind, place: Report | Life, *, hop: Hop = _HOP, **more: Any) -> Finding:
        return Finding(
            date=place.date,
            kind=str(kind),
            hop=str(hop),
            device=self._client_id,
            archive_file=place.file,
            at_ms=place.accepted_at_ms,
            **more,
        )


def date_of(milliseconds: int) -> str:
    """The UTC day of a Unix time, `YYYY-MM-DD`."""
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%d}"


def hour_of(milliseconds: int) -> str:
    """The UTC hour of a Unix time, `YYYY-MM-DDTHH`."""
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%dT%H}"
