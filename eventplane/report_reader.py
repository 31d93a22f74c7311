"""Read a device's reports from the tap: what it stored and gave up, and its store's births.

Every report is read through one schema, `_SHAPES`, and no more of them than the bounds below. Numbers are
ranges, `(first, last)` with both ends in them. A report counts only for the device that sent it: a source
that names another one is forged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from eventplane.device_reports import (
    DISCARDED,
    MANIFEST,
    SHA256,
    SHA256_EVENT,
    STARTED,
    STATED_PENDING,
    forwarder_source,
)
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Outcome
from eventplane.strict_json import loads
from eventplane.values import whole_number

_HOUR_MS: Final = 3_600_000

Range = tuple[int, int]

MAX_REPORT_ENTRIES: Final = 2_000
"""Most statements, ranges and counted kinds of one report. Forwarders state up to 1,000 ranges
(`edge.spool.tables.MOST_RANGES`), earlier ones 2,000."""

MAX_HOUR_REPORTS: Final = 10_000
"""Most reports of a device that are read of one hour of acceptance. Ours: a device that was offline for a
week, and lost events in each minute of it, sends so many at once."""

MAX_HOUR_BYTES: Final = 16 * 2**20
"""Most characters of a device's reports that are read of one hour. Ours: 0.2 s of a core."""

MAX_HOUR_ENTRIES: Final = 100_000
"""Most entries (`MAX_REPORT_ENTRIES`) of a device's reports that are read of one hour. Ours: so that the
judgement of a device takes a second, not minutes."""

DIGESTS: Final = 1 << 64
"""Sums of events' digests are taken modulo this: the low half of a manifest's digest."""

RULES: Final = (SHA256, SHA256_EVENT)
"""How a manifest may make its digests, as it states by `key_digest`."""

SALVAGE_SHIFT: Final = 1 << 40
"""How far a spool lowers the numbers of events saved from a damaged one (docs/explanation/spool.md)."""

SENT_UNSTORED: Final = "sent_unstored"
"""The reason of an entry in `not_stored` that counts deliveries from memory: its refusal has another one."""

USUAL_INTERVAL_S: Final = 3_600
"""When the next manifest of a forwarder that does not state its interval is due, seconds: the default of
`manifest_interval_s`."""

_LONGEST_INTERVAL_S: Final = 86_400
"""Largest `manifest_interval_s`, seconds."""

MOST: Final = 2**62
"""Largest number of a report that is believed, of either sign: 64 bits hold it with `SALVAGE_SHIFT`."""

_MAX_NAME: Final = 128
"""Longest name or word in a report, characters: `eventplane.limits.MAX_SENDER_CHARACTERS`."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the numbers of `ranges`, each once: sorted ranges with a gap between any two."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def within(number: int, span: Range) -> bool:
    """Return whether a number is in a range."""
    return span[0] <= number <= span[1]


def length(ranges: Iterable[Range]) -> int:
    """Return how many numbers there are in ranges that do not overlap."""
    return sum(last - first + 1 for first, last in ranges)


@dataclass(frozen=True, slots=True)
class Report:
    """One report's row in the tap; `epoch` and `sequence` are its own number, `text` the event.

    `client_id` is the connection that it came over, `within` whether it was accepted within the window.
    """

    client_id: str
    within: bool
    date: str
    accepted_at_ms: int
    file: str
    type: str
    source: str
    id: str
    epoch: str | None
    sequence: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of a manifest about one uplink: `count` events with numbers within `span`.

    `digest` is the low half of the sum of their digests by the `rule`, one of `RULES`; None where it
    cannot be compared.
    """

    span: Range
    count: int
    digest: int | None
    rule: str


@dataclass(frozen=True, slots=True)
class HomeStatement:
    """The statement of a manifest about one inbox on the device: `count` events with numbers within `span`.

    The numbers `pending` are all of those up to `told_to` that have not ended. None: not stated.
    """

    inbox: str
    span: Range
    count: int
    pending: tuple[Range, ...] | None
    told_to: int

    def ended(self, number: int, sequence: int) -> bool | None:
        """Return whether an event has ended by the manifest numbered `sequence`; None: it is not said."""
        if self.pending is not None and any(within(number, each) for each in self.pending):
            return False
        is_told = self.pending is not None and number <= min(self.told_to, sequence - 1)
        return True if is_told else None


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """A manifest about `epoch`, its `statements` of uplinks that stored something, in the order of numbers.

    `homes` are those of all other destinations. All was decided by the version `contract` (None: unknown).

    All up to number `acknowledged_to` was acknowledged or given up (None: not stated). The next manifest is
    due after `interval_ms`, milliseconds, unless the forwarder stopped with this one (`is_final`).
    `contradiction` is how it contradicts itself.
    """

    report: Report
    sequence: int
    epoch: str
    statements: tuple[Statement, ...]
    homes: tuple[HomeStatement, ...]
    acknowledged_to: int | None
    interval_ms: int
    is_final: bool = False
    contract: str | None = None
    contradiction: str | None = None

    @property
    def span(self) -> Range | None:
        """The numbers that it is about, None where nothing was stored."""
        if not self.statements:
            return None
        return self.statements[0].span[0], max(each.span[1] for each in self.statements)


