"""All devices judged together, and the list of the expected ones. No Spark."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from eventplane import strict_json
from eventplane.archive_layout import ERASED
from eventplane.device_record import FLEET
from eventplane.errors import EnvelopeError
from eventplane.values import whole_number
from glue_jobs.common.hours import day_of_folder, hour_of
from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.claims import SenderEvents, owners_of
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.coverage import RESTS, Attendance, Coverage
from glue_jobs.delivery_audit.device import (
    COUNTS,
    DeviceJudgement,
    DeviceRows,
    judge_device,
    usual_ms,
)
from glue_jobs.delivery_audit.errors import FleetListError
from glue_jobs.delivery_audit.event_group import CountKey, HourCount
from glue_jobs.delivery_audit.findings import Finding, worst_first
from glue_jobs.delivery_audit.home import HOME
from glue_jobs.delivery_audit.judging import MAX_FINDINGS
from glue_jobs.delivery_audit.rules import LAST_MS, Window

MAX_DEVICES: Final = 1_000
"""Most devices in the report, those with most losses first; all of them are in the table."""

MAX_HOURLY: Final = 200
"""Most devices whose hours are in the report, the worst of those shown. Ours: what a picture can show."""

LEAST_SILENT: Final = 2
"""Fewest devices that must miss something in an hour without a tap object for the hour to be a hole of the
archive. Ours: one device alone may have lost what it misses."""

Counts = Mapping[str, list[tuple[str, int, int]]]
"""Of each client: measure, hour counted from 1970, and count of the router's hop (`HourCount`)."""

Listed = Sequence[tuple[str, str, int | None]]
"""Devices of the fleet's registry: thing, state, and since when, Unix milliseconds."""

_STANDINGS: Final = (Attendance.SILENT, Attendance.PARTLY, Attendance.UNREGISTERED, Attendance.ATTESTED, None)

_GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Fleet:
    """The findings about all devices.

    `findings` are the worst, `kinds` counts all by kind and hop. `totals` are sums of `COUNTS` and the number
    of `devices`. `worst` are rows of `DEVICE`, `hours` those of the worst by hour. `holes` counts events
    without a record in the tap by hour (counted from 1970), `recovered` those of them that the ledger has, by
    day, route and destination. `homes` counts events by inbox on devices and `HOME`.
    """

    totals: Counter[str] = field(default_factory=Counter)
    standings: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    worst: list[dict[str, Any]] = field(default_factory=list)
    hours: list[dict[str, Any]] = field(default_factory=list)
    holes: Counter[int] = field(default_factory=Counter)
    recovered: Counter[tuple[str, str, str | None]] = field(default_factory=Counter)
    silences: Counter[tuple[int, bool]] = field(default_factory=Counter)
    homes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def coverage(self, fleet: str | None, cloud_events: int) -> Coverage:
        """Return on what the proof rests; `fleet` names the list of expected devices."""
        return Coverage(
            events={name: self.totals[name] for name in RESTS},
            awaiting=self.totals["awaiting"],
            best_effort=self.totals["best_effort"],
            devices={name: self.standings[name] for name in ("expected", *map(str, Attendance))},
            fleet=fleet,
            cloud_events=cloud_events,
            home={name: self.totals[f"home_{name}"] for name in HOME},
        )

    def add(self, other: Fleet) -> Fleet:
        """Add what is in `other`, and keep the worst of both."""
        for name in ("totals", "standings", "kinds", "holes", "recovered", "silences", "homes"):
            getattr(self, name).update(getattr(other, name))
        for name in ("findings", "worst", "hours"):
            getattr(self, name).extend(getattr(other, name))
        if len(self.worst) > 2 * MAX_DEVICES or len(self.findings) > 2 * MAX_FINDINGS:
            self.keep_worst()
        return self

    def keep_worst(self) -> Fleet:
        """Forget the devices and findings that are not shown."""
        self.findings = nsmallest(MAX_FINDINGS, self.findings, key=worst_first)
        self.worst = nsmallest(MAX_DEVICES, self.worst, key=_order)
        hourly = {*[*dict.fromkeys(row["client_id"] for row in self.worst)][:MAX_HOURLY]}
        hours = (row for row in self.hours if row["client_id"] in hourly)
        self.hours = sorted(hours, key=lambda row: (row["client_id"], row["from_ms"]))
        return self


class Devices(Protocol):
    """All devices: what each sent, what the ledger alone has of it, and the newest list of them."""

    def senders(self) -> Iterable[SenderEvents]:
        """Return who sent in which epoch."""

    def hours_not_in_tap(self) -> Collection[int]:
        """Return the hours, counted from 1970, of what the ledger alone has."""

    def judged(self, scope: Scope, absent: Collection[int]) -> tuple[Fleet, Any]:
        """Judge each device, and return besides what was found of events and devices (`audit.Found`)."""


def judge_fleet(
    devices: Devices, scope: Scope, *, absent: Collection[int] = (), held: Mapping[int, int] | None = None
) -> tuple[Fleet, Any]:
    """Judge every device.

    `absent` are hours, counted from 1970, between the first and the last of the tap's objects that have none
    (`absent_hours`);
    `scope.gone` are those in which the ledger has events of devices (`gone_hours`). Of the hours `held` it is
    known how many rows gone objects of the tap had: they explain no hour that misses more.
    """
    # Records may lie in the hour behind; then nothing is missing.
    gone = scope.gone.intersection(devices.hours_not_in_tap()) if scope.gone else scope.gone
    scope = _of_fleet(replace(scope, gone=gone), devices.senders())
    fleet, found = devices.judged(scope, absent)
    silences = fleet.silences
    gone |= {at for at in absent if silences[at, True] >= max(LEAST_SILENT, silences[at, False] + 1)}
    if held:
        missing = devices.judged(replace(scope, gone=gone | {*held}), ())[0].holes
        gone |= {hour for hour, rows in held.items() if missing[hour] <= rows}
    return devices.judged(replace(scope, gone=gone), ()) if gone > scope.gone else (fleet, found)


