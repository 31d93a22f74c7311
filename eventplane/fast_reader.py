"""A fast reader of valid events; the strict reader decides on all others.

It returns the attributes of an event, exactly as the strict reader would, or None: the event may be malformed
or unusual. So it never gives a reason. Property tests and the fuzzer compare both readers.

It needs a proof that no name of a member appears twice, which readers of JSON do not report. The standard
library's scanner gives the members of each object as pairs, and a dictionary of them is as long.

Values of attributes whose check takes long are remembered once they were valid, in bounded sets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from operator import call, itemgetter
from typing import Any, Final, NamedTuple, NoReturn

from eventplane.attributes import (
    COSTLY,
    KNOWN,
    USUAL_FORMS,
    AttributeValue,
    base64_problem,
    checked_attributes,
    quick_check,
)
from eventplane.errors import EnvelopeError
from eventplane.limits import (
    MAX_DEPTH,
    MAX_NUMBER_CHARACTERS,
    MAX_REMEMBERED_CHARACTERS,
    MAX_REMEMBERED_NAMES,
    MAX_REMEMBERED_SHAPES,
    MAX_REMEMBERED_VALUES,
)
from eventplane.strict_json import may_have_long_number

_PLAIN: Final = r"[ !#-\[\]-~]++"
"""A text of printable ASCII without quotation marks and backslashes. It does not track back."""

_INTEGER: Final = "0|-?[1-9][0-9]{0,8}"

EVENTS_BEFORE_FORM: Final = 500
"""Events of the same attributes after which their form is remembered, and again after twice as many, four
times and so on, if it is not known then. Ours: compiling its pattern takes a millisecond or two, and so at
most some microseconds an event."""

_MOST_FORMS: Final = 4
"""Most forms that are tried. Ours: one that does not match takes a quarter of a microsecond."""

_FINITE_CHARACTERS: Final = 300
"""A number of so many digits, and no exponent, is finite: 1e308 is."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that may be half a pair, which may not be: the strict reader looks for the other half."""

UNREADABLE: Final = (ValueError, TypeError, StopIteration, RecursionError)
"""What readers raise for a text that is not JSON, and what follows from a value of the wrong type."""

Attributes = dict[str, AttributeValue]


class _Scanner(NamedTuple):
    """A scanner of the standard library, and where it puts members of objects and texts of fractions."""

    scan: Callable[[str, int], tuple[object, int]]
    objects: list[list[tuple[str, Any]]]
    fractions: list[str]


class _Form(NamedTuple):
    """Events with attributes of these `names`, in this order, in compact JSON, the data last.

    `match` recognises plain values only; `integers` are to be converted, and `checks` are left to do, of the
    values that `checked` gets; `valid` has some that passed. Integers equal no String, and Booleans have no
    form.
    """

    match: Callable[[str, int], re.Match[str] | None]
    names: tuple[str, ...]
    integers: tuple[str, ...]
    checked: Callable[[Attributes], tuple[Any, ...]]
    checks: tuple[Callable[[Any], object], ...]
    valid: set[tuple[Any, ...]]


_valid_values: Final[dict[str, set[str]]] = {name: set() for name in COSTLY}
_checks: Final[dict[tuple[str, ...], tuple[Callable[[Any], object], ...]]] = {}
"""What to check of events that have attributes of these names, in this order."""
_counts: Final[dict[tuple[str, ...], int]] = {}
"""How many events had attributes of these names, in this order, and no known form."""
_forms: Final[list[tuple[_Form, ...]]] = [()]
"""One item, which is replaced as a whole: other threads may be reading it."""
_idle: Final[list[_Scanner]] = []
by_other_json: Final[list[Callable[[bytes, str], Attributes | None]]] = []
"""What takes the place of the standard library's scanner, if anything does (`eventplane.other_json`)."""


def attributes_of(raw: bytes, text: str) -> Attributes | None:
    """Return the attributes of the event `text`, in UTF-8 `raw`; None where the strict reader decides."""
    if by_other_json:
        return by_other_json[0](raw, text)
    attributes, end = scanned(text, 0)
    return attributes if end == len(text) else None


def scanned(text: str, position: int) -> tuple[Attributes | None, int]:
    """Return the attributes of the event that begins at `position`, and where it ends (-1: unknown).

    The attributes are None where the strict reader decides.
    """
    try:
        # No look before: another thread may take the last one in between.
        scanner = _idle.pop()
    except IndexError:
        scanner = _new_scanner()
    scan, objects, fractions = scanner
    end = -1
    try:
        attributes, start = in_form(text, position)
        if attributes is None:
            _, end = scan(text, position)
        elif text[start - 1] == "}":
            return attributes, start
        else:
            _, end = scan(text, start)
            if not text.startswith("}", end):
                return None, -1
            end += 1
        event = text[position:end]
        if not _is_certain(event, objects, fractions):
            return None, end
        # The outermost object is complete last.
        return attributes or checked(dict(objects[-1]), event), end
    except UNREADABLE:
        return None, end
    finally:
        objects.clear()
        fractions.clear()
        _idle.append(scanner)


def _is_certain(event: str, objects: list[list[tuple[str, Any]]], fractions: list[str]) -> bool:
    """Return whether the strict reader certainly accepts the `objects` and `fractions` of an `event`.

    The scanned values are None where objects and fractions were.
    """
    return (
        event[0] == "{"
        and (event.find("[") == event.rfind("[") or len(objects) + event.count("[") < MAX_DEPTH)
        and len(objects) < MAX_DEPTH - 1
        and sum(map(len, map(dict, objects))) == sum(map(len, objects))
        and (not fractions or _are_finite(fractions))
        and ("\\" not in event or not _SURROGATE.search(event))
        and (len(event) <= MAX_NUMBER_CHARACTERS or not may_have_long_number(event))
    )


