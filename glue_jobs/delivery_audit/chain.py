"""Tamper evidence: the digests of the objects that an audit judged, compared by a later audit of the window.

Each verdict has the digest of its inventory, of its report and of the verdict before it, and goes to
`operations.inbox`, out of reach of those who can write to the archive. Compaction and erasure change objects
lawfully: receipts of the first stand for the raw objects that they name, records of the second say what a
digest was and is.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventplane.archive_layout import AUDIT, COMPACTED, ERASURES, report_name, verdict_name
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.fleet import FLEET
from glue_jobs.common.hours import Days, hour_of, hours_of
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.delivery_audit.errors import OtherArchiveError
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.verdict import digest_of, revision_of, verdict_event

if TYPE_CHECKING:
    from glue_jobs.common.archive import Part

FORMAT: Final = 1
"""The version of an inventory's own format."""

ALTERED, REMOVED, ADDED = "altered", "removed", "added"

_DETAILS: Final = {
    ALTERED: "altered since the audit of {since}: its digest was {before} and is {now}",
    REMOVED: "removed since the audit of {since}: its digest was {before}",
    ADDED: "added after its hour was closed and audited ({since}): its digest is {now}",
}

Erased = Mapping[str, Collection[tuple[str, str | None]]]
"""What erasures did to objects by key: the digest before, and after (None: deleted; '': being rewritten)."""


class Change(NamedTuple):
    """An object that is not what it was: `what` is `ALTERED`, `REMOVED` or `ADDED`."""

    key: str
    what: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects that were judged, as they were listed at `listed_at_ms` (Unix milliseconds).

    `objects` are digests by key: what was read, and the raw objects that a receipt of the compaction names.
    `days` are the first and the last day (None: open) that were read, by folder. `disputed` is what should be
    there instead of what is (None: nothing), by key: an object stays altered until it is restored.
    """

    listed_at_ms: int
    days: Mapping[str, tuple[str | None, str | None]]
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
        return cls(int(members["listed_at_ms"]), days, members["objects"], members["disputed"])

    def covers(self, key: str) -> bool:
        """Return whether an object called `key` would have been read."""
        hour = hour_of(key)
        if hour is None:
            return True
        first, last = self.days.get(key.removeprefix(f"{COMPACTED}/").partition("/")[0], ("9", None))
        return (first or "") <= f"{hour.start:%Y-%m-%d}" <= (last or "9")

    def is_settled(self, key: str) -> bool:
        """Return whether `key` is of a closed hour: until then its writer may replace it."""
        hour = hour_of(key)
        return hour is None or hour.is_closed(datetime.fromtimestamp(self.listed_at_ms / 1_000, UTC))


def compare(before: Inventory, now: Inventory, erased: Erased) -> tuple[Counter[str], list[Change]]:
    """Compare two inventories of one window by key.

    Returns how many `objects` were compared, how many of them were `erased`, and what nobody may change.
    """
    expected: dict[str, str | None] = {**before.objects, **before.disputed}
    counts, changes = Counter[str](), []
    for key in sorted({*expected, *now.objects}):
        if not (before.is_settled(key) and before.covers(key) and now.covers(key)):
            continue
        old, new = expected.get(key), now.objects.get(key)
        # Of the compacted rows it counts whose they are: the receipt's raw objects are in both inventories.
        if None in (old, new) and (key.startswith(f"{COMPACTED}/") or (hour_of(key) is None and old is None)):
            continue
        counts["objects"] += key in expected
        if old is None or new is None or _is_altered(old, new):
            if old is not None and _is_lawful(erased.get(key, ()), old, new):
                counts["erased"] += 1
            elif old != new:
                what = ADDED if old is None else REMOVED if new is None else ALTERED
                changes.append(Change(key, what, old, new))
    return counts, changes


def unlike(named: Mapping[str, str], now: Inventory, erased: Erased) -> Iterator[Change]:
    """Yield the objects that are not what the receipts of the compaction (`named`) say."""
    for key, old in sorted(named.items()):
        new = now.objects.get(key)
        if new is not None and _is_altered(old, new) and not _is_lawful(erased.get(key, ()), old, new):
            yield Change(key, ALTERED, old, new)


def _is_altered(old: str, new: str) -> bool:
    """Return whether digests differ that are of one kind: a copy of a bucket in a folder has others."""
    return old != new and old.partition(":")[0] == new.partition(":")[0]


def _is_lawful(changes: Collection[tuple[str, str | None]], old: str, new: str | None) -> bool:
    """Return whether erasures, one after the other, made `new` of `old`."""
    found: set[str | None] = {old}
    while steps := {after for before, after in changes if before in found} - found:
        found |= steps
    return new in found - {old} or "" in found


@dataclass(frozen=True, slots=True)
class Chain:
    """What was judged (`inventory`), and what became of it since the last verdict, `before`.

    `compared` has counts, None where there was nothing to compare with. `named` are the objects that receipts
    of the compaction name, with their digests, `erased` what erasures changed.
    """

    inventory: Inventory
    before: Envelope | None = None
    compared: Mapping[str, int] | None = None
    changes: tuple[Change, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    erased: Erased = field(default_factory=dict)

    @property
    def filed(self) -> bytes:
        """The inventory as it is filed, with what is disputed."""
        judged = (each for each in self.changes if not each.key.startswith(f"{AUDIT}/"))
        return replace(self.inventory, disputed={each.key: each.before for each in judged}).body

    @property
    def digest(self) -> str:
        """The digest of the inventory as it is filed."""
        return digest_of(self.filed)

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {
            "inventory": self.digest,
            "objects": len(self.inventory.objects),
            "before": self.before and digest_of(self.before.json.encode()),
            "compared": self.compared,
        }

    def removed(self) -> list[str]:
        """Return the keys of objects that are gone or altered: records may be missing in their hours.

        A compacted file is named as the raw objects of its hour are.
        """
        return [each.key.removeprefix(f"{COMPACTED}/") for each in self.changes if each.what != ADDED]

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


class History:
    """The verdicts on one `window`, in the audit's own folder."""

    def __init__(self, output: Objects, window: str) -> None:
        self._output = output
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
        while (body := self._output.read(report_name(self._window, revision))) is not None:
            yield verdict_event(body)
            revision += 1

    def follow(self, inventory: Inventory, named: Mapping[str, str], erased: Erased) -> Chain:
        """Compare `inventory` with the last audit of the window and with the receipts of the compaction.

        Raises `OtherArchiveError`.
        """
        changes = list(unlike(named, inventory, erased))
        last = self.last()
        if last is None:
            return Chain(inventory, None, None, tuple(changes), named, erased)
        compared = None
        changes += self._altered_reports(last, erased)
        digest = str(last.data()["chain"]["inventory"])
        if (before := self._inventory(digest)) is None:
            changes.append(Change(f"{AUDIT}/{inventory_name(self._window, digest)}", REMOVED, digest, None))
        else:
            counts, found = compare(before, inventory, erased)
            known = {each.key for each in changes}
            changes += (each for each in found if each.key not in known)
            counts.update(each.what for each in found)
            if 0 < counts["objects"] == counts[REMOVED]:
                raise OtherArchiveError(self._window, counts["objects"])
            compared = {name: counts[name] for name in ("objects", ALTERED, REMOVED, ADDED, "erased")}
        return Chain(inventory, last, compared, tuple(changes), named, erased)

    def _sent(self) -> Envelope | None:
        text = self._output.read(verdict_name(self._window))
        try:
            return None if text is None else parse_event(text.rstrip())
        except EnvelopeError:
            return None  # the reports say it again

    def _inventory(self, digest: str) -> Inventory | None:
        """Return the inventory with this digest; None when it is gone or altered."""
        body = self._output.read(inventory_name(self._window, digest))
        try:
            text = gzip.decompress(body or b"")
            return Inventory.parse(text) if digest_of(text) == digest else None
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError):
            return None

    def _altered_reports(self, last: Envelope, erased: Erased) -> Iterator[Change]:
        """Return the reports that are not what the verdicts after them say, back to an erased one."""
        expected: str | None = digest_of(last.json.encode())
        for revision in range(revision_of(last), -1, -1):
            name = report_name(self._window, revision)
            key, body = f"{AUDIT}/{name}", self._output.read(name)
            if body is None:
                if key not in erased:
                    yield Change(key, REMOVED, expected, None)
                return
            try:
                own = digest_of(verdict_event(body).json.encode())
                before = json.loads(body)["chain"]["before"]
            except (ValueError, LookupError, TypeError):
                own, before = "unreadable", None
            if own != expected:
                yield Change(key, ALTERED, expected, own)
                return
            expected = before


