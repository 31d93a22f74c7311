"""Tamper evidence: the digests of the objects that an audit judged, compared by a later audit of the window.

Each verdict has the digest of its inventory, of its report and of the verdict before it, and goes to
`operations.inbox`, out of reach of those who can write to the archive. Compaction and erasure change objects
lawfully where the key has attested their receipts: those of the first stand for the raw objects that they
name, those of the second say what a digest was and is. No other receipt allows anything. Before the first
audit, the lists of the writers say what an object was.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventplane.archive_layout import (
    AUDIT,
    COMPACTED,
    ERASURES,
    inventory_name,
    report_name,
    verdict_name,
)
from eventplane.device_record import FLEET
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.ledger import CONTRACTS
from eventplane.values import timestamp_of_ms
from eventplane.written import Entry
from glue_jobs.common import system
from glue_jobs.common.attestation import AttestationKey, read_attested, refusal
from glue_jobs.common.hours import Days, Hour, hour_of, hours_of
from glue_jobs.common.listing import TOGETHER, place_of, statement_of
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.delivery_audit.errors import DamagedReportError, OtherArchiveError
from glue_jobs.delivery_audit.findings import Finding, Hop, Kind
from glue_jobs.delivery_audit.verdict import digest_of, revision, revision_of, verdict_event

if TYPE_CHECKING:
    from glue_jobs.common.archive import ArchivePart
    from glue_jobs.common.listing import HourReceipt

FORMAT: Final = 1
"""The version of an inventory's own format."""

ALTERED, REMOVED, ADDED = "altered", "removed", "added"
UNFINISHED: Final = "unfinished"
"""Changed by an erasure that has not ended: neither lawful nor known to be unlawful."""

_DETAILS: Final = {
    ALTERED: "altered since {since}: its digest was {before} and is {now}",
    REMOVED: "removed since {since}: its digest was {before}",
    ADDED: "added after its hour was closed, since {since}, by no attested receipt: its digest is {now}",
    UNFINISHED: "changed since {since} by an unfinished erasure: its digest was {before} and is {now}; "
    "run the erasure again with the same parameters",
}


_UNNAMED: Final = "removed, or named by no attested receipt any more, since {since}: its digest was {before}"
"""`REMOVED` of a compacted file: without its receipt it is not read."""


class Edit(NamedTuple):
    """An object that is not what it was: `what` is a key of `_DETAILS`, `since` what said how it was."""

    key: str
    what: str
    before: str | None
    now: str | None
    since: str


