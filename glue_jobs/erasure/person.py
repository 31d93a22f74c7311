"""Find a person's rows, and what is left of each. Plain Python.

The transport decides whose a row is: the client that brought it, or the sender that the plane stamped. What a
text says decides nothing, so a name that is written into a row does not have it deleted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from eventplane.dead_letter import letter_id
from eventplane.device_reports import short_digest
from eventplane.envelope import parse_sender
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.reasons import Outcome
from eventplane.strict_json import loads, member_spans, with_member
from glue_jobs.erasure.names import NUMBER, Names, Redacted, encoded_mark, mark

_SHORTEST: Final = 4
_BORDERS: Final = "/#?"
"""What may follow the prefix, so that //home-1 is not //home-10. A prefix may have another at its end."""

_KEPT: Final = frozenset(
    {
        *("type", "route", "destination", "outcome", "contract_version", "kind", "hop", "date"),
        *("entered_by", "channel", "priority", "basis", "archive", "archive_file", "file", "digest"),
    }
)
"""Members that stay as they are: words of the contract and of the plane, and names of objects."""

_CLIENTS: Final = ("client_id", "thing", "device")
"""Members that name the device whose connection brought what the row is about."""

_LINE: Final = "line_text"
_TEXTS: Final = (_LINE, "text", "body")
"""Members that hold a whole row or message, which may be cut."""

_EVENTS: Final = ("event", "report")

UNREADABLE: Final = "not a row that can be read: only the names were replaced"

# Within an event, which is a text of the row, the quotation marks have a backslash in front.
_STATED: Final = re.compile(r'(?<!\\)"(?:client_id|clientid|thing|sender)":\s*"([^"\\]*)"')


class TooWideError(EventPlaneError):
    """The `value` of `option` would take in more than one person's events."""

    option: str
    value: str
    message = (
        "{option} {value!r} is not one person's: it is too short, or a word of the contract or of events; "
        "give the whole beginning of the sources, such as //home-17/, and the device's whole client id"
    )


@dataclass(frozen=True, slots=True)
class Person:
    """The person whose events come from `source` or beneath it, or from the device `client`.

    Names are whole identifiers: home-1 is in `home-1.1772366400000.disconnected` and in
    `/devices/home-1/router`, and not in home-17, home-1-annex or home-1:2. Raises `TooWideError`.
    """

    source: str
    client: str | None = None

    def __post_init__(self) -> None:
        for option, value in (("--SOURCE", self.source), ("--CLIENT", self.client)):
            if value is not None and len(value.strip(f"{_BORDERS}:")) < _SHORTEST:
                raise TooWideError(option, value)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the person and the device."""
        return tuple(dict.fromkeys(each.strip(_BORDERS) for each in (self.source, self.client) if each))

    @property
    def pseudonym(self) -> str:
        """A name for the records of the erasure, which must not hold the person's own."""
        return hashlib.sha256(json.dumps([self.source, self.client]).encode()).hexdigest()[:32]

    def claims(self, source: str) -> bool:
        """Return whether a `source` is the person's, or beneath it."""
        whole = self.source.endswith((*_BORDERS, ":"))
        return source == self.source or source.startswith(
            self.source if whole else tuple(self.source + each for each in _BORDERS)
        )


@dataclass(frozen=True, slots=True)
class Shared:
    """The values that rows of the person share with rows that stay, so that these are judged as before.

    `claims` are digests of source and id under which others sent events as well. `letters` are ids of dead
    letters by those of the events that they are about: made of names, so they change with these.
    """

    claims: frozenset[str] = frozenset()
    letters: Mapping[str, str] = field(default_factory=dict)

    def and_(self, other: Shared) -> Shared:
        """Return both together."""
        return Shared(self.claims | other.claims, {**self.letters, **other.letters})


class RowChange(NamedTuple):
    """The change of a row: it is the person's `own` and goes, or it has other values for the `members`.

    `may_remain` is why it may hold a name all the same, `shared` what its names have to do with other rows.
    """

    own: bool = False
    members: Mapping[str, str] = {}
    may_remain: frozenset[str] = frozenset()
    shared: Shared = Shared()


