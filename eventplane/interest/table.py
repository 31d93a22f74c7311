"""Announced interest in the contract: beside the filter of a route, what the reader at its end handles.

In the cloud announcements lie in a table, an item for each program, with a lease. As with subscriptions,
what comes out is a contract with a version of its own, so that routers, ledger and audit go by the same.
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
from eventplane.downlink.addressing import ALL
from eventplane.downlink.table import key_of, sort_key
from eventplane.interest.announcement import Announcement, AnnouncementError, new_announcement
from eventplane.interest.uplink import UPLINK_KEY
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS

PARTITION: Final = "participant"
SORT: Final = "announcer"
EXPIRES: Final = "expires"
"""The table's keys, and until when an item counts, Unix seconds: DynamoDB removes it some time after."""

ANNOUNCED: Final = "announced"
"""When the program announced it, Unix milliseconds; a renewal leaves it as it is."""

INTEREST_TABLE: Final = "interest"
"""What the environment's table is called, before `resource_name`."""

LEASE_S: Final = 300
"""How long an announcement counts unless it is renewed, seconds. Ours: for so long a program that crashed may
keep events from the next one, and a renewal costs a write."""

MAX_PROGRAMS: Final = 50
"""Most different announcements of one participant that count at a time. Ours: its programs are of fewer
kinds, and routers read them all; with more its interest is unknown, and everything is delivered."""

MAX_ITEM_BYTES: Final = MAX_ANNOUNCED_BYTES + MAX_ANNOUNCED_FILTERS + 1
"""Longest text of an item's filters, bytes: the filters with their commas and brackets."""


@dataclass(frozen=True, slots=True)
class Leased:
    """An `announcement` that counts until `until_s`, Unix seconds, made at `announced_ms` (0: unknown)."""

    announcement: Announcement
    until_s: int
    announced_ms: int = 0


def interest_key(participant: str, announcer: str) -> Item:
    """`announcer` is the program: of several that read one inbox each may handle something else."""
    return {PARTITION: {"S": participant}, SORT: {"S": announcer}}


def interest_item(leased: Leased, announcer: str) -> Item:
    announcement = leased.announcement
    return {
        **interest_key(announcement.participant, announcer),
        "filters": {"S": f"[{','.join(announcement.filters)}]"},
        EXPIRES: {"N": str(leased.until_s)},
        **({ANNOUNCED: {"N": str(leased.announced_ms)}} if leased.announced_ms else {}),
    }


def read_leased(item: Item) -> Leased:
    """The announcement in `item`.

    Raises KeyError, TypeError or ValueError where it is none, `AnnouncementError` for one that is wrong.
    """
    announcement = read_filters(item[PARTITION]["S"], item["filters"]["S"])
    return Leased(announcement, until_s(item), announced_ms(item))


def until_s(item: Item) -> int:
    """Until when `item` counts, Unix seconds. Raises KeyError, TypeError or ValueError for none."""
    return int(item[EXPIRES]["N"])


def announced_ms(item: Item) -> int:
    """When `item` was announced, Unix milliseconds; 0 for unknown. Raises as `until_s`."""
    return int(item[ANNOUNCED]["N"]) if ANNOUNCED in item else 0


def read_filters(participant: str, text: str) -> Announcement:
    """What `participant` announces by the `text` of an item's filters; one that is too long is not read.

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


class InterestTable:
    """`table` through a boto3 DynamoDB client. An item that is no announcement goes to `on_foreign` only."""

    def __init__(
        self,
        client: Any,
        table: str,
        on_foreign: Callable[[Item, Exception], None] = lambda _item, _why: None,
    ) -> None:
        self._client = client
        self._table = table
        self._on_foreign = on_foreign

    def all(self, now_s: float = 0) -> frozenset[Leased]:
        """Every announcement that counts at `now_s`, Unix seconds; by default also what has expired.

        What several programs of a participant announce alike is one, until the last of them expires. Who has
        more than `MAX_PROGRAMS` different ones has announced nothing.
        """
        found: defaultdict[str, dict[str, Leased]] = defaultdict(dict)
        unknown: set[str] = set()
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        for page in pages:
            for item in page["Items"]:
                participant = item[PARTITION]["S"]
                if participant in unknown:
                    continue
                try:
                    _take(item, found[participant], now_s)
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one item, the others are read
                    self._on_foreign(item, error)
                    # What one of its programs handles is not known: then nothing is of the participant.
                    unknown.add(participant)
                    del found[participant]
        return frozenset(each for own in found.values() for each in own.values())


def _take(item: Item, own: dict[str, Leased], now_s: float) -> None:
    """Put what `item` announces into `own`, by its text. Raises whatever is wrong with it."""
    until = until_s(item)
    if until <= now_s:
        return
    text = item["filters"]["S"]
    if known := own.get(text):
        own[text] = replace(
            known,
            until_s=max(until, known.until_s),
            announced_ms=max(announced_ms(item), known.announced_ms),
        )
        return
    if len(own) == MAX_PROGRAMS:
        raise ValueError(f"the participant announces more than {MAX_PROGRAMS} different things")
    read = _remembered if len(text) <= MAX_ITEM_BYTES else read_filters
    own[text] = Leased(read(item[PARTITION]["S"], text), until, announced_ms(item))


# Most of it is the same at the next look. What is refused is not remembered: it is one of a participant.
_remembered = lru_cache(maxsize=256)(read_filters)


TOLD_SORT_KEY: Final = sort_key(Downlink.STATE, UPLINK_KEY)
"""Where it stands in the table, under the device `ALL`."""

_AT: Final = "told_at_ms"


@dataclass(frozen=True, slots=True)
class Told:
    """The `digest` of the filters, and when they were sent (Unix milliseconds), which is the state's version.

    Without a digest somebody began to tell them, and nobody knows whether it came to that.
    """

    at_ms: int
    digest: str = ""


def digest_of(filters: Sequence[object] | None) -> str:
    """The same for the same filters; None: everything."""
    return hashlib.sha256(canonical_bytes(None if filters is None else list(filters))).hexdigest()


def told_key() -> dict[str, dict[str, str]]:
    """The primary key of the item."""
    return key_of(ALL, TOLD_SORT_KEY)


def read_told(item: Mapping[str, Mapping[str, Any]]) -> Told:
    """What `item` says. Raises KeyError or ValueError where it is damaged."""
    return Told(int(item[_AT]["N"]), item["digest"]["S"])


def begin_request(table: str, at_ms: int) -> dict[str, Any]:
    """The arguments of PutItem before telling; ConditionalCheckFailedException: somebody began later."""
    return _put(table, Told(at_ms), "attribute_not_exists(#a) OR #a < :a")


def done_request(table: str, told: Told) -> dict[str, Any]:
    """The arguments of PutItem after telling; ConditionalCheckFailedException: somebody began meanwhile."""
    return _put(table, told, "#a = :a")


def _put(table: str, told: Told, condition: str) -> dict[str, Any]:
    # Without the indexes' attributes: nothing is ever due for it.
    return {
        "TableName": table,
        "Item": {**told_key(), "digest": {"S": told.digest}, _AT: {"N": str(told.at_ms)}},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#a": _AT},
        "ExpressionAttributeValues": {":a": {"N": str(told.at_ms)}},
    }
