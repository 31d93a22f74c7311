"""Mappings: messages of programs that know no CloudEvents become events, as the contract declares.

A mapping has a topic pattern and says what each attribute is: a constant, a level of the topic, or a place in
the payload (JSON Pointer, RFC 6901). Only programs of a contract with mappings load this.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventplane import strict_json
from eventplane.topics import LOCAL_PREFIX

if TYPE_CHECKING:
    from eventplane.contract import Contract

MAX_TOPIC: Final = 200
"""Characters of a pattern, as of the topics that a dead letter names."""

MAX_MAPPINGS: Final = 256
"""Most mappings of a contract. Ours: a device asks each for each message, and compares them in pairs."""

JSON, TEXT = FORMATS = ("json", "text")
"""The forms of a payload: JSON, or UTF-8 text, which is one JSON string then."""

LEVEL: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
"""The form of a named level of a pattern."""
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
POINTER: Final = re.compile("(?:/(?:[^/~]|~[01])*)*")
"""The form of a JSON Pointer."""
_WILDCARDS: Final = frozenset("+#")
_QUOTED = re.compile(rb"[^A-Za-z0-9._~/-]")
_ID_DIGITS: Final = 32


class TopicMapping(NamedTuple):
    """One mapping of the service `participant`.

    Args:
        topic: an MQTT filter whose levels may be `{name}`.
        type: the type of the events.
        payload: one of `FORMATS`.
        id: the pointer to the event's id; None: each message is an event of its own.
        when: constants by the pointers at which a message has to have them; any other is no event.
        attributes, data: values by name (see `value_problem`); without `data` it is the whole payload.
    """

    participant: str
    name: str
    topic: str
    type: str
    payload: str = JSON
    id: str | None = None
    when: Mapping[str, Any] = {}
    attributes: Mapping[str, Any] = {}
    data: Mapping[str, Any] | None = None

    @property
    def filter(self) -> str:
        """Return the MQTT filter to subscribe to."""
        return LEVEL.sub("+", self.topic)

    def levels(self, topic: str) -> dict[str, str] | None:
        """Return the named levels of `topic`; None if the pattern does not match it."""
        found = _pattern(self.topic).fullmatch(topic)
        return found.groupdict() if found else None

    def is_urgent(self, contract: Contract) -> bool:
        """Return whether `contract` makes its events urgent, by their type or else by the outbox."""
        declared = contract.event_types.get(self.type)
        own = contract.participants[self.participant].outbox.priority
        return ((declared and declared.priority) or own) == "urgent"

    def document(self) -> dict[str, Any]:
        """Return the mapping as the contract has it, without defaults."""
        members = self._asdict()
        defaults = self._field_defaults
        return {
            name: members[name]
            for name in self._fields[2:]
            if name not in defaults or members[name] != defaults[name]
        }


@lru_cache(maxsize=MAX_MAPPINGS)
def _pattern(topic: str) -> re.Pattern[str]:
    """Return the expression of a valid pattern: it is asked for each message."""
    levels = topic.split("/")
    parts = [
        f"(?P<{found[1]}>[^/]*)"
        if (found := LEVEL.fullmatch(each))
        else "[^/]*"
        if each == "+"
        else re.escape(each)
        for each in levels
    ]
    if levels[-1] == "#":
        parts[-2:] = [f"{parts[-2]}(?:/.*)?"]
    return re.compile("/".join(parts), re.DOTALL)


def load(participant: str, name: str, members: dict[str, Any]) -> TopicMapping:
    """Return a mapping of a compiled contract. Raises `TypeError` or `ValueError` where it is damaged."""
    found = TopicMapping(participant, name, **members)
    if problem := next(problems(found), None):
        raise ValueError(": ".join(problem))
    return found


def problems(mapping: TopicMapping) -> Iterator[tuple[str, str]]:
    """Yield the member and the fault of everything that is wrong with a mapping by itself."""
    if problem := topic_problem(mapping.topic):
        yield "topic", problem
        return
    type: Any = mapping.type  # as the other members: whatever a document has there
    if not isinstance(type, str) or not type:
        yield "type", f"{type!r} is not a type"
    if mapping.payload not in FORMATS:
        yield "payload", f"{mapping.payload!r} is not known"
    if mapping.id is not None and (problem := pointer_problem(mapping.id)):
        yield "id", problem
    for name in ("when", "attributes", "data"):
        values: Any = getattr(mapping, name)
        if values is None and name == "data":
            continue
        if not isinstance(values, Mapping):
            yield name, "it is not a mapping"
            continue
        for key, value in values.items():
            problem = _condition_problem(key, value) if name == "when" else _value_problem(value, mapping)
            if problem:
                yield f"{name}.{key}", problem


def topic_problem(topic: object) -> str | None:
    """Return what is wrong with a pattern, or None."""
    if not isinstance(topic, str) or not topic:
        return f"{topic!r} is not a topic"
    if len(topic) > MAX_TOPIC or not topic.isprintable() or topic != topic.strip():
        return f"it has more than {MAX_TOPIC} characters, a control character, or a space at an end"
    levels = topic.split("/")
    names = [found[1] for each in levels if (found := LEVEL.fullmatch(each))]
    if len(names) != len({*names}):
        return "two levels have one name"
    for at, level in enumerate(levels):
        if not level:
            return "a level is empty"
        if level == "#" and at < len(levels) - 1:
            return "`#` is not the last level"
        is_literal = level not in _WILDCARDS and not LEVEL.fullmatch(level)
        if is_literal and not _WILDCARDS.union("{}").isdisjoint(level):
            return f"the level {level!r} is neither a word nor `+`, `#` or `{{name}}`"
        if at == 0 and (not is_literal or level == LOCAL_PREFIX or level.startswith("$")):
            return f"it could match topics of the plane or of the broker ({LOCAL_PREFIX}/..., $...)"
    return None


def overlap(one: str, other: str) -> bool:
    """Return whether some topic matches both patterns."""
    left, right = one.split("/"), other.split("/")
    for a, b in zip(left, right, strict=False):
        if "#" in (a, b):
            return True
        if a != b and not (_is_any(a) or _is_any(b)):
            return False
    longest = max(left, right, key=len)
    rest = longest[min(len(left), len(right)) :]
    return not rest or rest == ["#"]


def _is_any(level: str) -> bool:
    return level == "+" or LEVEL.fullmatch(level) is not None


def pointer_problem(pointer: object) -> str | None:
    """Return what is wrong with a JSON Pointer, or None."""
    if isinstance(pointer, str) and POINTER.fullmatch(pointer):
        return None
    return f"{pointer!r} is not a JSON Pointer: /name/0, with ~0 for ~ and ~1 for / in a name, or empty"


def find(value: Any, pointer: str) -> Any:
    """Return what a valid `pointer` leads to in a JSON value; None if it leads to nothing."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def convert(
    mapping: TopicMapping, topic: str, levels: Mapping[str, str], payload: bytes
) -> MappedMessage | None:
    """Return what a message on `topic`, whose named `levels` these are, says; None if it is no event.

    Raises `EnvelopeError` if its payload cannot be read.
    """
    text = strict_json.decode_text(payload)
    value: Any = text
    if mapping.payload == JSON:
        value = strict_json.loads(text)
    else:
        text = json.dumps(text, ensure_ascii=False)
    for pointer, wanted in mapping.when.items():
        found = find(value, pointer)
        if found != wanted or isinstance(found, bool) is not isinstance(wanted, bool):
            return None
    attributes = _values(mapping.attributes, value, levels)
    if mapping.data is not None:
        text = json.dumps(_values(mapping.data, value, levels), ensure_ascii=False)
    id = None if mapping.id is None else find(value, mapping.id)
    has_id = isinstance(id, str | int | float) and not isinstance(id, bool)
    return MappedMessage(mapping, topic, payload, attributes, text, str(id) if has_id else "")


