"""Functions by name and arity (section 3.5). A table is immutable: extending it returns a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from eventplane.attributes import AttributeValue
from eventplane.cesql.errors import CesqlFunctionEvaluationError, CesqlGenericError, CesqlMathError
from eventplane.cesql.operations import INTEGER_MAX, Type

WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space. Python's strip() alone removes U+001C to U+001F as well."""


@dataclass(frozen=True, slots=True)
class Function:
    """`run` gets its arguments cast to `parameters`, and to `rest` for any that follow (None: none may).

    It returns a value of type `result`, or raises a CesqlError with the `value` to use instead.
    """

    name: str
    parameters: tuple[Type, ...]
    result: Type
    run: Callable[..., AttributeValue]
    rest: Type | None = None

    def types(self, arity: int) -> tuple[Type, ...]:
        """Return the types of `arity` arguments."""
        more = arity - len(self.parameters)
        return self.parameters + (self.rest,) * more if self.rest else self.parameters


class Functions:
    """A table of functions. Raises CesqlGenericError if two entries match the same call."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self._fixed: dict[tuple[str, int], Function] = {}
        self._variadic: dict[str, Function] = {}
        for function in functions:
            self._add(function)
        for name, variadic in self._variadic.items():
            if any(known == name and arity >= len(variadic.parameters) for known, arity in self._fixed):
                raise CesqlGenericError(
                    f"{name}: give the variadic form more parameters than any other form has"
                )

    def resolve(self, name: str, arity: int) -> Function | None:
        """Return the function `name` (upper case) that takes `arity` arguments."""
        fixed = self._fixed.get((name, arity))
        if fixed is not None:
            return fixed
        variadic = self._variadic.get(name)
        return variadic if variadic is not None and arity >= len(variadic.parameters) else None

    def extended(self, *functions: Function) -> Functions:
        """Return a table with these functions as well."""
        return Functions((*self._fixed.values(), *self._variadic.values(), *functions))

    def _add(self, function: Function) -> None:
        name = function.name
        table: dict[Any, Function] = self._variadic if function.rest else self._fixed
        key = name if function.rest else (name, len(function.parameters))
        if key in table or not name.isupper():
            raise CesqlGenericError(f"{name}: name it in upper case, and once for each arity")
        table[key] = function


def _left(text: str, length: int) -> str:
    if length < 0:
        raise _not_negative("LEFT", length, text)
    return text[:length]


def _right(text: str, length: int) -> str:
    if length < 0:
        raise _not_negative("RIGHT", length, text)
    return text[max(0, len(text) - length) :]


def _substring(text: str, position: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise _not_negative("SUBSTRING", length, "")
    if not -len(text) <= position <= len(text):
        raise CesqlFunctionEvaluationError(
            f"SUBSTRING: position {position} is outside a String of {len(text)}; test LENGTH first", value=""
        )
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start : None if length is None else start + length]


def _not_negative(name: str, length: int, value: str) -> CesqlFunctionEvaluationError:
    return CesqlFunctionEvaluationError(f"{name}: a length of {length}; give 0 or more", value=value)


def _absolute(number: int) -> int:
    if abs(number) > INTEGER_MAX:
        raise CesqlMathError(f"ABS({number}) is not a 32 bit Integer", value=INTEGER_MAX)
    return abs(number)


def _same(value: AttributeValue) -> AttributeValue:
    return value


_S, _I = Type.STRING, Type.INTEGER

BUILTINS = Functions(
    (
        Function("LENGTH", (_S,), _I, len),
        Function("CONCAT", (), _S, lambda *texts: "".join(texts), rest=_S),
        Function("CONCAT_WS", (_S,), _S, lambda delimiter, *texts: delimiter.join(texts), rest=_S),
        Function("LOWER", (_S,), _S, str.lower),
        Function("UPPER", (_S,), _S, str.upper),
        Function("TRIM", (_S,), _S, lambda text: text.strip(WHITE_SPACE)),
        Function("LEFT", (_S, _I), _S, _left),
        Function("RIGHT", (_S, _I), _S, _right),
        Function("SUBSTRING", (_S, _I), _S, _substring),
        Function("SUBSTRING", (_S, _I, _I), _S, _substring),
        Function("ABS", (_I,), _I, _absolute),
        # Their argument is cast; nothing else is to be done.
        Function("INT", (_I,), _I, _same),
        Function("BOOL", (Type.BOOLEAN,), Type.BOOLEAN, _same),
        Function("STRING", (_S,), _S, _same),
    )
)
"""The functions of every engine (sections 3.5.1 and 3.5.2, and the casts)."""