@dataclass(frozen=True, slots=True)
class Birth:
    """A store's life called `epoch` began; `lost_epoch` is the one before, None without one."""

    report: Report
    epoch: str
    birth: str
    lost_epoch: str | None


@dataclass(frozen=True, slots=True)
class DiscardReport:
    """The device gave up the numbers `span` of `epoch` for one destination."""

    report: Report
    epoch: str
    destination: str
    span: Range
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unstored:
    """`count` events that the device refused or gave up without a number."""

    report: Report
    channel: str
    type: str
    reason: str
    count: int


@dataclass(slots=True)
class DeviceReports:
    """All that a device reports, births by epoch; the last three have what does not count, and why.

    `discards` are of uplinks, `home_discards` of inboxes on the device.
    `forged` are in the name of another device. `not_understood` are those of a newer version, damaged ones,
    and all beyond the bounds; of a manifest with digests of an unknown rule all else counts. `contradictions`
    exclude themselves or each other.
    """

    manifests: list[ManifestReport] = field(default_factory=list)
    births: dict[str, Birth] = field(default_factory=dict)
    discards: list[DiscardReport] = field(default_factory=list)
    home_discards: list[DiscardReport] = field(default_factory=list)
    not_stored: list[Unstored] = field(default_factory=list)
    forged: list[tuple[Report, str]] = field(default_factory=list)
    not_understood: list[tuple[Report, str]] = field(default_factory=list)
    contradictions: list[tuple[Report, str]] = field(default_factory=list)

    @property
    def unsettled(self) -> list[Report]:
        """The device's own reports that are not understood, or contradict others."""
        counted = {each.report for each in self.manifests}
        both = (*self.not_understood, *self.contradictions)
        return [report for report, _ in both if report not in counted]