class MappedMessage(NamedTuple):
    """The content of a message from a mapped program. `id` is its own; empty if it has none."""

    mapping: TopicMapping
    topic: str
    payload: bytes
    attributes: Mapping[str, Any]
    data: str
    id: str

    def event(self, thing: str, time: str, id: str) -> bytes:
        """Return the event that it becomes on the device `thing`, in JSON format.

        `time` and `id` count unless it has its own. The source is never a claim of the program: it is the
        device, the participant and the topic.
        """
        quoted = _QUOTED.sub(lambda found: b"%%%02X" % ord(found[0]), self.topic.encode()).decode()
        ours = {
            "specversion": "1.0",
            "id": self.id or id,
            "source": f"/devices/{thing}/{self.mapping.participant}/{quoted}",
            "type": self.mapping.type,
            "datacontenttype": "application/json",
        }
        members = {**ours, "time": time, **self.attributes, **ours}
        return f'{json.dumps(members, ensure_ascii=False)[:-1]},"data":{self.data}}}'.encode()

    def derived_id(self, mid: int, attempt: int, session: str = "") -> str:
        """Return the id of the message that the broker sent under packet id `mid`, alike in a redelivery.

        A broker uses its packet ids again: each `attempt` gives another id, and each `session` of the broker.
        """
        name = f"{self.topic}\n{session}{mid}.{attempt}\n".encode()
        return hashlib.sha256(name + self.payload).hexdigest()[:_ID_DIGITS]


def _values(declared: Mapping[str, Any], value: Any, levels: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of what is `declared`; what a pointer does not find, or finds null, is left out."""
    found: dict[str, Any] = {}
    for name, each in declared.items():
        if isinstance(each, str):
            found[name] = LEVEL.sub(lambda level: levels[level[1]], each)
        elif isinstance(each, Mapping):
            found[name] = find(value, each["pointer"])
        else:
            found[name] = each
    return {name: each for name, each in found.items() if each is not None}


def _condition_problem(pointer: object, wanted: object) -> str | None:
    if not isinstance(wanted, str) and not _is_number(wanted):
        return "its value is not a constant: a text, a number, true or false"
    return pointer_problem(pointer)


def _is_number(value: object) -> bool:
    """Return whether it is a number of JSON, true or false."""
    return isinstance(value, int | float) and isfinite(value)


def _value_problem(value: object, mapping: TopicMapping) -> str | None:
    """Return what is wrong with a declared value, or None.

    It is a number, true or false, a text with `{name}` for levels of the topic, or `pointer: /...`.
    """
    if isinstance(value, str):
        if not {"{", "}"}.isdisjoint(LEVEL.sub("", value)):
            return "a brace that is not `{name}`"
        named = {found[1] for each in mapping.topic.split("/") if (found := LEVEL.fullmatch(each))}
        unknown = {*LEVEL.findall(value)} - named
        return f"the topic has no level {', '.join(sorted(unknown))}" if unknown else None
    if isinstance(value, Mapping):
        if value.keys() != {"pointer"}:
            return "it is neither a constant nor `{pointer: /...}`"
        return pointer_problem(value["pointer"])
    return None if _is_number(value) else "it is neither a constant nor `{pointer: /...}`"
