"""An expression that is ready for events."""

from __future__ import annotations

from collections.abc import Callable

from eventplane.cesql.compilation import compile_filter
from eventplane.cesql.evaluation import Attributes, Result, evaluate
from eventplane.cesql.functions import BUILTINS, Functions
from eventplane.cesql.parser import parse_tree
from eventplane.cesql.tree import Node


class Expression:
    """`text` as it was written, and its `tree`. Immutable; equal to one with the same text and functions.

    `matches(attributes)` says whether an event passes as a filter: only a Boolean true without any error
    does. It raises nothing and stops at the first error. It is compiled at its first use, so that a contract
    with thousands of routes is read fast.
    """

    __slots__ = ("functions", "matches", "text", "tree")

    matches: Callable[[Attributes], bool]

    def __init__(self, text: str, tree: Node, functions: Functions) -> None:
        self.text = text
        self.tree = tree
        self.functions = functions
        self.matches = self._first_match

    def evaluate(self, attributes: Attributes) -> Result:
        """The value for an event and every error on the way. Raises nothing."""
        return evaluate(self.tree, attributes, self.functions)

    def _first_match(self, attributes: Attributes) -> bool:
        self.matches = compile_filter(self.tree, self.functions)
        return self.matches(attributes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return self.text == other.text and self.functions is other.functions

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"parse({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[object, ...]]:
        # A generated function cannot be pickled, and need not be.
        builtin = self.functions is BUILTINS
        return parse, (self.text,) if builtin else (self.text, self.functions)


def parse(text: str, functions: Functions = BUILTINS) -> Expression:
    """The expression that `text` is in CESQL v1.0.0; raises CesqlParseError with the place and a remedy.

    A call of a function that is not in `functions` is no parse error: `lint` and evaluation report it.
    """
    return Expression(text, parse_tree(text), functions)
