"""Interest in DynamoDB: the table of announcements, and the record of what devices were sent last.

Each program of a participant has an item in the table of announcements, with a lease.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from eventplane.contract import Downlink, Problem
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.publication import Item
from eventplane.device_reports import UPLINK_KEY
from eventplane.downlink.table import DESIRED, sort_key
from eventplane.downlink.wire import ALL
from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS

INTEREST_TABLE: Final = "interest"
"""The name of an environment's table, before `resource_name`."""

PARTITION: Final = "participant"
SORT: Final = "announcer"
EXPIRES: Final = "expires"
"""The table's keys, and until when an item counts, Unix seconds: DynamoDB removes it some time later."""

ANNOUNCED: Final = "announced"
"""When the program announced it, Unix milliseconds; a renewal leaves it as it is."""

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


def interest_key(participant: str, announcer: str) -> Item:
    """Return the key of the program `announcer`: each reader of one inbox may handle something else."""
    return {PARTITION: {"S": participant}, SORT: {"S": announcer}}


def interest_item(leased: LeasedAnnouncement, announcer: str) -> Item:
    """Return the item that announces for the program `announcer`."""
    announcement = leased.announcement
    return {
        **interest_key(announcement.participant, announcer),
        "filters": {"S": f"[{','.join(announcement.filters)}]"},
        EXPIRES: {"N": str(leased.until_s)},
        **({ANNOUNCED: {"N": str(leased.announced_ms)}} if leased.announced_ms else {}),
    }


class InterestTable:
    """`table` through a boto3 DynamoDB client, whose errors are raised as they are.

    The client is the caller's, so that the core needs no SDK. An item that cannot be read goes to
    `on_foreign`.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        on_foreign: Callable[[Item, Exception], None] = lambda _item, _why: None,
    ) -> None:
        self._client = client
        self._table = table
        self._on_foreign = on_foreign

    def all(self, now_s: float = 0) -> frozenset[LeasedAnnouncement]:
        """Return every announcement that counts at `now_s`, Unix seconds; by default also expired ones.

        Equal announcements of several programs of a participant are one, until the last of them expires. Of a
        participant with more than `MAX_PROGRAMS` different ones, or one that cannot be read, none is
        returned.
        """
        found: defaultdict[str, dict[str, LeasedAnnouncement]] = defaultdict(dict)
        unknown: set[str] = set()
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                participant = item[PARTITION]["S"]
                if participant in unknown:
                    continue
                try:
                    _add(item, found[participant], now_s)
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are read
                    self._on_foreign(item, error)
                    unknown.add(participant)
                    del found[participant]
        return frozenset(each for own in found.values() for each in own.values())


def _add(item: Item, own: dict[str, LeasedAnnouncement], now_s: float) -> None:
    """Add what `item` announces to its participant's `own`, by the text. Raises whatever is wrong with it."""
    until_s = int(item[EXPIRES]["N"])
    if until_s <= now_s:
        return
    text = item["filters"]["S"]
    announced_ms = int(item[ANNOUNCED]["N"]) if ANNOUNCED in item else 0
    if known := own.get(text):
        own[text] = replace(
            known,
            until_s=max(until_s, known.until_s),
            announced_ms=max(announced_ms, known.announced_ms),
        )
        return
    if len(own) == MAX_PROGRAMS:
        raise ValueError(f"the participant announces more than {MAX_PROGRAMS} different things")
    read = _remembered if len(text) <= MAX_ITEM_BYTES else _read_filters
    own[text] = LeasedAnnouncement(read(item[PARTITION]["S"], text), until_s, announced_ms)


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

PUBLISHED_KEY: Final = DESIRED.key_of(ALL, PUBLISHED_SORT_KEY)
"""The primary key of the record."""

_AT: Final = "published_at_ms"


@dataclass(frozen=True, slots=True)
class PublishedFilters:
    """The `digest` of the filters that devices were sent, and when (Unix milliseconds): the state's version.

    Without a digest a publication was begun, and nobody knows whether it ended.
    """

    at_ms: int
    digest: str = ""


def filters_digest(filters: Sequence[object] | None) -> str:
    """Return the digest of filters; None stands for everything."""
    return hashlib.sha256(canonical_bytes(None if filters is None else list(filters))).hexdigest()


def read_published(item: Mapping[str, Mapping[str, Any]]) -> PublishedFilters:
    """Return the record in `item`. Raises KeyError or ValueError for a damaged one."""
    return PublishedFilters(int(item[_AT]["N"]), item["digest"]["S"])


def begin_request(table: str, at_ms: int) -> dict[str, Any]:
    """Return PutItem's arguments to begin; ConditionalCheckFailedException: another one began later."""
    return _put(table, PublishedFilters(at_ms), "attribute_not_exists(#a) OR #a < :a")


def end_request(table: str, published: PublishedFilters) -> dict[str, Any]:
    """Return PutItem's arguments to end; ConditionalCheckFailedException: another one has begun."""
    return _put(table, published, "#a = :a")


def _put(table: str, published: PublishedFilters, condition: str) -> dict[str, Any]:
    # Without the attributes of the table's indexes, so that no delivery is ever due for the record.
    return {
        "TableName": table,
        "Item": {**PUBLISHED_KEY, "digest": {"S": published.digest}, _AT: {"N": str(published.at_ms)}},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#a": _AT},
        "ExpressionAttributeValues": {":a": {"N": str(published.at_ms)}},
    }
