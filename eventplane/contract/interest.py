"""Announced interest in the contract: beside the filter of a route, what the reader at its end handles.

In the cloud announcements lie in a table, an item for each program, with a lease. As with subscriptions,
what comes out is a contract with a version of its own, so that routers, ledger and audit go by the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from eventplane.announcement import Announcement, AnnouncementError, new_announcement
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.compiler import compile_contract
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.model import Contract, Ordering, ParticipantKind, Place, Transport
from eventplane.contract.reader import Problem
from eventplane.filter_cost import steps
from eventplane.filters import to_document
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS, MAX_ANNOUNCED_STEPS

PARTITION: Final = "participant"
SORT: Final = "announcer"
EXPIRES: Final = "expires"
"""The table's keys, and until when an item counts, Unix seconds: DynamoDB removes it some time after."""

ANNOUNCED: Final = "announced"
"""When the program announced it, Unix milliseconds; a renewal leaves it as it is."""

TABLE: Final = "interest"
"""What the environment's table is called, before `resource_name`."""

LEASE_S: Final = 300
"""How long an announcement counts unless it is renewed, seconds. Ours: for so long a program that crashed may
keep events from the next one, and a renewal costs a write."""

MAX_PROGRAMS: Final = 50
"""Most different announcements of one participant that count at a time. Ours: its programs are of fewer
kinds, and routers read them all; with more its interest is unknown, and everything is delivered."""

MAX_ITEM_BYTES: Final = MAX_ANNOUNCED_BYTES + MAX_ANNOUNCED_FILTERS + 1
"""Longest text of an item's filters, bytes: the filters with their commas and brackets."""

Item = dict[str, Any]
"""An item as DynamoDB's own API has it."""


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


def read_interest(item: Item) -> Leased:
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


def with_interest(
    contract: Contract, announcements: Iterable[Announcement]
) -> tuple[Contract, dict[Announcement, Problem]]:
    """`contract` with an `interest` on each route to an inbox that is announced for, and what is refused.

    Several announcements of one participant add up. One that is wrong takes no other with it, and leaves the
    participant's interest unknown. Without any the contract stays what it is.
    """
    announcements = list(announcements)
    document = json.loads(contract.canonical)
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    refused: dict[Announcement, Problem] = {}
    for each in announcements:
        if problem := _problem(contract, each):
            refused[each] = problem
        else:
            wanted[f"{each.participant}.inbox"].update(each.filters)
    for each in refused:
        wanted.pop(f"{each.participant}.inbox", None)
    for inbox, filters in list(wanted.items()):
        if sum(steps(read_filter(json.loads(each), "", [])) for each in filters) > MAX_ANNOUNCED_STEPS:
            del wanted[inbox]
            problem = Problem(
                "filters", f"more than {MAX_ANNOUNCED_STEPS:,} steps together", "use simpler ones"
            )
            refused |= {each: problem for each in announcements if f"{each.participant}.inbox" == inbox}
    concerned = [each for each in document["routes"].values() if each["to"] in wanted]
    for route in concerned:
        route["interest"] = [json.loads(each) for each in sorted(wanted[route["to"]])]
    if not concerned:
        return contract, refused
    return compile_contract(document, f"contract {contract.version} with announced interest"), refused


def uplink_filters(contract: Contract) -> list[object]:
    """What the cloud wants of its devices: what a route takes, whatever its reader announced that it handles.

    An announcement lapses with its lease, and what devices were not told to send is gone.
    """
    filters = {canonical_bytes(to_document(route.filter)) for route in contract.routes_at(Place.CLOUD)}
    return [json.loads(each) for each in sorted(filters)]


def _problem(contract: Contract, announcement: Announcement) -> Problem | None:
    participant = contract.participants.get(announcement.participant)
    if participant is None or participant.kind is ParticipantKind.DEVICE or participant.retired:
        return Problem("participant", "it is no service that is in use", "name one of the contract")
    inbox = participant.inbox
    if inbox.ordering is Ordering.SOURCE and inbox.transport is Transport.SQS:
        # Its senders have counted everything that its routes take, and a reader would wait for the rest.
        return Problem("participant", "its inbox keeps an order: everything comes", "announce nothing")
    try:
        new_announcement(announcement.participant, map(json.loads, announcement.filters))
    except AnnouncementError as error:
        return error.problems[0]
    except (ValueError, RecursionError) as error:
        return Problem("filters", f"not JSON: {error}", "announce again")
    return None
