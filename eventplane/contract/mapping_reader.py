"""Read and check the mappings of participants, as people write them (`eventplane.contract.mapping`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from eventplane.attributes import KNOWN, name_problem, value_problem
from eventplane.contract import EventType, Participant
from eventplane.contract.mapping import FORMATS, JSON, MAX_MAPPINGS, POINTER, TopicMapping, overlap, problems
from eventplane.contract.reader import NAME, Section, Setting
from eventplane.device_reports import PLANE_TYPES
from eventplane.names import REPLY_TYPE

ALLOWED: Final = frozenset(
    {"subject", "time", "dataschema", "partitionkey", "sequence", "severitytext", "severitynumber"}
)
"""The attributes of the specification and of extensions that a mapping may set, beside names of one's own."""

_OURS: Final = frozenset(
    {"data", "todevice", "togroup", "statekey", "stateversion", "stateuid", "statedelete"}
    | {"deviceepoch", "devicesequence", "devicecontract", "deadletterreason"}
    | {f"down{each}" for each in ("kind", "key", "uid", "reset", "version", "delete", "order", "fence")}
)
"""Further names that have a meaning in the plane."""

_REMEDIES: Final = {
    "topic": "write words, `{name}` for a level, `+`, or `#` as the last; the first level is a word",
    "type": "name one of `event_types`",
    "payload": "choose one of: json, text",
    "id": "write a pointer into the payload, as /uuid",
    "when": "write `/pointer: constant` pairs",
    "attributes": "write `name: value` pairs; a value is a constant, `{level}` in a text, or `pointer: /...`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mappings(Setting):
    """A setting that has mappings by name; the valid ones are read as a tuple."""

    default: Any = ()

    def read(self, name: str, section: Section, default: Any = None) -> Any:
        participant = section.path.rpartition(".")[2]
        entries = sorted(section.section(name).entries().items())
        found = (_read(participant, each, members) for each, members in entries)
        return tuple(each for each in found if each is not None) or default or self.default

    def schema(self) -> dict[str, Any]:
        constant = {"type": ["string", "number", "boolean"]}
        pointer = {"type": "string", "pattern": f"^{POINTER.pattern}$"}
        place = {
            "type": "object",
            "properties": {"pointer": pointer},
            "required": ["pointer"],
            "additionalProperties": False,
        }
        values = {"type": ["object", "null"], "additionalProperties": {"anyOf": [constant, place]}}
        when = {
            "type": ["object", "null"],
            "propertyNames": pointer,
            "additionalProperties": constant,
            "description": "constants by the places where a message has them; any other message is no event",
        }
        members = {
            "topic": {"type": "string", "description": "an MQTT filter, with `{name}` for a level"},
            "type": {"type": "string", "description": "the type of the events, one of `sends`"},
            "payload": {"enum": [*FORMATS, None], "default": JSON},
            "id": {"anyOf": [pointer, {"type": "null"}], "description": "where the payload has an id"},
            "when": when,
            "attributes": values,
            "data": {**values, "description": "by default the payload"},
        }
        mapping = {"type": "object", "properties": members, "required": ["topic", "type"]}
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME.pattern}$"},
            "additionalProperties": {**mapping, "additionalProperties": False},
        }


def _read(participant: str, name: str, section: Section) -> TopicMapping | None:
    members: dict[str, Any] = {each: section.raw(each) for each in TopicMapping._fields[2:]}
    section.finish()
    given = {each: value for each, value in members.items() if value is not None}
    mapping = TopicMapping(participant, name, **{"topic": None, "type": None, **given})
    found = list(problems(mapping))
    if not found:
        values = mapping.attributes.items()
        found = [(f"attributes.{each}", why) for each, value in values if (why := _unfit(each, value))]
    for member, problem in found:
        kind = member.partition(".")[0]
        section.fault(member, problem, _REMEDIES.get(kind, _REMEDIES["attributes"]))
    return None if found else mapping


def _unfit(name: object, value: object) -> str | None:
    """Return why a mapping cannot give the attribute a value, or None."""
    if not isinstance(name, str) or (problem := name_problem(name)):
        return problem if isinstance(name, str) else f"{name!r} is not a name"
    if name not in ALLOWED and (name in KNOWN or name in _OURS):
        return "the plane sets it, or gives it a meaning that no mapped message has"
    is_constant = not isinstance(value, Mapping) and "{" not in str(value)
    return value_problem(name, value) if is_constant else None


def check_mappings(
    participants: Mapping[str, Participant], event_types: Mapping[str, EventType], top: Section
) -> None:
    """Record in `top` mappings without a right to their type, and topics that match two of them."""
    found = [each for participant in participants.values() for each in participant.mappings]
    for each in found:
        path = f"participants.{each.participant}.mappings.{each.name}"
        if each.type not in event_types:
            top.fault(f"{path}.type", f"{each.type} is no event type of the contract", _REMEDIES["type"])
        elif each.type in PLANE_TYPES or each.type == REPLY_TYPE:
            top.fault(f"{path}.type", "the plane's own programs send it", "use a type of your own")
        elif not participants[each.participant].may_send(each.type):
            top.fault(
                f"{path}.type", f"`sends` of {each.participant} does not name it", "add the type to `sends`"
            )
    if len(found) > MAX_MAPPINGS:
        top.fault("participants", f"{len(found)} mappings", f"keep to {MAX_MAPPINGS}: use wider patterns")
        return
    for one, other in combinations(found, 2):
        if overlap(one.topic, other.topic):
            top.fault(
                f"participants.{other.participant}.mappings.{other.name}.topic",
                f"a topic can match {one.topic} of {one.participant}.{one.name} as well",
                "narrow one of the two: a message becomes one event",
            )
