"""Tamper evidence: the digests of the objects that an audit judged, compared by a later audit of the window.

Each verdict has the digest of its inventory, of its report and of the verdict before it, and goes to
`operations.inbox`, which whoever can write to the archive cannot change. An inventory says what each object
was. Compaction and erasure change objects lawfully: the receipts of the first stand for the raw objects that
they name, those of the second say what a digest was and is.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from eventplane.archive_layout import AUDIT, COMPACTED, ERASURES
from eventplane.auditor import report_name, verdict_name
from eventplane.envelope import Envelope, EnvelopeError, parse_event
from eventplane.fleet import FLEET
from glue_jobs.common.hours import hour_of, hours_of
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.delivery_audit.errors import OtherArchiveError
from glue_jobs.delivery_audit.findings import Finding, Kind
from glue_jobs.delivery_audit.hops import Hop
from glue_jobs.delivery_audit.verdict import digest_of, revision_of, verdict_event

if TYPE_CHECKING:
    from glue_jobs.common.archive import Part
    from glue_jobs.common.hours import Days as ArchiveDays

FORMAT: Final = 1
"""The version of an inventory's own format."""

INVENTORIES: Final = "inventories"

ALTERED, REMOVED, ADDED = "altered", "removed", "added"

Changes = Mapping[str, Collection[tuple[str | None, str | None]]]
"""What erasures did to objects by key: the digest before, and after (None: there is none)."""

Days = tuple[str | None, str | None]
"""The first and the last day whose folders were read; None is open."""

_NO_DAYS: Final = ("9", "0")


class Files(Protocol):
    """What this needs of `Objects` to read documents."""

    def read(self, name: str) -> bytes | None:
        """An object's content; None when there is none."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects that were judged, as they were listed at `listed_at_ms` (Unix milliseconds).

    `objects` are digests by key: what was read, and the raw objects that a receipt of the compaction names.
    `days` are those whose folders were read, by folder. `disputed` is what should be there instead of what
    is (None: nothing), by key: an object stays altered until it is restored, however often it is judged.
    """

    listed_at_ms: int
    days: Mapping[str, Days]
    objects: Mapping[str, str]
    disputed: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """Its text, the same for the same inventory."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, body: bytes) -> Inventory:
        """Read an inventory. Raises ValueError, LookupError, TypeError."""
        members = json.loads(body)
        days = {folder: (first, last) for folder, (first, last) in members["days"].items()}
        return cls(int(members["listed_at_ms"]), days, dict(members["objects"]), dict(members["disputed"]))

    def covers(self, key: str) -> bool:
        """Whether an object called `key` would have been read."""
        hour = hour_of(key)
        if hour is None:
            return True
        first, last = self.days.get(_folder(key), _NO_DAYS)
        day = f"{hour.start:%Y-%m-%d}"
        return (first is None or first <= day) and (last is None or day <= last)

    def is_settled(self, key: str) -> bool:
        """Whether nobody was to write `key` any more: a writer may replace its object within the hour."""
        hour = hour_of(key)
        return hour is None or hour.is_closed(datetime.fromtimestamp(self.listed_at_ms / 1_000, UTC))


@dataclass(frozen=True, slots=True)
class Change:
    """An object that is not what it was: `what` is `ALTERED`, `REMOVED` or `ADDED`."""

    key: str
    what: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many `objects` were compared, the `changes` that nobody may make, how many an erasure made."""

    objects: int = 0
    changes: tuple[Change, ...] = ()
    erased: int = 0

    def count(self, what: str) -> int:
        """How many changes are `what`."""
        return sum(each.what == what for each in self.changes)


def compare(before: Inventory, now: Inventory, erased: Changes) -> Comparison:
    """Compare two inventories of one window by key."""
    expected: dict[str, str | None] = {**before.objects, **before.disputed}
    changes, lawful, compared = [], 0, 0
    for key in sorted({*expected, *now.objects}):
        old, new = expected.get(key), now.objects.get(key)
        if not (before.is_settled(key) and before.covers(key) and now.covers(key)):
            continue
        # Of the compacted rows it counts whose they are: the receipt's raw objects are in both inventories.
        if None in (old, new) and (_is_compacted(key) or (hour_of(key) is None and old is None)):
            continue
        compared += key in expected
        if new == old or not _comparable(old, new):
            continue
        if old is not None and new in _lawful(erased.get(key, ()), old):
            lawful += 1
        else:
            changes.append(
                Change(key, ADDED if old is None else REMOVED if new is None else ALTERED, old, new)
            )
    return Comparison(compared, tuple(changes), lawful)