def read_reports(reports: Iterable[Report], uplinks: Collection[str]) -> DeviceReports:
    """Read what a device reports about the channels `uplinks`; copies count once."""
    read, own = DeviceReports(), list[tuple[Report, dict[str, Any]]]()
    once: dict[tuple[str, str, str, str], Report] = {}
    spent: dict[int, Counter[str]] = defaultdict(Counter)
    for report in sorted(reports, key=_order):
        if once.setdefault((report.client_id, report.source, report.id, report.text), report) is not report:
            continue
        if report.source != forwarder_source(report.client_id):
            read.forged.append((report, "a report in the name of another device"))
            continue
        try:
            own.append((report, _read(report, spent[report.accepted_at_ms // _HOUR_MS])))
        except ValueError as error:
            read.not_understood.append((report, str(error)))
    numbers = Counter((report.epoch, report.sequence) for report, _ in own)
    # Births first: a report of what was given up may be about the epoch before.
    for report, data in sorted(own, key=lambda each: each[0].type != STARTED):
        if report.sequence is not None and numbers[report.epoch, report.sequence] > 1:
            read.contradictions.append((report, f"several reports have the number {report.sequence}"))
            continue
        try:
            _BY_TYPE[report.type](read, report, data, uplinks)
        except _ContradictionError as error:
            read.contradictions.append((report, str(error)))
        except ValueError as error:
            read.not_understood.append((report, str(error)))
    return read


class _ContradictionError(Exception):
    """What a report says excludes itself, or what another one says."""


def _order(report: Report) -> tuple[Any, ...]:
    """Return the order of acceptance; Spark has none among what came at once."""
    return report.accepted_at_ms, report.file, report.sequence or 0, report.id, report.text


def _read(report: Report, spent: Counter[str]) -> dict[str, Any]:
    """Return the data of a report, checked; adds to what was `spent` on its hour. Raises `ValueError`."""
    spent.update(reports=1, bytes=len(report.text))
    if spent["reports"] > MAX_HOUR_REPORTS or spent["bytes"] > MAX_HOUR_BYTES:
        raise ValueError("more reports of one hour than are read")
    try:
        event = loads(report.text)
    except EnvelopeError as error:
        raise ValueError(f"it is not strict JSON ({error.reason})") from error
    data: dict[str, Any] = _SHAPES[report.type](event.get("data") if isinstance(event, dict) else None)
    lists = [each for each in data.values() if isinstance(each, list)]
    lists += [each["ranges"] for each in data.get("deliveries") or ()]
    lists += [each["pending"] for each in data.get("statements") or () if "pending" in each]
    entries = sum(map(len, lists))
    if entries > MAX_REPORT_ENTRIES:
        raise ValueError(f"more than {MAX_REPORT_ENTRIES:,} entries")
    spent["entries"] += entries
    if spent["entries"] > MAX_HOUR_ENTRIES:
        raise ValueError("more entries in reports of one hour than are read")
    return data


_DIGEST: Final = re.compile("[0-9a-f]{32}")
"""A digest as forwarders write it. Python reads more: signs, spaces, underscores, digits of other scripts."""

_Reader = Callable[[Any], Any]
"""Returns a value of JSON, checked. Raises `ValueError` in words of ours, never the device's."""


def _number(value: object, least: int = -MOST) -> int:
    """Return a number that Spark can hold. Raises `ValueError`, for digits in a text as well."""
    return whole_number(None if isinstance(value, str) else value, MOST, least)


def _text(value: object, most: int = MAX_EVENT_BYTES) -> str:
    if isinstance(value, str) and len(value) <= most:
        return value
    raise ValueError(f"no text of up to {most:,} characters")


def _name(value: object) -> str:
    return _text(value, _MAX_NAME)


def _one_of(*words: object) -> _Reader:
    def read(value: object) -> object:
        # 1 and 1.0 are equal to true.
        if value not in words or isinstance(value, bool) != isinstance(words[0], bool):
            raise ValueError("a word that this version does not know")
        return value

    return read


def _optional(read: _Reader) -> _Reader:
    return lambda value: None if value is None else read(value)


def _list(read: _Reader) -> _Reader:
    def read_all(value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > MAX_REPORT_ENTRIES:
            raise ValueError(f"no list of up to {MAX_REPORT_ENTRIES:,} entries")
        return [read(each) for each in value]

    return read_all


def _range(value: object) -> Range:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("no range of numbers")
    return _number(value[0]), _number(value[1])


def _members(required: Mapping[str, _Reader], optional: Mapping[str, _Reader] | None = None) -> _Reader:
    """Return the reader of an object with these members and no others."""
    readers = {**required, **(optional or {})}

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or not required.keys() <= value.keys():
            raise ValueError(f"no object with {', '.join(required) or 'members'}")
        if not value.keys() <= readers.keys():
            raise ValueError("a member that this version does not know")
        found = {}
        for name, member in value.items():
            try:
                found[name] = readers[name](member)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return found

    return read


_STATEMENT = _members(
    {"destination": _name, "first": _number, "last": _number, "count": _number},
    {"acknowledged_to": _number, "digest": _name, "pending": _list(_number)},
)
_DELIVERY = _members(
    {
        "destination": _name,
        # Of these alone a forwarder ends deliveries; a finding is called like them.
        "outcome": _one_of(Outcome.EXPIRED, Outcome.DROPPED, Outcome.DEAD_LETTERED),
        "reason": _name,
        "ranges": _list(_range),
    },
    {"count": _number},
)
_NOT_STORED = _members({"channel": _name, "type": _text, "reason": _name, "count": _number})

_SHAPES: Final[Mapping[str, _Reader]] = {
    MANIFEST: _members(
        {"epoch": _name, "statements": _list(_STATEMENT)},
        {
            "interval_s": lambda value: _number(value, 1),
            "key_digest": _name,
            "contract": _name,
            "final": _one_of(False, True),
        },
    ),
    STARTED: _members(
        {"epoch": _name, "birth": _one_of("created", "resumed", "recovered", "without_disk")},
        {
            "damage": _text,
            "salvaged": _number,
            "lost_epoch": _optional(_name),
            "lost": _optional(_number),
            "lost_ranges": _list(_range),
        },
    ),
    DISCARDED: _members(
        {}, {"deliveries": _optional(_list(_DELIVERY)), "not_stored": _optional(_list(_NOT_STORED))}
    ),
}
"""What the data of each report may be. Another member or word is a newer version's: it is not understood."""


def _manifest(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    if report.sequence is None:
        raise ValueError("a manifest without a number that can be read")
    stated = [each for each in data["statements"] if each["destination"] in uplinks]
    # Forwarders leave it out where several versions made the digests, and older ones do not state it.
    rule = data.get("key_digest")
    if rule is not None and rule not in RULES:
        read.not_understood.append((report, "its digests are made by a rule that this version does not know"))
    most = max(1, STATED_PENDING // max(1, len(data["statements"])))
    # Older forwarders do not state it: nobody knows whether what they sent was acknowledged.
    acknowledged = [each["acknowledged_to"] for each in stated if "acknowledged_to" in each]
    read.manifests.append(
        ManifestReport(
            report,
            report.sequence,
            data["epoch"],
            tuple(
                sorted(
                    (_statement(each, rule) for each in stated if each["count"]),
                    key=lambda each: each.span,
                )
            ),
            tuple(_home_statement(each, most) for each in data["statements"] if each not in stated),
            # It reports nothing of itself, nor of what came later.
            min(*acknowledged, report.sequence - 1)
            if acknowledged and len(acknowledged) == len(stated)
            else None,
            1_000 * min(data.get("interval_s", USUAL_INTERVAL_S), _LONGEST_INTERVAL_S),
            data.get("final", False),
            data.get("contract"),
            _self_contradiction(data["statements"], report.sequence),
        )
    )


def _self_contradiction(stated: Sequence[Mapping[str, Any]], sequence: int) -> str | None:
    if len({each["destination"] for each in stated}) < len(stated):
        return "it states one destination several times"
    for each in stated:
        first, last, count = each["first"], each["last"], each["count"]
        if not 0 <= count <= last - first + 1 or (count == 0 and last >= first):
            return f"it counts {count} events with the numbers {first} to {last}"
        numbers = [each.get("acknowledged_to", -MOST - 1), *each.get("pending", ()), sequence]
        if any(number >= following for number, following in pairwise(numbers) if each.get("pending")):
            return f"it states numbers up to {numbers[0]} as ended, and {numbers[1:4]} as pending"
    return None


def _home_statement(stated: Mapping[str, Any], most: int) -> HomeStatement:
    """Return a statement of an inbox, of which a manifest names `most` numbers that are pending."""
    pending, told_to = tuple(merged((each, each) for each in stated.get("pending", ()))), MOST
    if (to := stated.get("acknowledged_to")) is not None and not pending:
        # The next number is pending, or none: forwarders up to 0.3.0 do not state the others.
        pending, told_to = ((to + 1, to + 1),), to + 1
    elif length(pending) >= most:
        told_to = pending[-1][1]
    span = stated["first"], stated["last"]
    return HomeStatement(
        stated["destination"], span, stated["count"], None if to is None else pending, told_to
    )


def _statement(stated: dict[str, Any], rule: str | None) -> Statement:
    digest = None
    if rule in RULES:
        if not _DIGEST.fullmatch(stated.get("digest", "")):
            raise ValueError("digest: no 32 hexadecimal digits")
        digest = int(stated["digest"], 16) % DIGESTS
    return Statement((stated["first"], stated["last"]), stated["count"], digest, rule or "")


def _started(read: DeviceReports, report: Report, data: dict[str, Any], _: Collection[str]) -> None:
    if min(data.get("salvaged", 0), data.get("lost") or 0) < 0:
        raise _ContradictionError("it counts fewer than no events")
    birth = Birth(report, data["epoch"], data["birth"], data.get("lost_epoch") or None)
    if birth.epoch != (report.epoch or birth.epoch) or birth.epoch == birth.lost_epoch:
        raise _ContradictionError("its epoch is another than its own, or is the one before as well")
    known = read.births.setdefault(birth.epoch, birth)
    if (known.birth, known.lost_epoch) != (birth.birth, birth.lost_epoch):
        raise _ContradictionError(f"another report of the same epoch is {known.report.id}")


def _discarded(read: DeviceReports, report: Report, data: dict[str, Any], uplinks: Collection[str]) -> None:
    given_up = [discard for each in data.get("deliveries") or () for discard in _discards(read, report, each)]
    counted = data.get("not_stored") or ()
    if any(each.get("count", 0) < 0 for each in (*counted, *(data.get("deliveries") or ()))):
        raise _ContradictionError("it counts fewer than no events")
    for each in given_up:
        (read.discards if each.destination in uplinks else read.home_discards).append(each)
    read.not_stored += [
        Unstored(report, each["channel"], each["type"][:_MAX_NAME], each["reason"], each["count"])
        for each in counted
        if each["reason"] != SENT_UNSTORED and each["count"]
    ]


def _discards(read: DeviceReports, report: Report, ended: dict[str, Any]) -> Iterator[DiscardReport]:
    """Yield ranges that the device gave up; negative numbers are of events saved from the epoch before."""
    for first, last in ended["ranges"]:
        if last < first or first <= 0 <= last:
            raise _ContradictionError(f"it gave up the numbers {first} to {last}")
        shift = SALVAGE_SHIFT if first < 0 else 0
        epoch = report.epoch
        if shift:
            birth = read.births.get(epoch or "")
            epoch = birth.lost_epoch if birth else None
        if epoch is not None:
            span = (first + shift, last + shift)
            yield DiscardReport(report, epoch, ended["destination"], span, ended["outcome"], ended["reason"])


_BY_TYPE: Final = {MANIFEST: _manifest, STARTED: _started, DISCARDED: _discarded}
