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

    `kind` is the specification's name of the error. `value` is what the failed operation gives nevertheless;
    None stands for the zero value of its type.
    """

    kind: ClassVar[str]

    def __init__(
        self, message: str, *, position: int | None = None, value: AttributeValue | None = None
    ) -> None:
        self.position = position
        self.value = value
        super().__init__(message)


class CesqlParseError(CesqlError):
    """The text is no expression: `reason` at `position` of `text`, and the `remedy`."""

    kind = "parse"

    def __init__(self, reason: str, remedy: str, text: str, position: int) -> None:
        self.reason = reason
        self.remedy = remedy
        self.text = text
        super().__init__(f"{reason}; {remedy}\n{caret(text, position)}", position=position)

    @property
    def excerpt(self) -> str:
        """The line of the fault with a caret under the place."""
        return caret(self.text, self.position or 0)


class CesqlMathError(CesqlError):
    """Division by zero, or a result that is no 32 bit Integer."""

    kind = "math"


class CesqlCastError(CesqlError):
    """A value cannot be read as the type that the operation needs."""

    kind = "cast"


class CesqlMissingAttributeError(CesqlError):
    """The event has no attribute `name`."""

    kind = "missingAttribute"

    def __init__(self, name: str, position: int) -> None:
        self.name = name
        super().__init__(
            f"the event has no attribute {name!r}; test it first: EXISTS {name} AND ...", position=position
        )


class CesqlMissingFunctionError(CesqlError):
    """There is no function `name` that takes `arity` arguments."""

    kind = "missingFunction"

    def __init__(self, name: str, arity: int, position: int) -> None:
        self.name = name
        self.arity = arity
        super().__init__(
            f"there is no function {name} of {arity} argument(s); see the table in docs/cesql.md",
            position=position,
        )


class CesqlFunctionEvaluationError(CesqlError):
    """A function cannot do its work with the arguments that it got."""

    kind = "functionEvaluation"


class CesqlGenericError(CesqlError):
    """Whatever has no name of its own: a function table or a tree that cannot be."""

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
