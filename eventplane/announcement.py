"""An announcement: the filters of what a participant handles, checked, and as it travels.

On a device it is a retained message, in the cloud an item of a table (`eventplane.contract.interest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eventplane.contract.canonical import canonical_bytes
from eventplane.contract.filter_reader import read_filter
from eventplane.contract.reader import Problem
from eventplane.errors import EventPlaneError
from eventplane.filter_cost import steps
from eventplane.filters import Any, Filter
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


def _canonical(filter: object, at: int, problems: list[Problem]) -> str:
    try:
        return canonical_bytes(filter).decode()
    except ValueError as error:
        problems.append(Problem(f"filters[{at}]", f"not JSON: {error}", "use plain text"))
        return ""


def _refused(participant: str, path: str, message: str) -> AnnouncementError:
    return AnnouncementError(participant, [Problem(path, message, "send what `write_announcement` makes")])
