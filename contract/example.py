"""Make an example payload of a JSON Schema: the same one each time, and valid by the schema itself.

The keywords of a schema propose values, and a validator of that schema chooses: what a proposal overlooks,
such as `not`, costs another proposal, never a wrong example.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain, count, islice
from math import ceil
from typing import Any, Final
from urllib.parse import urldefrag, urljoin

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry

from eventplane.errors import EventPlaneError

Schema = Mapping[str, Any] | bool

_MOST: Final = 24
"""Different values of one part of a schema, which are as many as the elements of an array may need."""

_DEEP: Final = 4
"""Levels of a payload down to which optional members are there: a schema may contain itself."""

_TRIES: Final = 20_000
"""Parts of a schema that are looked at, some seconds in all: it may contain itself several times."""

_LARGE: Final = 10_000
"""Most characters and elements that an example has: a larger one would hardly fit into an event."""

_FORMATS: Final = {
    "date-time": "2026-03-01T08:30:00Z",
    "date": "2026-03-01",
    "time": "08:30:00Z",
    "duration": "PT5M",
    "email": "someone@example.org",
    "hostname": "host.example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000001",
    "json-pointer": "/example",
}

_SPEAKS_OF: Final = {
    "object": ("properties", "required", "patternProperties", "minProperties", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "contains", "uniqueItems"),
    "string": ("pattern", "format", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "boolean": (),
    "null": (),
}
"""The types of values, each with the keywords that are about it."""


class _GivenUpError(Exception):
    """Too many parts were looked at."""


class NoExampleError(EventPlaneError):
    """No payload was found that is valid by the schema `id`."""

    id: str
    message = "no example of {id} was found; write one, or add `examples` to the schema"


def example_of(id: str, schemas: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return an example of the schema `id` of `schemas`, the first of its `examples` if it has some.

    Raises `NoExampleError`.
    """
    registry: SchemaRegistry = Registry().with_resources(
        (each, DRAFT202012.create_resource(schema)) for each, schema in schemas.items()
    )
    try:
        return next(_Examples(registry).of(_absolute(schemas[id], id)))
    except (_GivenUpError, StopIteration, RecursionError, Unresolvable, re.error) as error:
        raise NoExampleError(id) from error


