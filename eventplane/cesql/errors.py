"""The error types of CESQL v1.0.0 (section 3.3), each with the place in the expression.

Only `CesqlParseError` is raised by `parse`, and `CesqlGenericError` by an unsound function table; the others
are collected while an expression is evaluated.
"""

from __future__ import annotations

from typing import ClassVar

from eventplane.attributes import AttributeValue
from eventplane.errors import EventPlaneError

_EXCERPT = 100
"""Most characters of a line shown around a fault: what a terminal shows without wrapping."""


class CesqlError(EventPlaneError):
    """Base of all. `position` is the offset in the expression, characters from 0, None while unknown.

    `kind` is the specification's name of the error. `value` is the result of the failed operation; None is
    the zero value of its type.
    """

    kind: ClassVar[str]
    reason: str = ""
    position: int | None = None
    value: AttributeValue | None = None
    message = "{reason}"


class CesqlParseError(CesqlError):
    """The text is not an expression: `reason` at `position` of `text`, and the `remedy`."""

    kind = "parse"
    remedy: str = ""
    text: str = ""
    message = "{reason}; {remedy}\n{excerpt}"

    @property
    def excerpt(self) -> str:
        """The line of the fault with a caret under the place."""
        return caret(self.text, self.position or 0)


class CesqlMathError(CesqlError):
    """Division by zero, or a result that is not a 32 bit Integer."""

    kind = "math"


class CesqlCastError(CesqlError):
    """A value cannot be read as the type that the operation needs."""

    kind = "cast"


class CesqlMissingAttributeError(CesqlError):
    """The event does not have the attribute `name`."""

    kind = "missingAttribute"
    name: str = ""
    message = "the event has no attribute {name!r}; test it first: EXISTS {name} AND ..."


class CesqlMissingFunctionError(CesqlError):
    """There is no function `name` that takes `arity` arguments."""

    kind = "missingFunction"
    name: str = ""
    arity: int = 0
    message = "there is no function {name} of {arity} argument(s); see the table in docs/reference/cesql.md"


class CesqlFunctionEvaluationError(CesqlError):
    """A function cannot work with its arguments."""

    kind = "functionEvaluation"


class CesqlGenericError(CesqlError):
    """An error without a name of its own: an invalid function table or tree."""

    kind = "generic"


def caret(text: str, position: int) -> str:
    """Two lines: the line of `text` around `position`, and a caret under the place."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : len(text) if end < 0 else end]
    column = position - start
    cut = max(0, column - _EXCERPT // 2)
    shown = "".join(each if each.isprintable() else " " for each in line[cut : cut + _EXCERPT])
    return f"{shown}\n{' ' * (column - cut)}^"