@dataclass(frozen=True, slots=True)
class Attested:
    """The statements of compaction and erasure, by receipts that the key has attested.

    `named` are the raw objects and files of compactions: digest, and since when. `erased` has by object what
    a digest became (None: the object was deleted), `unfinished` the same of erasures that have not ended
    ('': it may be being replaced). `refused` are the records of erasures that do not count, and why.
    """

    named: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    erased: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    unfinished: Mapping[str, Collection[tuple[str, str | None]]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def erase(self, key: str, digest: str | None) -> str | None:
        """Return what erasures made of an object with this digest."""
        steps, passed = self.erased.get(key, {}), set[str]()
        while digest is not None and digest in steps and digest not in passed:
            passed.add(digest)
            digest = steps[digest]
        return digest

    def change(self, key: str, old: str | None, new: str | None, since: str) -> Edit | None:
        """Return how an object unlawfully differs that was `old` and is `new`; None where it does not.

        What an erasure removed and what was restored since differs too.
        """
        expected = self.erase(key, old)
        if new == expected or not _is_comparable(expected, new):
            return None
        unfinished = self.unfinished.get(key, ())
        if any(before == expected and after in ("", new) for before, after in unfinished):
            return Edit(key, UNFINISHED, expected, new, since)
        what = ADDED if expected is None else REMOVED if new is None else ALTERED
        return Edit(key, what, expected, new, since)

    def unlike_list(self, key: str, entry: Entry, now: str) -> Edit | None:
        """Return how an object unlawfully differs from what its writer lists; None where it does not."""
        listed = [f"sha256:{entry.digest}", *([f"etag:{entry.mark}"] if entry.mark else ())]
        erased = {each: after for each in listed if (after := self.erase(key, each)) != each}
        if not all(_is_comparable(after, now) for after in erased.values()):
            return None  # a copy in a folder, of what was erased in a bucket
        changes = (self.change(key, each, now, statement_of(entry)) for each in listed)
        return next((each for each in changes if each), None)

    def erased_hours(self, folder: str) -> frozenset[Hour]:
        """Return the hours of a folder in which erasures changed an object, ended or not."""
        names = (key.removeprefix(f"{COMPACTED}/") for key in (*self.erased, *self.unfinished))
        return frozenset(hour for name in names if name.startswith(f"{folder}/") and (hour := hour_of(name)))

    def unlike(self, now: Inventory) -> Iterator[Edit]:
        """Yield what is not as the receipts of the compaction say."""
        for key, (old, since) in sorted(self.named.items()):
            if change := self.change(key, old, now.objects.get(key), since):
                yield change


def _is_comparable(old: str | None, new: str | None) -> bool:
    """Return whether digests are of one kind: a copy of a bucket in a folder has others."""
    return old is None or new is None or old.partition(":")[0] == new.partition(":")[0]


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


def compare(
    before: Inventory, now: Inventory, attested: Attested, since: str
) -> tuple[Counter[str], list[Edit]]:
    """Compare two inventories of one window by key; `since` names the audit of the first.

    Returns how many `objects` were compared, how many of them were `erased`, and what nobody may change.
    """
    expected: dict[str, str | None] = {**before.objects, **before.disputed}
    named = attested.named
    hours = {_hour_folder(key) for key in named}
    counts, changes = Counter[str](), []
    for key in sorted({*expected, *now.objects}):
        if not (before.is_settled(key) and before.covers(key) and now.covers(key)):
            continue
        old, new = expected.get(key), now.objects.get(key)
        # Contracts come at any time. Which files hold the rows of a compacted hour, its receipt says.
        is_new = old is None and (key.startswith(f"{CONTRACTS}/") or (_is_compacted(key) and key in named))
        if is_new or (new is None and key not in named and _hour_folder(key) in hours):
            continue
        counts["objects"] += key in expected
        if change := attested.change(key, old, new, since):
            changes.append(change)
        elif old != new and _is_comparable(old, new):
            counts["erased"] += 1
    return counts, changes


def _is_compacted(key: str) -> bool:
    return key.startswith(f"{COMPACTED}/")


def _hour_folder(key: str) -> str:
    """Return the folder of the hour of a compacted file, of another key the key."""
    return key.partition("/run=")[0] if _is_compacted(key) else key


@dataclass(frozen=True, slots=True)
class Chain:
    """The judged objects (`inventory`), and what became of it since the last verdict, `before`.

    `compared` has counts, None where there was nothing to compare with. `attested` is what compaction and
    erasure say.
    """

    inventory: Inventory
    before: Envelope | None = None
    compared: Mapping[str, int] | None = None
    changes: tuple[Edit, ...] = ()
    attested: Attested = field(default_factory=Attested)

    @property
    def filed(self) -> bytes:
        """The inventory as it is filed, with what is disputed."""
        judged = (each for each in self.changes if not each.key.startswith(f"{AUDIT}/"))
        return replace(self.inventory, disputed={each.key: each.before for each in judged}).body

    @property
    def digest(self) -> str:
        """The digest of the inventory as it is filed."""
        return digest_of(self.filed)

    @property
    def begins(self) -> str | None:
        """The time of the first verdict of the chain; None: it begins with this one."""
        if self.before is None:
            return None
        return self.before.data()["chain"].get("begins") or str(self.before.attributes["time"])

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return {
            "inventory": self.digest,
            "objects": len(self.inventory.objects),
            "begins": self.begins,
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
        for each in self.changes:
            kind = Kind.UNATTESTED_OBJECT if each.what == UNFINISHED else Kind.ALTERED_OBJECT
            is_unnamed = each.what == REMOVED and _is_compacted(each.key)
            template = _UNNAMED if is_unnamed else _DETAILS[each.what]
            yield self._finding(kind, day, each.key, template.format_map(each._asdict()))
        for key, problem in self.attested.refused.items():
            yield self._finding(Kind.UNATTESTED_OBJECT, day, key, problem)

    def _finding(self, kind: Kind, day: str | None, key: str, detail: str) -> Finding:
        hour = hour_of(key)
        own = hour.start if hour else datetime.fromtimestamp(self.inventory.listed_at_ms / 1_000, UTC)
        return Finding(
            date=day or f"{own:%Y-%m-%d}",
            kind=kind,
            hop=Hop.ARCHIVE,
            archive_file=key,
            at_ms=round(1_000 * own.timestamp()),
            detail=detail,
        )


class Past:
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

    def judged(self, verdict: Envelope) -> Inventory | None:
        """Return the inventory of a verdict on the window; None when it is gone or altered."""
        digest = str(verdict.data()["chain"]["inventory"])
        body = self._output.read(inventory_name(self._window, digest))
        try:
            text = gzip.decompress(body or b"")
            return Inventory.parse(text) if digest_of(text) == digest else None
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError):
            return None

    def unsent(self) -> Iterator[Envelope]:
        """Yield the verdicts of the reports that are newer than the last verdict that was sent.

        Their audits were interrupted, or have not ended. Raises `DamagedReportError`.
        """
        revision = revision_of(self._sent()) + 1
        while (body := self._output.read(name := report_name(self._window, revision))) is not None:
            try:
                verdict = known(verdict_event(body))
            except UNREADABLE as error:
                raise DamagedReportError(self._window, name, verdict_name(self._window)) from error
            yield verdict
            revision += 1

    def follow(self, inventory: Inventory, attested: Attested, unlisted: Iterable[Edit] = ()) -> Chain:
        """Compare `inventory` with the last audit of the window and with the receipts of the compaction.

        `unlisted` is what differs from the writers' lists. Raises `OtherArchiveError`.
        """
        by_key = {each.key: each for each in (*unlisted, *attested.unlike(inventory))}
        changes = [*by_key.values()]
        last = self.last()
        if last is None:
            return Chain(inventory, None, None, tuple(changes), attested)
        since = f"the audit of {last.attributes['time']}"
        compared = None
        changes += self._altered_reports(last, attested, since)
        digest = str(last.data()["chain"]["inventory"])
        if (before := self.judged(last)) is None:
            name = f"{AUDIT}/{inventory_name(self._window, digest)}"
            changes.append(Edit(name, REMOVED, digest, None, since))
        else:
            counts, found = compare(before, inventory, attested, since)
            known = {each.key for each in changes}
            changes += (each for each in found if each.key not in known)
            counts.update(each.what for each in found)
            if 0 < counts["objects"] == counts[REMOVED]:
                raise OtherArchiveError(self._window, counts["objects"])
            compared = {name: counts[name] for name in ("objects", ALTERED, REMOVED, ADDED, "erased")}
        return Chain(inventory, last, compared, tuple(changes), attested)

    def _sent(self) -> Envelope | None:
        text = self._output.read(verdict_name(self._window)) or b""
        try:
            verdict = known(parse_event(text.rstrip()))
            next_number = revision(verdict, {"lost": 0})["number"]
        except UNREADABLE:
            return None  # the reports say it again
        return verdict if next_number > 0 else None

    def _altered_reports(self, last: Envelope, attested: Attested, since: str) -> Iterator[Edit]:
        """Return the reports that are not what the verdicts after them say, back to an erased one."""
        expected: str | None = digest_of(last.json.encode())
        for number in range(revision_of(last), -1, -1):
            name = report_name(self._window, number)
            key, body = f"{AUDIT}/{name}", self._output.read(name)
            if body is None:
                if None not in attested.erased.get(key, {}).values():
                    what = UNFINISHED if key in attested.unfinished else REMOVED
                    yield Edit(key, what, expected, None, since)
                return
            try:
                own = digest_of(verdict_event(body).json.encode())
                before = json.loads(body)["chain"]["before"]
            except UNREADABLE:
                own, before = "unreadable", None
            if own != expected:
                yield Edit(key, ALTERED, expected, own, since)
                return
            expected = before


UNREADABLE: Final = (
    EnvelopeError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Raised for a verdict or report that was altered."""


def known(verdict: Envelope) -> Envelope:
    """Return a verdict that has all that is read of it further on. Raises `UNREADABLE`."""
    _ = verdict.data()["chain"]["inventory"], verdict.attributes["time"], revision_of(verdict)
    return verdict


def attested_by(key: AttestationKey, archive: Objects, receipts: Iterable[HourReceipt]) -> Attested:
    """Return what the `receipts` of compactions, which are attested, and those of erasures say."""
    named = {}
    for each in receipts:
        since = f"the compaction attested at {timestamp_of_ms(each.attested_at_ms or 0)}"
        named.update({name: (digest, since) for name, digest in (*each.inputs.items(), *each.files.items())})
    erased: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    unfinished: defaultdict[str, list[tuple[str, str | None]]] = defaultdict(list)
    refused = {}
    ended = []
    for stored in archive.beneath(ERASURES):
        if not stored.name.endswith(".json"):
            continue  # rows that an erasure is writing
        members, is_attested = read_attested(key, stored.name, archive.read(stored.name))
        if not is_attested:
            refused[stored.name] = refusal(key, "erasure")
        elif "erased_at_ms" in members:
            ended.append(members)
        else:
            for name, (before, after) in members.get("changes", {}).items():
                unfinished[name].append((before, after))
    for members in sorted(ended, key=itemgetter("erased_at_ms")):
        for name, (before, after) in members.get("changes", {}).items():
            if after != "":
                erased[name][before] = after
    return Attested(named, erased, unfinished, refused)


def chain_of(
    archive: Objects,
    key: AttestationKey,
    history: Past,
    parts: Mapping[str, ArchivePart],
    days: Days,
    contracts: Iterable[Stored],
    listed_at_ms: int,
) -> Chain:
    """Take the inventory of what was read of `archive`, and follow it.

    `days` are those whose folders were read. `contracts` are those that were used; their folder has no hours.
    Raises `OtherArchiveError`.
    """
    receipts = [receipt for part in parts.values() for receipt in part.receipts]
    attested = attested_by(key, archive, receipts)
    # Raw objects that are not read any more are in their receipts, as erasures left them.
    inputs = {name: digest for receipt in receipts for name, digest in receipt.inputs.items()}
    objects = {
        name: left for name, digest in inputs.items() if (left := attested.erase(name, digest)) is not None
    }
    read = [*contracts, *(each for part in parts.values() for each in part.objects)]
    read += (each for hour in hours_of(archive, FLEET, days) for each in archive.beneath(hour.raw(FLEET)))
    objects |= {each.name: archive.digest(each) for each in read}
    first, last = (str(each) if each else None for each in (days.first, days.last))
    inventory = Inventory(listed_at_ms, dict.fromkeys((*parts, FLEET), (first, last)), objects)
    return history.follow(inventory, attested, _unlisted(archive, attested, objects, parts.values()))


def _unlisted(
    archive: Objects, attested: Attested, objects: Mapping[str, str], parts: Iterable[ArchivePart]
) -> Iterator[Edit]:
    """Yield the objects that are not what their writers list; of unreadable ones the faults say it.

    An object that was moved is compared by its name.
    """
    listed: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    unreadable = set[str]()
    for part in parts:
        unreadable |= {each.name for each in part.faults if each.kind == "unreadable"}
        for each in part.entries:
            listed[place_of(each.key)].append(each)

    found: dict[str, tuple[Edit, list[Entry]]] = {}
    for key, now in objects.items():
        entries = listed.get(place_of(key), []) if key not in unreadable else []
        own = [each for each in entries if each.key == key]
        changes = [
            (change, each) for each in own or entries if (change := attested.unlike_list(key, each, now))
        ]
        # Several entries of one object contradict each other; of equal names one is that of a moved object.
        if changes and (own or len(changes) == len(entries)):
            found[key] = changes[0][0], [each for _, each in changes]

    def is_copy(key: str) -> bool:
        # Where KMS encrypts, S3 gives a copy of equal bytes another ETag.
        change, entries = found[key]
        if change.what != ALTERED or not objects[key].startswith("etag:"):
            return False
        digest = hashlib.sha256(archive.read(key) or b"").hexdigest()
        return all(each.digest == digest for each in entries)

    with system.pool(TOGETHER) as together:
        for (change, _), is_same in zip(found.values(), together.map(is_copy, found), strict=True):
            if not is_same:
                yield change