def in_form(text: str, position: int) -> tuple[Attributes | None, int]:
    """Return the attributes of an event in a known form, and where its data or, without any, the event ends.

    The attributes are None where it is in no known form.
    """
    for form in _forms[0]:
        match = form.match(text, position)
        if match is None:
            continue
        attributes: dict[str, Any] = dict(zip(form.names, match.groups()))  # noqa: B905
        for name in form.integers:
            attributes[name] = int(attributes[name])
        values = form.checked(attributes)
        if values not in form.valid:
            if not all(map(call, form.checks, values)):
                return None, -1
            if sum(map(len, map(str, values))) <= 4 * MAX_REMEMBERED_CHARACTERS:
                if len(form.valid) >= MAX_REMEMBERED_VALUES:
                    form.valid.clear()
                form.valid.add(values)
        return attributes, match.end()
    return None, -1


def _learn_form(attributes: Attributes, text: str) -> None:
    """Count the event `text`; remember its form if there are many of its kind."""
    names = tuple(attributes)
    count = _counts.get(names, 0) + 1
    if count == 1 and len(_counts) >= MAX_REMEMBERED_SHAPES:
        _counts.clear()
    if len(names) <= MAX_REMEMBERED_NAMES:
        _counts[names] = count
    # Not once for all: this event may be unusual, and events of other kinds may take the places of all forms.
    rounds, rest = divmod(count, EVENTS_BEFORE_FORM)
    if rest or rounds.bit_count() != 1:
        return
    kinds = [value.__class__ for value in attributes.values()]
    if bool in kinds:
        return
    integers = tuple(name for name, kind in zip(names, kinds, strict=True) if kind is int)
    members = ",".join(f'"{name}":{_form_of(name, is_integer=name in integers)}' for name in names)
    # A getter of one name returns no tuple; the last value has no check.
    left = {name: check for name in names if (check := _check_beside_form(name, integers))}
    form = _Form(
        re.compile(rf'\{{{members}(?:,"data":|\}})', re.ASCII).match,
        names,
        integers,
        itemgetter(*left, "source"),
        tuple(left.values()),
        set(),
    )
    if form.match(text, 0):
        _forms[0] = (form, *(each for each in _forms[0] if each.names != names))[:_MOST_FORMS]


def _form_of(name: str, *, is_integer: bool) -> str:
    if is_integer:
        return f"({USUAL_FORMS.get(name, _INTEGER)})"
    return f'"({USUAL_FORMS.get(name, _PLAIN)})"'


def _check_beside_form(name: str, integers: Collection[str]) -> Callable[[Any], object] | None:
    """Return what is left to check of a value that matches its form."""
    if name in COSTLY:
        return _valid_values[name].__contains__
    check = quick_check(name)
    is_done = name in USUAL_FORMS or name not in KNOWN or (check == str.__len__ and name not in integers)
    return None if is_done else check


def _new_scanner() -> _Scanner:
    objects: list[list[tuple[str, Any]]] = []
    fractions: list[str] = []
    decoder: Any = json.JSONDecoder(
        object_pairs_hook=objects.append, parse_float=fractions.append, parse_constant=_refuse
    )
    return _Scanner(decoder.scan_once, objects, fractions)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _are_finite(fractions: list[str]) -> bool:
    joined = "".join(fractions)
    if len(joined) <= _FINITE_CHARACTERS and "e" not in joined and "E" not in joined:
        return True
    return all(map(math.isfinite, map(float, fractions)))


def checked(members: dict[str, Any], text: str) -> Attributes | None:
    """Return the `members` of an event's `text` without the data, if they are certainly its attributes."""
    if "data" in members:
        if "data_base64" in members:
            return None
        del members["data"]
    elif "data_base64" in members and base64_problem(members.pop("data_base64")):
        return None
    checks = _checks.get(tuple(members))
    if checks is None or not all(map(call, checks, members.values())):
        return _learned(members)
    if text.isascii() and "\\" not in text and "\x7f" not in text:
        # No string in it can have a character that attributes may not have.
        _learn_form(members, text)
        return members
    is_printable = all(map(str.isprintable, filter(_is_text, members.values())))
    return members if is_printable else _learned(members)


def _learned(members: dict[str, Any]) -> Attributes | None:
    """Check the attributes one by one, and remember names and values that save time."""
    # A null is an attribute that is not set, or an object or fraction that the scanner left out.
    if None in members.values():
        return None
    try:
        checked_attributes(members)
    except EnvelopeError:
        return None
    for name in COSTLY & members.keys():
        if len(members[name]) <= MAX_REMEMBERED_CHARACTERS:
            values = _valid_values[name]
            if len(values) >= MAX_REMEMBERED_VALUES:
                values.clear()
            values.add(members[name])
    names = tuple(members)
    if names not in _checks and len(names) <= MAX_REMEMBERED_NAMES:
        if len(_checks) >= MAX_REMEMBERED_SHAPES:
            _checks.clear()
        _checks[names] = tuple(
            _valid_values[name].__contains__ if name in COSTLY else quick_check(name) for name in names
        )
    return members


def _is_text(value: object) -> bool:
    return value.__class__ is str