class _Examples:
    """Examples of schemas whose references are absolute and in `registry`."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._tries = 0

    def of(self, schema: Schema, depth: int = 0) -> Iterator[Any]:
        """Yield different examples of `schema`, the plainest first. Raises `_GivenUpError`."""
        self._tries += 1
        if self._tries > _TRIES:
            raise _GivenUpError
        is_valid = jsonschema.Draft202012Validator(schema, registry=self._registry).is_valid
        proposed = islice(self._proposed(schema, depth), _MOST * _MOST)
        return islice(_different(each for each in proposed if is_valid(each)), _MOST)

    def _proposed(self, schema: Schema, depth: int) -> Iterator[Any]:
        if schema is False or depth > 2 * _DEEP:
            return
        for way in self._ways(_dict(schema)):
            yield from way.get("examples", ())
            yield from (way[name] for name in ("const", "default") if name in way)
            yield from way.get("enum", ())
            spoken_of = [kind for kind, words in _SPEAKS_OF.items() if any(each in way for each in words)]
            kinds = _list(way.get("type", [*spoken_of, "string", *_SPEAKS_OF]))
            for kind in sorted(kinds, key="null".__eq__):
                yield from self._of_kind(kind, way, depth)

    def _of_kind(self, kind: str, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        match kind:
            case "object":
                return self._objects(schema, depth)
            case "array":
                return self._arrays(schema, depth)
            case "string":
                return _strings(schema)
            case "integer" | "number":
                return _numbers(schema, is_whole=kind == "integer")
            case _:
                return iter((True, False) if kind == "boolean" else (None,))

    def _ways(self, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what `schema` amounts to by each choice that it leaves, without what joins schemas."""
        rest = dict(schema)
        if reference := rest.pop("$ref", None) or rest.pop("$dynamicRef", None):
            target = _absolute(self._registry.resolver().lookup(reference).contents, urldefrag(reference)[0])
            choices = [[target]]
        elif "allOf" in rest:
            choices = [rest.pop("allOf")]
        elif "dependentSchemas" in rest:
            choices = [list(rest.pop("dependentSchemas").values())]
        elif "if" in rest:
            choices = [[rest.pop("if"), rest.pop("then", True)], [rest.pop("else", True)]]
        elif branches := rest.pop("oneOf", None) or rest.pop("anyOf", None):
            choices = [[each] for each in branches]
        else:
            yield rest
            return
        for parts in choices:
            joined = rest
            for part in parts:
                joined = _both(joined, part)
            yield from self._ways(joined)

    def _objects(self, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        known: Mapping[str, Schema] = schema.get("properties", {})
        needed = dict.fromkeys(
            chain(schema.get("required", ()), *schema.get("dependentRequired", {}).values())
        )
        optional = dict.fromkeys(known if depth < _DEEP else ())
        free = chain(
            *(_from_pattern(each, 0) for each in schema.get("patternProperties", {})),
            (f"member{number}" for number in count(1)),
        )
        more = dict.fromkeys(islice(free, min(schema.get("minProperties", 0), _MOST)))
        choices = needed | optional, needed | optional | more, needed
        for wanted in dict.fromkeys(map(tuple, choices)):
            values, plain = dict[str, Iterator[Any]](), dict[str, Any]()
            for name in wanted:
                values[name] = self.of(_member(schema, name), depth + 1)
                if found := list(islice(values[name], 1)):
                    plain[name] = found[0]
                elif name in needed:
                    break
            if needed.keys() <= plain.keys():
                yield plain
                # The deeper, the fewer: each level would multiply them.
                for name in plain:
                    yield from (plain | {name: each} for each in islice(values[name], _MOST >> depth))

    def _arrays(self, schema: Mapping[str, Any], depth: int) -> Iterator[Any]:
        rest: Schema = schema.get("items", True)
        contained = [_both(_dict(rest), schema["contains"])] if "contains" in schema else []
        first = [*schema.get("prefixItems", ()), *contained * schema.get("minContains", 1)]
        least: int = schema.get("minItems", 0)
        for length in dict.fromkeys((max(least, len(first), depth < _DEEP), least, least + 2)):
            items: list[Any] = []
            for at in range(length if length <= _LARGE else 0):
                proposed = self.of(first[at] if at < len(first) else rest, depth + 1)
                fresh = _different(chain(items, proposed)) if schema.get("uniqueItems") else proposed
                known = len(items) if schema.get("uniqueItems") else 0
                items += list(islice(fresh, known, known + 1))
            yield items


def _absolute(schema: Any, base: str) -> Any:
    """Return `schema` with each reference as seen from outside the document `base`."""
    if isinstance(schema, list):
        return [_absolute(each, base) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    base = urljoin(base, named) if isinstance(named := schema.get("$id", ""), str) else base
    return {
        name: urljoin(base, value)
        if name in ("$ref", "$dynamicRef") and isinstance(value, str)
        else value
        if name in ("const", "enum", "examples", "default")
        else _absolute(value, base)
        for name, value in schema.items()
    }


def _all_of(mine: Any, its: Any) -> dict[str, Any]:
    return {"allOf": [its, mine]}


def _members(mine: Any, its: Any) -> dict[str, Any]:
    return {**its, **mine, **{each: _all_of(mine[each], its[each]) for each in mine.keys() & its.keys()}}


_JOINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(("properties", "patternProperties"), _members),
    **dict.fromkeys(("items", "additionalProperties", "contains"), _all_of),
    **dict.fromkeys(
        ("required", "allOf"), lambda mine, its: [*its, *(each for each in mine if each not in its)]
    ),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    "type": lambda mine, its: [each for each in _list(mine) if each in _list(its)] or ["integer"],
}
"""How two values of a keyword become one; of others one is taken, and the validator judges."""


def _both(one: Mapping[str, Any], other: Schema) -> dict[str, Any]:
    """Return a schema whose values may suit both."""
    found = {**_dict(other), **one}
    for name in one.keys() & _dict(other).keys():
        if join := _JOINED.get(name):
            found[name] = join(one[name], _dict(other)[name])
        elif name in ("anyOf", "oneOf", "$ref", "if", "dependentSchemas"):
            found["allOf"] = [*found.get("allOf", ()), {name: _dict(other)[name]}]
    return found


def _dict(schema: Schema) -> Mapping[str, Any]:
    return {} if isinstance(schema, bool) else schema


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _different(values: Iterable[Any]) -> Iterator[Any]:
    """Yield each of `values` once."""
    seen = set()
    for each in values:
        text = json.dumps(each, sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield each


def _member(schema: Mapping[str, Any], name: str) -> Schema:
    """Return the schema of the member `name` of an object."""
    patterns = schema.get("patternProperties", {})
    parts = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    parts += [each for pattern, each in patterns.items() if re.search(pattern, name)]
    return {"allOf": parts} if parts else schema.get("additionalProperties", True)


def _strings(schema: Mapping[str, Any]) -> Iterator[str]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 100)
    yield from (text for form, text in _FORMATS.items() if form == schema.get("format"))
    if "pattern" in schema:
        yield from chain(*(_from_pattern(schema["pattern"], more) for more in range(min(least, _LARGE) + 2)))
    else:
        texts = chain(["example"], (f"example {number}" for number in range(2, _MOST)))
        yield from (text[-most:].ljust(min(least, _LARGE), "x") if most else "" for text in texts)


def _numbers(schema: Mapping[str, Any], *, is_whole: bool) -> Iterator[int | float]:
    def bound(*names: str) -> list[Fraction]:
        return [Fraction(str(schema[each])) for each in names if each in schema]

    low, high = bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum")
    step = Fraction(str(schema.get("multipleOf", 1)))
    if low and high and not is_whole and "multipleOf" not in schema:
        step = min(step, (min(high) - max(low)) / _MOST) or step
    start = max(low) if low else min([step, *high])
    for number in range(_MOST):
        value = step * (ceil(start / step) + number) if low else step * (start // step - number)
        yield int(value) if value.denominator == 1 else float(value)


def _from_pattern(pattern: str, more: int) -> Iterator[str]:
    """Yield a text that `pattern` is meant for; what repeats does so `more` often than it must."""
    yield "".join(_texts(re._parser.parse(pattern), more))  # type: ignore[attr-defined] # noqa: SLF001


def _texts(parts: Any, more: int) -> Iterator[str]:
    for kind, value in parts:
        match str(kind):
            case "LITERAL":
                yield chr(value)
            case "IN" | "ANY" | "NOT_LITERAL":
                yield _character(value if str(kind) == "IN" else [("NEGATE", None), ("LITERAL", value)])
            case "BRANCH":
                yield from _texts(value[1][more % len(value[1])], more)
            case "SUBPATTERN":
                yield from _texts(value[3], more)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, repeated = value
                for _ in range(min(least + more, int(most), _LARGE)):
                    yield from _texts(repeated, more)


def _character(members: Any) -> str:
    """Return a character of a class."""
    is_negated = str(members[0][0]) == "NEGATE"
    characters = "aA1 -_.:/" + "".join(chr(value[0]) for kind, value in members if str(kind) == "RANGE")
    characters += "".join(chr(value) for kind, value in members if str(kind) == "LITERAL" and value)
    return next(each for each in characters if any(_has(member, each) for member in members) != is_negated)


def _has(member: Any, character: str) -> bool:
    kind, value = str(member[0]), member[1]
    if kind == "CATEGORY":
        word = str(value).removeprefix("CATEGORY_").removeprefix("NOT_")[0].lower()
        return bool(re.match(rf"\{word.upper() if '_NOT_' in str(value) else word}", character))
    low, high = value if kind == "RANGE" else (value, value)
    return kind != "NEGATE" and low is not None and low <= ord(character) <= high