@dataclass(frozen=True)
class Eraser:
    """Judges rows, which are dictionaries by column."""

    person: Person
    shared: Shared = Shared()

    @cached_property
    def _names(self) -> Names:
        return Names(self.person.names, self.shared.letters)

    def names(self, text: str) -> bool:
        """Return whether `text` names the person."""
        return self._names.redact(text).text != text

    def row(self, members: Mapping[str, Any]) -> RowChange:
        """Return what becomes of a row with these `members`, of which lists and objects are none."""
        read = {
            name: self._member(name, value)
            for name, value in members.items()
            if isinstance(value, str) and name not in _KEPT
        }
        may_remain = frozenset().union(*(each.may_remain for each in read.values()))
        changed = {name: each.text for name, each in read.items() if each.text != members[name]}
        if not changed:
            return RowChange(may_remain=may_remain)
        event = self._event(members)
        source, id = (str(event.get(name) or "") for name in ("source", "id"))
        claim = hashlib.sha256(f"{source}\n{id}".encode()).hexdigest()[:16]
        is_own = self._is_own(members)
        if is_own and claim not in self.shared.claims and id not in self.shared.letters:
            return RowChange(own=True)
        if any(name in changed and not (name == _LINE and _members(members[name])) for name in _TEXTS):
            may_remain |= {UNREADABLE}
        if self.person.claims(source) or self._is_about(event):
            changed |= {name: _without_data(changed[name]) for name in _EVENTS if name in changed}
        if "event" in changed:
            changed["digest"] = members.get("digest") or short_digest(members["event"].encode())
        claims = frozenset() if is_own or not self.names(source) else frozenset({claim})
        return RowChange(False, changed, may_remain, Shared(claims, self._letters(members)))

    def line(self, text: str) -> tuple[str, RowChange]:
        """Return a line of JSON as it is to be, and what becomes of it."""
        redacted = self._names.redact(text)
        # Numbers in the archive's own columns name no person.
        if redacted.text == text and NUMBER not in redacted.may_remain:
            return text, RowChange(may_remain=redacted.may_remain)
        members = _members(text)
        if members is None:
            change = self.row({_LINE: text})
            return change.members.get(_LINE, text), change
        # What no column has a place for may be an object or a list.
        flat = {
            name: _to_json(value) if isinstance(value, dict | list) else value
            for name, value in members.items()
        }
        change = self.row(flat)
        for name, value in change.members.items():
            members[name] = value if flat.get(name) == members.get(name) else json.loads(value)
        return _to_json(members) if change.members else text, change

    def _member(self, name: str, value: str) -> Redacted:
        if name == _LINE and _members(value) is not None:
            line, change = self.line(value)
            return Redacted(line, change.may_remain)
        return self._names.redact(value, name)

    def _event(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a row says of its event: that itself, or the row."""
        text = members.get("event")
        return (_members(text) if isinstance(text, str) else None) or members

    def _is_own(self, members: Mapping[str, Any]) -> bool:
        sender = parse_sender(str(members.get("sender") or ""))
        devices = {sender.device, *(members.get(name) for name in _CLIENTS)}
        if devices <= {None, ""}:
            texts = (str(members[name]) for name in _TEXTS if members.get(name))
            devices = {each.partition("/")[0] for text in texts for each in _STATED.findall(text)}
        devices -= {None, ""}
        return bool(devices) and devices <= {*self.person.names}

    def _is_about(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event is a dead letter about one of the person's device."""
        data = event.get("data")
        sender = data.get("sender") if isinstance(data, dict) else None
        return isinstance(sender, dict) and sender.get("device") in self.person.names

    def _letters(self, members: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the id of the dead letter about the row's event, and what it is after the erasure."""
        if members.get("outcome") != Outcome.DEAD_LETTERED:
            return {}
        named = [str(members.get(name) or "") for name in ("sender", "source", "id")]
        old, new = letter_id(*named), letter_id(*(self._names.redact(each).text for each in named))
        return {old: new} if old != new else {}


def _members(text: str) -> dict[str, Any] | None:
    try:
        found = loads(text)
    except EnvelopeError:
        return None
    return found if isinstance(found, dict) else None


def _to_json(value: Any) -> str:
    # As the archive's writers do it.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _without_data(event: str) -> str:
    """Return an event's text with a mark in place of its data."""
    if _members(event) is None:
        return event
    for name, start, end in list(member_spans(event)):
        if name == "data":
            return with_member(event, name, f'"{mark(event[start:end])}"')
        if name == "data_base64":
            return with_member(event, name, f'"{encoded_mark(event[start:end])}"')
    return event