def unlike(named: Mapping[str, str], now: Inventory, erased: Changes) -> Iterator[Change]:
    """Yield the objects that are not what the receipts of the compaction name."""
    for key, old in sorted(named.items()):
        new = now.objects.get(key)
        if new is not None and _comparable(old, new) and new not in {old, *_lawful(erased.get(key, ()), old)}:
            yield Change(key, ALTERED, old, new)


def _lawful(changes: Collection[tuple[str | None, str | None]], digest: str) -> set[str | None]:
    """What `digest` may have become by `changes`, one after the other."""
    found: set[str | None] = set()
    ahead: list[str | None] = [digest]
    while ahead:
        at = ahead.pop()
        steps = {after for before, after in changes if before == at} - found
        found |= steps
        ahead += steps
    return found


def _comparable(one: str | None, other: str | None) -> bool:
    """Whether both digests are of a kind: a copy of a bucket in a folder has others."""
    return None in (one, other) or str(one).partition(":")[0] == str(other).partition(":")[0]


def _is_compacted(key: str) -> bool:
    return key.startswith(f"{COMPACTED}/")


def _folder(key: str) -> str:
    return key.removeprefix(f"{COMPACTED}/").partition("/")[0]


@dataclass(frozen=True, slots=True)
class Chain:
    """What was judged (`inventory`), and what became of it since the last verdict, `before`.

    `comparison` is None where there is nothing to compare with. `named` are the objects that receipts of the
    compaction name, with their digests, `erased` what erasures changed.
    """

    inventory: Inventory
    before: Envelope | None = None
    comparison: Comparison | None = None
    changes: tuple[Change, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    erased: Changes = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of the inventory as it is filed."""
        return digest_of(self.filed)

    @property
    def filed(self) -> bytes:
        """The inventory as it is filed, with what is disputed."""
        judged = (each for each in self.changes if not each.key.startswith(f"{AUDIT}/"))
        return replace(self.inventory, disputed={each.key: each.before for each in judged}).body

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        found = self.comparison
        return {
            "inventory": self.digest,
            "objects": len(self.inventory.objects),
            "before": self.before and digest_of(self.before.json.encode()),
            "compared": found
            and {
                "objects": found.objects,
                **{what: found.count(what) for what in (ALTERED, REMOVED, ADDED)},
                "erased": found.erased,
            },
        }

    def removed(self) -> list[str]:
        """The keys of objects that are gone or not what they were: records may be missing in their hours."""
        return [each.key for each in self.changes if each.what != ADDED]

    def findings(self, day: str | None) -> Iterator[Finding]:
        """Yield one for each object; `day` is the window's, None where each is of its own."""
        since = "?" if self.before is None else self.before.attributes["time"]
        for each in self.changes:
            hour = hour_of(each.key)
            own = hour.start if hour else datetime.fromtimestamp(self.inventory.listed_at_ms / 1_000, UTC)
            yield Finding(
                date=day or f"{own:%Y-%m-%d}",
                kind=Kind.ALTERED_OBJECT,
                hop=Hop.ARCHIVE,
                archive_file=each.key,
                at_ms=round(1_000 * own.timestamp()),
                detail=_DETAILS[each.what].format(since=since, before=each.before, now=each.now),
            )


_DETAILS: Final = {
    ALTERED: "altered since the audit of {since}: its digest was {before} and is {now}",
    REMOVED: "removed since the audit of {since}: its digest was {before}",
    ADDED: "added after its hour was closed and audited ({since}): its digest is {now}",
}


class History:
    """The verdicts on one `window`, in the audit's own folder."""

    def __init__(self, files: Files, window: str) -> None:
        self._files = files
        self._window = window

    def last(self) -> Envelope | None:
        """Return the last verdict; None when there is none."""
        last = self._sent()
        for each in self.unsent():
            last = each
        return last

    def unsent(self) -> Iterator[Envelope]:
        """Yield the verdicts of the reports that are newer than the last verdict that was sent.

        Their audits were interrupted, or have not ended.
        """
        revision = revision_of(self._sent()) + 1
        while (body := self._files.read(report_name(self._window, revision))) is not None:
            yield verdict_event(body)
            revision += 1

    def inventory(self, verdict: Envelope) -> Inventory | None:
        """Return what `verdict` is about; None when it is gone, or not what the verdict says."""
        digest = verdict.data()["chain"]["inventory"]
        body = self._files.read(inventory_name(self._window, digest))
        try:
            text = gzip.decompress(body or b"")
            return Inventory.parse(text) if digest_of(text) == digest else None
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError):
            return None

    def changes(self, last: Envelope, erased: Changes) -> Iterator[Change]:
        """Yield the reports that are not what the verdicts after them say, back to an erased one."""
        expected: str | None = digest_of(last.json.encode())
        for revision in range(revision_of(last), -1, -1):
            name = report_name(self._window, revision)
            key, body = f"{AUDIT}/{name}", self._files.read(name)
            if body is None:
                if key not in erased:
                    yield Change(key, REMOVED, expected, None)
                return
            try:
                own, before = (
                    digest_of(verdict_event(body).json.encode()),
                    json.loads(body)["chain"]["before"],
                )
            except (ValueError, LookupError, TypeError):
                own, before = "unreadable", None
            if own != expected:
                yield Change(key, ALTERED, expected, own)
                return
            expected = before

    def _sent(self) -> Envelope | None:
        text = self._files.read(verdict_name(self._window))
        try:
            return None if text is None else parse_event(text.rstrip())
        except EnvelopeError:
            return None  # the reports say it again


