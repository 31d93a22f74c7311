"""What a cloud service may do beyond its routes: events to subscribe to, devices to address."""

from __future__ import annotations

from eventplane.contract.filter_reader import read_filter
from eventplane.contract.reader import Section
from eventplane.contract.vocabulary import ParticipantKind, Reach
from eventplane.filters import Filter
from eventplane.topics import is_group_name


def read_may_subscribe(kind: ParticipantKind, section: Section) -> Filter | None:
    """The filter under `may_subscribe`; None where the participant has none."""
    document = section.raw("may_subscribe")
    if document is None:
        return None
    if kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault("may_subscribe", f"a {kind} cannot subscribe", "remove it: add a route instead")
    return read_filter(document, f"{section.path}.may_subscribe", section.problems)


def read_may_address(kind: ParticipantKind, section: Section) -> Reach | tuple[str, ...]:
    """The reach under `may_address`, or the names of groups, sorted; `Reach.ONE` where it is missing."""
    value = section.raw("may_address")
    if value is None:
        return Reach.ONE
    if kind is not ParticipantKind.CLOUD_SERVICE:
        section.fault(
            "may_address",
            f"a {kind} cannot send events to devices",
            "remove it: only cloud services address devices",
        )
    if not isinstance(value, list):
        return section.choice("may_address", Reach, Reach.ONE) or Reach.ONE
    if not value:
        section.fault("may_address", "the list is empty", "name groups, or write `one` or `everyone`")
    for at, each in enumerate(value):
        if not isinstance(each, str) or not is_group_name(each):
            section.fault(
                f"may_address[{at}]",
                f"{each!r} is not the name of a group",
                "use up to 100 letters, digits and '._~-'",
            )
    return tuple(sorted({each for each in value if isinstance(each, str)}))