def inventory_name(window: str, digest: str) -> str:
    """Return the name of an inventory beneath the audit's folder."""
    return f"inventories/{window}/{digest}.json.gz"


def erasures(archive: Objects) -> Erased:
    """Return what the records of erasures say that they changed, by key."""
    changes: defaultdict[str, set[tuple[str, str | None]]] = defaultdict(set)
    for stored in archive.beneath(ERASURES):
        try:
            for key, (before, after) in json.loads(archive.read(stored.name) or b"{}")["changes"].items():
                changes[key].add((before, after))
        except (ValueError, TypeError, AttributeError, LookupError):
            continue  # what nobody can read allows nothing
    return changes


def chain_of(
    archive: Objects,
    history: History,
    parts: Mapping[str, Part],
    days: Days,
    contracts: Iterable[Stored],
    listed_at_ms: int,
) -> Chain:
    """Take the inventory of what was read of `archive`, and follow it.

    `days` are those whose folders were read. `contracts` are those that were used; their folder has no hours.
    Raises `OtherArchiveError`.
    """
    receipts = [receipt for part in parts.values() for receipt in part.receipts]
    objects = {name: digest for receipt in receipts for name, digest in receipt.inputs.items()}
    named = {name: digest for receipt in receipts for name, digest in receipt.files.items()}
    read = [*contracts, *(each for part in parts.values() for each in part.objects)]
    read += (each for hour in hours_of(archive, FLEET, days) for each in archive.beneath(hour.raw(FLEET)))
    objects |= {each.name: archive.digest(each) for each in read}
    first, last = (str(each) if each else None for each in (days.first, days.last))
    inventory = Inventory(listed_at_ms, dict.fromkeys((*parts, FLEET), (first, last)), objects)
    return history.follow(inventory, named, erasures(archive))