def inventory_name(window: str, digest: str) -> str:
    """Return the name of an inventory beneath the audit's folder."""
    return f"{INVENTORIES}/{window}/{digest}.json.gz"


def follow(history: History, inventory: Inventory, named: Mapping[str, str], erased: Changes) -> Chain:
    """Compare `inventory` with the last audit of the window, and with the compaction's receipts (`named`).

    Raises `OtherArchiveError`.
    """
    last = history.last()
    changes = list(unlike(named, inventory, erased))
    before = history.inventory(last) if last else None
    comparison = compare(before, inventory, erased) if before else None
    if last and comparison and comparison.objects and comparison.count(REMOVED) == comparison.objects:
        raise OtherArchiveError(last.data()["window"]["date"], comparison.objects)
    if last:
        changes += history.changes(last, erased)
        if not before:
            digest = str(last.data()["chain"]["inventory"])
            name = inventory_name(last.data()["window"]["date"], digest)
            changes.append(Change(f"{AUDIT}/{name}", REMOVED, digest, None))
    if comparison:
        known = {each.key for each in changes}
        changes += (each for each in comparison.changes if each.key not in known)
    return Chain(inventory, last, comparison, tuple(changes), named, erased)


def erasures(archive: Objects) -> Changes:
    """Return what the records of erasures say that they changed, by key."""
    changes: defaultdict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    for stored in archive.beneath(ERASURES):
        try:
            members = json.loads(archive.read(stored.name) or b"{}")
            for key, (before, after) in members.get("changes", {}).items():
                changes[key].add((before, after))
        except (ValueError, TypeError, AttributeError):
            continue  # what nobody can read allows nothing
    return changes


def chain_of(
    archive: Objects,
    history: History,
    parts: Mapping[str, Part],
    days: ArchiveDays,
    contracts: Iterable[Stored],
    listed_at_ms: int,
) -> Chain:
    """Take the inventory of what was read of `archive`, and follow it.

    `days` are those whose folders were read. `contracts` are those that were used; their folder has no hours.
    Raises `OtherArchiveError`.
    """
    objects: dict[str, str] = {}
    named: dict[str, str] = {}
    for part in parts.values():
        for receipt in part.receipts:
            objects |= receipt.inputs
            named |= receipt.files
    read = [*contracts, *(each for part in parts.values() for each in part.objects)]
    for hour in hours_of(archive, FLEET, days):
        read += archive.beneath(hour.raw(FLEET))
    objects |= {each.name: archive.digest(each) for each in read}
    span = _text(days.first), _text(days.last)
    inventory = Inventory(listed_at_ms, dict.fromkeys((*parts, FLEET), span), objects)
    return follow(history, inventory, named, erasures(archive))


def _text(day: date | None) -> str | None:
    return None if day is None else day.isoformat()
