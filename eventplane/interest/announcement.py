"""Announcements: the filters of what a participant handles, checked, written, read, and added to a contract.

On a device an announcement is a retained message, in the cloud an item of a table
(`eventplane.interest.table`). A router adds those of the cloud to its contract, as it does with
subscriptions; the result has a version of its own, by which ledger and audit name it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.contract import (
    Contract,
    Ordering,
    Participant,
    ParticipantKind,
    Problem,
    Transport,
    compile_contract,
)
from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import read_filter
from eventplane.errors import EventPlaneError
from eventplane.filter_texts import steps
from eventplane.filters import Any, Filter
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS, MAX_ANNOUNCED_STEPS

VERSION: Final = 1
"""The version of the message's format. Another one is refused: half understood, it would hold back events."""


class AnnouncementError(EventPlaneError):
    """An announcement cannot be used for each of `problems`: its participant's interest stays unknown."""

    participant: str
    problems: Sequence[Problem]
    message = "announcement of {participant}: {text}"

    @property
    def text(self) -> str:
        """The problems in one line."""
        return "; ".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class Announcement:
    """`participant` handles the events that pass one of `filters`, each canonical JSON; without any, none."""

    participant: str
    filters: tuple[str, ...]

    @property
    def interest(self) -> Filter:
        """The filters as one."""
        return Any(tuple(read_filter(json.loads(each), "", []) for each in self.filters))


def new_announcement(participant: str, filters: Iterable[object]) -> Announcement:
    """Return the announcement of `filters`, documents. Raises `AnnouncementError` with all faults."""
    problems: list[Problem] = []
    texts: list[str] = []
    work = 0
    for at, each in enumerate(filters):
        before = len(problems)
        work += steps(read_filter(each, f"filters[{at}]", problems))
        if len(problems) > before:
            continue
        try:
            texts.append(canonical_bytes(each).decode())
        except ValueError as error:
            problems.append(Problem(f"filters[{at}]", f"not JSON: {error}", "use plain text"))
    if len(texts) > MAX_ANNOUNCED_FILTERS:
        message = f"{len(texts)}, more than {MAX_ANNOUNCED_FILTERS}"
        problems.append(Problem("filters", message, "use wider ones"))
    if sum(len(each.encode()) for each in texts) > MAX_ANNOUNCED_BYTES:
        problems.append(Problem("filters", f"longer than {MAX_ANNOUNCED_BYTES} bytes", "use wider ones"))
    if work > MAX_ANNOUNCED_STEPS:
        message = f"they can take {work:,} steps for one event, more than {MAX_ANNOUNCED_STEPS:,}"
        problems.append(Problem("filters", message, "use simpler ones"))
    if problems:
        raise AnnouncementError(participant, problems)
    # Order and repetition mean nothing: the same interest makes the same contract version.
    return Announcement(participant, tuple(sorted(set(texts))))


def write_announcement(announcement: Announcement) -> bytes:
    """Return the payload that announces; an empty one withdraws."""
    filters = [json.loads(each) for each in announcement.filters]
    members = {"version": VERSION, "participant": announcement.participant, "filters": filters}
    return canonical_bytes(members)


def read_announcement(payload: bytes, participant: str) -> Announcement | None:
    """Return what `participant` announces in a payload; None if it withdraws. Raises `AnnouncementError`."""
    if not payload:
        return None
    try:
        members = json.loads(payload)
        version, announcer, filters = (members[each] for each in ("version", "participant", "filters"))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _refused(participant, "(document)", f"no announcement: {error!r:.200}") from error
    if version != VERSION:
        raise _refused(participant, "version", f"{version!r:.50}, this program reads {VERSION}")
    if announcer != participant:
        raise _refused(participant, "participant", f"it is of {announcer!r:.100}")
    if not isinstance(filters, list):
        raise _refused(participant, "filters", "no list")
    return new_announcement(participant, filters)


def with_interest(
    contract: Contract, announcements: Iterable[Announcement]
) -> tuple[Contract, dict[Announcement, Problem]]:
    """Return `contract` with the announced `interest` on its routes, and the refused announcements.

    Several announcements of one participant add up. A refused one leaves its participant's interest unknown
    and does not affect the others'. Without any the contract is returned as it is.
    """
    interests: defaultdict[str, list[Announcement]] = defaultdict(list)
    refused: dict[Announcement, Problem] = {}
    # Sets differ in their order from process to process, and refusals are reported in it.
    for each in sorted(announcements, key=lambda each: (each.participant, each.filters)):
        interests[f"{each.participant}.inbox"].append(each)
    wanted: dict[str, list[object]] = {}
    for inbox, own in interests.items():
        problems = {each: problem for each in own if (problem := _problem(contract, each))}
        if not problems:
            filters = [json.loads(each) for each in sorted({text for each in own for text in each.filters})]
            if sum(steps(read_filter(each, "", [])) for each in filters) <= MAX_ANNOUNCED_STEPS:
                wanted[inbox] = filters
                continue
            message = f"more than {MAX_ANNOUNCED_STEPS:,} steps together"
            problems = dict.fromkeys(own, Problem("filters", message, "use simpler ones"))
        refused |= problems
    document = json.loads(contract.canonical)
    routes = [each for each in document["routes"].values() if each["to"] in wanted]
    for route in routes:
        route["interest"] = wanted[route["to"]]
    if not routes:
        return contract, refused
    origin = f"contract {contract.version} with announced interest"
    return compile_contract(document, origin, is_derived=True), refused


def _refused(participant: str, path: str, message: str) -> AnnouncementError:
    return AnnouncementError(participant, [Problem(path, message, "send what `write_announcement` makes")])


def _problem(contract: Contract, announcement: Announcement) -> Problem | None:
    """Return why `contract` cannot take the announcement."""
    participant = contract.participants.get(announcement.participant)
    if participant is None or not _may_announce(participant):
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


def _may_announce(participant: Participant) -> bool:
    return participant.kind is not ParticipantKind.DEVICE and not participant.retired
