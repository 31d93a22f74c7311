"""Interest in DynamoDB: the table of announcements, and the record of what devices were sent last.

Each program of a participant has an item in the table of announcements, with a lease.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from eventplane.contract import Downlink, Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.device_reports import UPLINK_KEY
from eventplane.downlink.table import DESIRED, sort_key
from eventplane.downlink.wire import ALL
from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS
from eventplane.records import Item, RecordKind, Records, Tables

INTEREST_TABLE: Final = "interest"
"""The name of an environment's table, before `resource_name`."""

PARTITION: Final = "participant"
SORT: Final = "announcer"
EXPIRES: Final = "expires"
"""The table's keys, and until when an item counts, Unix seconds: DynamoDB removes it some time later."""

LEASE_S: Final = 300
"""How long an announcement counts unless it is renewed, seconds. Ours: for so long a program that crashed may
keep events from the next one, and a renewal costs a write."""

MAX_PROGRAMS: Final = 50
"""Most different announcements of one participant that count at a time. Ours: its programs are of fewer
kinds, and routers read them all; with more its interest is unknown, and everything is delivered."""

MAX_ITEM_BYTES: Final = MAX_ANNOUNCED_BYTES + MAX_ANNOUNCED_FILTERS + 1
"""Longest text of an item's filters, bytes: the filters with their commas and brackets."""


@dataclass(frozen=True, slots=True)
class LeasedAnnouncement:
    """An `announcement` that counts until `until_s`, Unix seconds, made at `announced_ms` (0: unknown)."""

    announcement: Announcement
    until_s: int
    announced_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementItem:
    """The announcement of the program `announcer`: each reader of one inbox may handle something else.

    `filters` is a JSON list of canonical filters, `expires` in Unix seconds, `announced` in milliseconds;
    a renewal leaves that as it is.
    """

    participant: str
    announcer: str
    filters: str
    expires: int
    announced: int = 0
    revision: int = 0


ANNOUNCEMENT: Final = RecordKind(type=AnnouncementItem, key=(PARTITION, SORT))
"""How the table keeps its items."""


def announcement_item(leased: LeasedAnnouncement, announcer: str) -> AnnouncementItem:
    """Return the item by which the program `announcer` announces."""
    announcement = leased.announcement
    return AnnouncementItem(
        participant=announcement.participant,
        announcer=announcer,
        filters=f"[{','.join(announcement.filters)}]",
        expires=leased.until_s,
        announced=leased.announced_ms,
    )


class InterestTable:
    """`name` in `tables`, whose errors are raised as they are.

    The key of an item that cannot be read goes to `on_foreign`.
    """

    def __init__(
        self,
        tables: Tables,
        name: str,
        on_foreign: Callable[[Item, Exception], None] = lambda _key, _why: None,
    ) -> None:
        self._records = Records(tables, name, ANNOUNCEMENT)
        self._on_foreign = on_foreign

    def all(self, now_s: float = 0) -> frozenset[LeasedAnnouncement]:
        """Return every announcement that counts at `now_s`, Unix seconds; by default also expired ones.

        Equal announcements of several programs of a participant are one, until the last of them expires. Of a
        participant with more than `MAX_PROGRAMS` different ones, or one that cannot be read, none is
        returned.
        """
        found: defaultdict[str, dict[str, LeasedAnnouncement]] = defaultdict(dict)
        unknown: set[str] = set()

        def foreign(item: Item, error: Exception) -> None:
            participant = item[PARTITION]["S"]
            if participant not in unknown:
                self._on_foreign(ANNOUNCEMENT.key_in(item), error)
                unknown.add(participant)

        for each in self._records.all(foreign):
            if each.participant in unknown or each.expires <= now_s:
                continue
            try:
                _add(each, found[each.participant])
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are read
                foreign(ANNOUNCEMENT.key_of(each.participant, each.announcer), error)
        return frozenset(
            each for participant, own in found.items() if participant not in unknown for each in own.values()
        )


def _add(item: AnnouncementItem, own: dict[str, LeasedAnnouncement]) -> None:
    """Add what `item` announces to its participant's `own`, by the text. Raises whatever is wrong with it."""
    text = item.filters
    if known := own.get(text):
        own[text] = replace(
            known,
            until_s=max(item.expires, known.until_s),
            announced_ms=max(item.announced, known.announced_ms),
        )
        return
    if len(own) == MAX_PROGRAMS:
        raise ValueError(f"the participant announces more than {MAX_PROGRAMS} different things")
    read = _remembered if len(text) <= MAX_ITEM_BYTES else _read_filters
    own[text] = LeasedAnnouncement(read(item.participant, text), item.expires, item.announced)


def _read_filters(participant: str, text: str) -> Announcement:
    """Return what `participant` announces by the `text` of an item's filters.

    Raises TypeError or ValueError where it is no list, `AnnouncementError` for one that is wrong.
    """
    if len(text) > MAX_ITEM_BYTES or len(text.encode(errors="replace")) > MAX_ITEM_BYTES:
        problem = Problem("filters", f"longer than {MAX_ANNOUNCED_BYTES} bytes", "use wider ones")
        raise AnnouncementError(participant, [problem])
    try:
        filters = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"`filters` is nested too deeply: {error}") from error
    if not isinstance(filters, list):
        raise TypeError("`filters` is no list")
    return new_announcement(participant, filters)


# Most of it is the same at the next look. Refused texts are not remembered: they are one participant's.
_remembered = lru_cache(maxsize=256)(_read_filters)


PUBLISHED_SORT_KEY: Final = sort_key(Downlink.STATE, UPLINK_KEY)
"""The sort key of the record in the table of desired states, under the device `ALL`."""


@dataclass(frozen=True, slots=True)
class PublishedFilters:
    """The `digest` of the filters that devices were sent, and when (Unix milliseconds): the state's version.

    Without a digest a publication was begun, and nobody knows whether it ended.
    """

    published_at_ms: int
    digest: str
    revision: int = field(default=0, compare=False)


PUBLISHED: Final = RecordKind(
    type=PublishedFilters,
    key=DESIRED.key,
    derived=dict(zip(DESIRED.key, (lambda _: ALL, lambda _: PUBLISHED_SORT_KEY), strict=True)),
)
"""How the table of desired states keeps the record; no delivery is ever due for it."""


def filters_digest(filters: Sequence[object] | None) -> str:
    """Return the digest of filters; None stands for everything."""
    return hashlib.sha256(canonical_bytes(None if filters is None else list(filters))).hexdigest()
