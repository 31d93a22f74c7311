"""The verdict on a window: its word, why it is not `proven`, and its event. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from eventplane.archive_layout import report_name
from eventplane.envelope import Envelope, write_event
from eventplane.names import VERDICT
from eventplane.values import timestamp_of_ms
from glue_jobs.delivery_audit.findings import BROKEN, BROKEN_KINDS, INCOMPLETE, INCOMPLETE_KINDS, Kind

SOURCE: Final = "/audit/delivery"

OPEN, PROVEN = "open", "proven"
"""Better than `BROKEN` (a promise of the plane is broken) and `INCOMPLETE` (evidence is missing, no event is
known to be): something is still pending; or all was judged and ended as promised, as each device says."""

MAX_REASONS: Final = 10
"""Most reasons in the event, the worst first; all are in the report. Ours: what a person reads."""

Members = Mapping[str, Any]


class VerdictRule(NamedTuple):
    """A rule of the verdict: how often it `failed`, in what sentences; failing, it is `level` at best."""

    rule: str
    level: str
    failed: int
    reasons: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """For the report and the table."""
        outcome = "failed" if self.failed else "passed"
        return {"rule": self.rule, "level": self.level, "outcome": outcome, "failed": self.failed}


@dataclass(frozen=True, slots=True)
class PlaneVerdict:
    """The `checks`, the worst first: those of all rules, passed or failed."""

    checks: tuple[VerdictRule, ...]

    @property
    def word(self) -> str:
        """The worst that a failed check gives; `PROVEN` if all passed."""
        return next((each.level for each in self.checks if each.failed), PROVEN)

    @property
    def reasons(self) -> tuple[str, ...]:
        """In sentences why it is not `PROVEN`."""
        return tuple(reason for each in self.checks for reason in each.reasons)

    @property
    def missing(self) -> int:
        """The number of reasons that are missing evidence."""
        return sum(len(each.reasons) for each in self.checks if each.level == INCOMPLETE)


def verdict_of(totals: Members, kinds: Iterable[Members], coverage: Members) -> PlaneVerdict:
    """Judge a window by its `totals`, its findings counted by kind and hop, and its `coverage`."""
    found = defaultdict[str, list[Members]](list)
    for row in kinds:
        found[row["kind"]].append(row)
    return PlaneVerdict(tuple(_checks(Counter(totals), found, coverage)))


def _checks(
    totals: Counter[str], found: Mapping[str, list[Members]], coverage: Members
) -> Iterator[VerdictRule]:
    def check(level: str, rule: str, failed: int, what: str, sentence: str) -> VerdictRule:
        return VerdictRule(rule, level, failed, (f"{_count(failed, what)} {sentence}",) if failed else ())

    def of_findings(level: str, kinds: Iterable[Kind]) -> Iterator[VerdictRule]:
        for kind in kinds:
            rows = found.get(kind, [])
            yield VerdictRule(kind, level, sum(row["count"] for row in rows), tuple(map(_found, rows)))

    missing, pending = partial(check, INCOMPLETE), partial(check, OPEN)
    hops = ", ".join(sorted({str(row["hop"]) for row in found.get(Kind.LOST, ())}))
    # What is missing of a device is one finding for many events, where it is not known which.
    yield check(BROKEN, Kind.LOST, totals["lost"], "event", f"lost on the way: {hops}.")
    yield from of_findings(BROKEN, (each for each in BROKEN_KINDS if each is not Kind.LOST))
    share = f"{attested(coverage)} attested by manifests: coverage {percent(coverage['share'] or 0)}."
    unseen = unattested(coverage)
    yield VerdictRule("unattested", INCOMPLETE, unseen, (share,) if unseen else ())
    at_home = "for inboxes on devices, of which no manifest says how they ended."
    yield missing("unattested_at_home", coverage["home"]["unattested"], "event", at_home)
    for standing, sentence in _STANDINGS.items():
        yield missing(f"{standing}_devices", coverage["devices"][standing], "device", f"{sentence}.")
    listed = "No list of expected devices: a device that sent nothing would not be missed."
    yield VerdictRule(
        "unknown_fleet", INCOMPLETE, *((1, (listed,)) if coverage["fleet"] is None else (0, ()))
    )
    yield from of_findings(INCOMPLETE, INCOMPLETE_KINDS)
    hole = "without a record: the archive has a hole there."
    yield missing("unrecorded", totals["unrecorded"], "delivery", hole)
    key = (
        "of compaction and erasure, and none attested by the audit's key: "
        "if the jobs have another, name it by --ATTESTATION_KEY."
    )
    yield missing("refused_receipts", totals["refused_receipts"], "receipt", key)
    yield missing("gone_objects", totals["gone_objects"], "object", "of the archive gone that writers list.")
    unread = "of the archive could not be judged (`quarantine`)."
    yield missing("quarantined", totals["quarantined"], "row", unread)
    yield pending("pending", totals["pending"], "delivery", "without a record, which may still come.")
    due = "newer than the last manifest that was due."
    yield pending("awaiting", coverage["awaiting"], "device event", due)


def unattested(coverage: Members) -> int:
    """Return how many device events no manifest attests, but for those whose manifest is not due yet."""
    events = coverage["events"]
    return int(sum(events.values()) - events["manifest"] - coverage["awaiting"])


def attested(coverage: Members) -> str:
    """Return how many device events manifests attest, and of how many; the share is of these."""
    events = coverage["events"]
    unseen = f" ({events['nothing']:,} known by a missing number alone)" if events["nothing"] else ""
    return f"{events['manifest']:,} of {_count(sum(events.values()), 'device event')}{unseen}"


def at_home(home: Members) -> str:
    """Return how many events for inboxes on devices ended, and by whose word."""
    words = {
        "receipt": "confirmed by their readers",
        "broker": "taken by the broker",
        "explained": "given up by the device",
        "lost": "lost",
        "pending": "pending",
        "unattested": "of which no manifest says how they ended",
        "unstated": "of forwarders that never say how they ended",
    }
    parts = [f"{home[name]:,} {word}" for name, word in words.items() if home[name]]
    return f"{_count(home['stated'], 'event')} for inboxes on devices: {', '.join(parts)}"


_STANDINGS: Final = {
    "silent": "expected, and without a message in the window",
    "partly": "with manifests for a part of the window only",
}


def _found(row: Members) -> str:
    return f"{_count(row['count'], 'finding')} of kind `{row['kind']}` on the hop `{row['hop']}`."


def _count(number: int, one: str) -> str:
    plural = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{number:,} {one if number == 1 else plural}"


def percent(share: float) -> str:
    """Return a share in percent; less than all is never written as 100 %."""
    return "100 %" if share >= 1 else f"{min(100 * share, 99.9):.1f} %"


def lines(document: Members) -> tuple[str, ...]:
    """Return verdict, coverage, what became of events in homes, and engine of a report, a line each."""
    reasons, coverage = document["reasons"], document["coverage"]
    more = f" And {len(reasons) - 1} more." if len(reasons) > 1 else ""
    devices = coverage["devices"]
    share = "-" if coverage["share"] is None else percent(coverage["share"])
    return (
        f"verdict:  {document['verdict']}{f'. {reasons[0]}{more}' if reasons else ''}",
        f"coverage: {share}, {attested(coverage)} and "
        f"{devices['attested']:,} of {_count(devices['expected'], 'expected device')} attested by manifests",
        *([f"homes:    {at_home(coverage['home'])}"] if coverage["home"]["stated"] else []),
        f"engine:   {document['engine']}",
    )


def verdict_event(report: bytes) -> Envelope:
    """Return the event of a report, as it is filed. The same report has the same event."""
    document = json.loads(report)
    window, as_of_ms = document["window"]["date"], document["watermark"]["as_of_ms"]
    revision = document["revision"]["number"]
    attributes = {
        "id": f"{window}-{revision}-{as_of_ms}",
        "source": SOURCE,
        "type": VERDICT,
        "subject": window,
        "time": timestamp_of_ms(as_of_ms),
    }
    members = ("verdict", "window", "watermark", "coverage", "totals", "revision")
    data = {
        **{name: document[name] for name in members},
        "reasons": document["reasons"][:MAX_REASONS],
        "chain": {**document["chain"], "report": digest_of(report)},
        "report": report_name(window, revision),
    }
    return write_event(attributes, data)


def trend_row(verdict: Members) -> dict[str, Any]:
    """Return what the trend has of a day, from its report or from its verdict's data."""
    totals = verdict["totals"]
    names = ("events_archived", "lost", "pending", "unrecorded", "findings")
    return {
        "date": verdict["window"]["date"],
        "verdict": verdict["verdict"],
        "share": verdict["coverage"]["share"],
        **{name: totals[name] for name in names},
        "revision": verdict["revision"]["number"],
    }


def digest_of(body: bytes) -> str:
    """Return the SHA-256 of `body` in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def revision_of(verdict: Envelope | None) -> int:
    """Return the revision of a verdict; -1 where there is none."""
    return -1 if verdict is None else int(verdict.data()["revision"]["number"])


def revision(before: Envelope | None, totals: Members) -> dict[str, Any]:
    """Return how `totals` differ from the last verdict on the same window (None: there was none).

    `number` counts from 0; `replaces` is the id of that verdict, `verdict` and `share` are what they were;
    `changed` has [before, now] for each total that is another.
    """
    if before is None:
        return {"number": 0, "replaces": None, "verdict": None, "share": None, "changed": {}}
    last = before.data()
    was = last["totals"]
    return {
        "number": revision_of(before) + 1,
        "replaces": before.attributes["id"],
        "verdict": last["verdict"],
        "share": last["coverage"]["share"],
        "changed": {name: [was.get(name), now] for name, now in totals.items() if was.get(name) != now},
    }
