"""DynamoDB's expressions over items: conditions, filters, key conditions, projections and updates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

Item: TypeAlias = dict[str, dict[str, Any]]
Attribute: TypeAlias = Mapping[str, Any] | None
Test: TypeAlias = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+-]|[#:]?\w+)")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "<>": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


class ExpressionError(Exception):
    """DynamoDB refuses the expression with a ValidationException."""


class Expressions:
    """The expressions of one `request`, all of whose names and values have to be used."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._names = request.get("ExpressionAttributeNames", {})
        self._values = request.get("ExpressionAttributeValues", {})
        self._used: set[str] = set()
        self._tokens: list[str] = []

    def condition(self, text: str) -> Test:
        """Whether an item meets `text`; the item that is missing is empty."""
        test: Test = self._whole(text, self._either)
        return test

    def projection(self, text: str) -> frozenset[str]:
        """The names of the attributes that `text` lists."""
        names: list[str] = self._whole(text, lambda: self._listed(self._path))
        return frozenset(names)

    def update(self, text: str) -> Callable[[Item], None]:
        """What changes an item as `text` says."""
        change: Callable[[Item], None] = self._whole(text, self._clauses)
        return change

    def check_used(self) -> None:
        """Raise where a name or a value is not used."""
        if unused := sorted({*self._names, *self._values} - self._used):
            raise ExpressionError(f"Value provided in ExpressionAttribute unused in expressions: {unused}")

    def _whole(self, text: str, parse: Callable[[], Any]) -> Any:
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != re.sub(r"\s", "", text):
            raise ExpressionError(f"Syntax error in {text!r}")
        found = parse()
        if self._tokens:
            raise ExpressionError(f"Syntax error in {text!r}, near {self._tokens[0]!r}")
        return found

    # Conditions.

    def _either(self) -> Test:
        tests = [self._both()]
        while self._takes("OR"):
            tests.append(self._both())
        return lambda item: any(test(item) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._takes("AND"):
            tests.append(self._one())
        return lambda item: all(test(item) for test in tests)

    def _one(self) -> Test:
        if self._takes("NOT"):
            test = self._one()
            return lambda item: not test(item)
        if self._takes("("):
            test = self._either()
            self._expect(")")
            return test
        if self._tokens[1:2] == ["("]:
            return self._function(self._tokens.pop(0))
        left, sign = self._operand(), self._tokens.pop(0).upper()
        if sign == "BETWEEN":
            low = self._operand()
            self._expect("AND")
            high = self._operand()
            return lambda item: (
                _compare(">=", left(item), low(item)) and _compare("<=", left(item), high(item))
            )
        if sign == "IN":
            self._expect("(")
            options = self._listed(self._operand)
            self._expect(")")
            return lambda item: any(_compare("=", left(item), each(item)) for each in options)
        right = self._operand()
        return lambda item: _compare(sign, left(item), right(item))

    def _function(self, name: str) -> Test:
        self._expect("(")
        left = self._operand()
        right = self._operand() if self._takes(",") else None
        self._expect(")")
        match name, right:
            case "attribute_exists", None:
                return lambda item: left(item) is not None
            case "attribute_not_exists", None:
                return lambda item: left(item) is None
        if right is None or name not in ("begins_with", "contains"):
            raise ExpressionError(f"Invalid function {name!r}")
        part = right

        def is_found(item: Mapping[str, Any]) -> bool:
            whole, sought = _plain(left(item)), _plain(part(item))
            if whole is None:
                return False
            return bool(whole.startswith(sought) if name == "begins_with" else sought in whole)

        return is_found

    def _operand(self) -> Callable[[Mapping[str, Any]], Attribute]:
        if self._tokens and self._tokens[0].startswith(":"):
            value = self._value()
            return lambda _: value
        name = self._path()
        return lambda item: item.get(name)

    # Updates.

    def _clauses(self) -> Callable[[Item], None]:
        steps: list[Callable[[Item], None]] = []
        while self._tokens:
            clause = self._tokens.pop(0).upper()
            parse = {"SET": self._set, "REMOVE": self._remove, "ADD": self._add}.get(clause)
            if parse is None:
                raise ExpressionError(f"Syntax error near {clause!r}")
            steps += self._listed(parse)

        def change(item: Item) -> None:
            for step in steps:
                step(item)

        return change

    def _set(self) -> Callable[[Item], None]:
        name = self._path()
        self._expect("=")
        value = self._value()
        return lambda item: item.update({name: value})

    def _remove(self) -> Callable[[Item], None]:
        name = self._path()

        def remove(item: Item) -> None:
            item.pop(name, None)

        return remove

    def _add(self) -> Callable[[Item], None]:
        name, value = self._path(), self._value()
        return lambda item: item.update(
            {name: {"N": str(_plain(item.get(name, {"N": "0"})) + _plain(value))}}
        )

    # Tokens.

    def _listed(self, parse: Callable[[], Any]) -> list[Any]:
        found = [parse()]
        while self._takes(","):
            found.append(parse())
        return found

    def _path(self) -> str:
        name = self._tokens.pop(0) if self._tokens else ""
        if name.startswith("#"):
            self._used.add(name)
            if name not in self._names:
                raise ExpressionError(f"An expression attribute name is not defined: {name}")
            return str(self._names[name])
        if name.upper() in _reserved_words():
            raise ExpressionError(f"Attribute name is a reserved keyword: {name}")
        return name

    def _value(self) -> dict[str, Any]:
        name = self._tokens.pop(0)
        self._used.add(name)
        if name not in self._values:
            raise ExpressionError(f"An expression attribute value is not defined: {name}")
        return dict(self._values[name])

    def _takes(self, token: str) -> bool:
        found = bool(self._tokens) and self._tokens[0].upper() == token
        if found:
            del self._tokens[0]
        return found

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise ExpressionError(f"Syntax error: {token!r} is missing before {' '.join(self._tokens)!r}")


def sort_value(attribute: Mapping[str, Any]) -> Any:
    """What a key is ordered by: a number, or the bytes of a text."""
    plain = _plain(attribute)
    return plain.encode() if isinstance(plain, str) else plain


def _compare(sign: str, left: Attribute, right: Attribute) -> bool:
    if left is None or right is None:
        return sign == "<>" and left is not right
    if left.keys() != right.keys():
        return sign == "<>"
    return _COMPARISONS[sign](_plain(left), _plain(right))


def _plain(attribute: Attribute) -> Any:
    """The value of an attribute, so that numbers compare as numbers, and texts by their bytes."""
    if attribute is None:
        return None
    ((kind, value),) = attribute.items()
    if kind == "N":
        return Decimal(value)
    return [_plain(each) for each in value] if kind == "L" else value


@cache
def _reserved_words() -> frozenset[str]:
    """DynamoDB's, from the list that moto has; moto itself takes long to import."""
    moto = find_spec("moto")
    assert moto is not None
    assert moto.origin is not None
    path = Path(moto.origin).parent / "dynamodb/parsing/reserved_keywords.txt"
    return frozenset(path.read_text().split())
