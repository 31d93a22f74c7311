"""An announcement: the filters of what a participant handles, checked, and as it travels.

On a device it is a retained message, in the cloud an item of a table (`eventplane.interest.table`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.compiler import compile_contract
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.model import Contract, Ordering, ParticipantKind, Transport
from eventplane.contract.reader import Problem
from eventplane.errors import EventPlaneError
from eventplane.filters import Any, Filter, steps
from eventplane.limits import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCED_FILTERS, MAX_ANNOUNCED_STEPS

VERSION: Final = 1
"""Of the message's own format. Another one is refused: half understood, it would hold back events."""


class AnnouncementError(EventPlaneError):
    """What a participant announced cannot be used; `problems` says why. Its interest stays unknown."""

    def __init__(self, participant: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"announcement of {participant}: " + "; ".join(str(each) for each in problems))
        self.participant = participant
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Announcement:
    """`participant` handles what passes one of `filters`, each canonical JSON; without any, nothing."""

    participant: str
    filters: tuple[str, ...]

    @property
    def interest(self) -> Filter:
        """What is wanted, as one filter."""
        return Any(tuple(read_filter(json.loads(each), "", []) for each in self.filters))


def new_announcement(participant: str, filters: Iterable[object]) -> Announcement:
    """One of filters as a contract writes them. Raises `AnnouncementError` with all that is wrong."""
    problems: list[Problem] = []
    texts: list[str] = []
    work = 0
    for at, each in enumerate(filters):
        before = len(problems)
        work += steps(read_filter(each, f"filters[{at}]", problems))
        if len(problems) == before:
            texts.append(_canonical(each, at, problems))
    if len(texts) > MAX_ANNOUNCED_FILTERS:
        problems.append(
            Problem("filters", f"{len(texts)}, more than {MAX_ANNOUNCED_FILTERS}", "use wider ones")
        )
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
    """The payload that announces; an empty one withdraws."""
    filters = [json.loads(each) for each in announcement.filters]
    members = {"version": VERSION, "participant": announcement.participant, "filters": filters}
    return canonical_bytes(members)


def read_announcement(payload: bytes, participant: str) -> Announcement | None:
    """What `participant` announces in a payload; None: it withdraws. Raises `AnnouncementError`."""
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


def _canonical(filter: object, at: int, problems: list[Problem]) -> str:
    try:
        return canonical_bytes(filter).decode()
    except ValueError as error:
        problems.append(Problem(f"filters[{at}]", f"not JSON: {error}", "use plain text"))
        return ""


def _refused(participant: str, path: str, message: str) -> AnnouncementError:
    return AnnouncementError(participant, [Problem(path, message, "send what `write_announcement` makes")])


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
