"""What participants may be called, so that each has resources of its own in AWS.

Checked where people write a contract, not where a compiled one is read: what is in force stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from eventplane.contract.model import Participant
from eventplane.contract.reader import Section
from eventplane.contract.vocabulary import ParticipantKind
from eventplane.names import SUBSCRIBERS
from eventplane.sender import PLANE

MAX_NAME: Final = 26
"""Characters of a name that functions and queues are called after. AWS Lambda allows 64 for the longest,
`eventplane-<environment>-router-<device>-urgent`, and an environment has up to 12."""

RESERVED: Final = frozenset(
    {"device", "device-inbox", "device-urgent", "ingest", "ingest-errors", "replay", "tables", "tap"}
    | {"urgent-ingest"}
)
"""What the plane has resources of its own for; no cloud service is called so."""


def check_names(participants: Mapping[str, Participant], top: Section) -> None:
    """Record in `top` every name that AWS would refuse, or for which there would be one resource of two."""
    taken = {_id(each): "the plane itself" for each in RESERVED}
    for each in participants.values():
        if each.kind is ParticipantKind.DEVICE:
            taken[_id(f"{each.name}-urgent")] = "the urgent lane"
        if each.kind is not ParticipantKind.DEVICE_SERVICE and len(each.name) > MAX_NAME:
            top.fault(
                f"participants.{each.name}",
                f"the name has {len(each.name)} characters",
                f"give it at most {MAX_NAME}: functions and queues are called after it",
            )
        if each.name == PLANE:
            top.fault(
                f"participants.{PLANE}",
                "the plane itself sends events under this name",
                "choose another name",
            )
    for each in participants.values():
        for name in _resources(each):
            owner = taken.setdefault(_id(name), repr(each.name))
            if owner != repr(each.name):
                top.fault(
                    f"participants.{each.name}",
                    f"its {name!r} in AWS would be that of {owner}",
                    "choose another name; hyphens do not tell two apart",
                )


def _resources(participant: Participant) -> Iterator[str]:
    if participant.kind is ParticipantKind.CLOUD_SERVICE:
        yield participant.name
        if participant.replies is not None:
            yield f"{participant.name}-replies"
        if participant.inbox.webhook or participant.name == SUBSCRIBERS:
            yield f"{participant.name}-webhook"


def _id(name: str) -> str:
    # CloudFormation's ids have no hyphens (stacks/names.py).
    return name.replace("-", "")