def by_client(counts: Mapping[CountKey, int]) -> Counts:
    """Return those of `counts` that are of devices and hours."""
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for key, count in counts.items():
        if isinstance(key, HourCount):
            found[key.client_id].append((key.measure, key.hour, count))
    return found


def _of_fleet(scope: Scope, senders: Iterable[SenderEvents]) -> Scope:
    """Return the scope with what all devices together say: owners of epochs, usual and last times."""
    known = list(senders)
    quickest: dict[str, int] = {}
    for each in known:
        if each.least_ms is not None:
            quickest[each.client_id] = min(each.least_ms, quickest.get(each.client_id, each.least_ms))
    usual = usual_ms(median(quickest.values()) if quickest else None)
    last_ms = max((each.last_ms for each in known), default=None)
    return replace(scope, owners=owners_of(known), usual_ms=usual, last_ms=last_ms)


def judge_devices(
    rows: Iterable[DeviceRows], scope: Scope, absent: Collection[int]
) -> Iterator[DeviceJudgement]:
    """Judge devices; of one that was erased only what is found of others is kept."""
    for each in rows:
        judged = judge_device(each, scope, absent)
        yield _of_others(judged) if each.client_id.startswith(ERASED) else judged


def _of_others(judged: DeviceJudgement) -> DeviceJudgement:
    """Return the judgement of a device of which an erasure left what is needed to judge others."""
    findings = [each for each in judged.findings if each.device != judged.client_id]
    return judged._replace(
        standing=None, findings=findings, days=[], epochs=[], hours=[], silences=[], homes=Counter()
    )


def summary(judgements: Iterable[DeviceJudgement]) -> Fleet:
    """Return what is known of all of some devices."""
    fleet = Fleet()
    for each in judgements:
        one = Fleet(findings=each.findings, holes=each.holes, recovered=each.recovered)
        one.kinds = Counter((found.kind, found.hop) for found in each.findings)
        one.silences, one.homes = Counter(each.silences), each.homes
        one.worst, one.hours = each.epochs, each.hours
        for row in one.worst:
            one.totals.update({name: row[name] for name in COUNTS})
        if each.standing is not None:
            one.totals["devices"] += 1
            one.standings[each.standing] += 1
        one.standings["expected"] += each.expected
        fleet.add(one)
    return fleet.keep_worst()


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Most losses first, then those of which least is known, then most gaps."""
    standing = _STANDINGS.index(row["coverage"])
    return -row["lost"], standing, -(row["gaps"] or 0), row["client_id"], row["epoch"] or ""


@dataclass(frozen=True, slots=True)
class Registry:
    """The devices in service: `rows` of thing, state and since when, Unix milliseconds.

    `name` is the object, or the file, that has the list.
    """

    name: str
    rows: list[tuple[str, str, int | None]]


def read_registry(
    objects: Objects, window: Window, file: str | None
) -> tuple[Registry | None, list[ObjectFault]]:
    """Return the list in `file`, else the archive's newest one by the end of the window; None without one.

    A list of the archive that cannot be read is a fault, and the next best one is taken. Raises
    `FleetListError` for `file`.
    """
    if file is not None:
        path = Path(file)
        if not path.is_file():
            raise FleetListError(file, "there is no such file")
        return Registry(file, list(_rows(file, path.read_bytes()))), []
    faults: list[ObjectFault] = []
    for name in _by_worth(objects, window):
        try:
            return Registry(name, list(_rows(name, objects.read(name) or b""))), faults
        except FleetListError as error:
            faults.append(ObjectFault("unreadable", name, hour_of(name), FLEET, str(error), None))
    return None, faults


def _by_worth(objects: Objects, window: Window) -> Iterator[str]:
    """Yield the archive's lists: the newest by the end of the window first, then the oldest behind it."""
    folders = sorted((day, each) for each in objects.folders(FLEET) if (day := day_of_folder(each)))
    before = [each for day, each in folders if window.last is None or day <= window.last]
    for folder in reversed(before):
        yield from reversed([each.name for each in objects.beneath(f"{FLEET}/{folder}")])
    for _, folder in folders[len(before) :]:
        yield from (each.name for each in objects.beneath(f"{FLEET}/{folder}"))


def _rows(name: str, body: bytes) -> Iterator[tuple[str, str, int | None]]:
    if not body:
        raise FleetListError(name, "it has no bytes")
    try:
        text = gzip.decompress(body) if body.startswith(_GZIP) else body
        for line in text.splitlines():
            members = strict_json.loads(strict_json.decode_text(line))
            thing, state, since_ms = members["thing"], str(members["state"]), members.get("since_ms")
            if not thing or not isinstance(thing, str):
                raise FleetListError(name, f"{thing!r} is no name of a thing")
            yield thing, state, None if since_ms is None else whole_number(since_ms, LAST_MS)
    except (EnvelopeError, ValueError, KeyError, TypeError, EOFError, OSError, zlib.error) as error:
        raise FleetListError(name, f"it cannot be read: {error!r}") from error
