"""What an expression costs at most, told from its tree before any event is there.

Nothing of this happens while events are routed: an expression that is too costly never becomes a filter. So
device, routers and audit give the same answer for every event.
"""

from __future__ import annotations

from dataclasses import dataclass

from eventplane.attributes import AttributeValue, attribute_text
from eventplane.cesql import tree
from eventplane.cesql.casts import Type
from eventplane.cesql.expression import Expression
from eventplane.cesql.like import Wildcard, parts
from eventplane.cesql.tree import Node
from eventplane.limits import MAX_EVENT_BYTES, MAX_FILTER_NESTING, MAX_FILTER_TEXT_BYTES

# Steps: about a nanosecond each on one core of a current server, at the worst input that was found for each.
_START = 1_500
"""With an error, which ends the evaluation."""
_ATTRIBUTE = 50
_OPERATION = 100
_CALL = 200
_CAST = 600
_MAPPED_BYTE = 10
"""LOWER, UPPER, TRIM of what is not ASCII."""
_SOUGHT_BYTE = 4

_NUMBER_BYTES = 11
_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """The most `steps` of an evaluation and the `longest` text that it makes, bytes of UTF-8.

    `nesting` is how deep functions and comparisons stand within each other.
    """

    steps: int
    longest: int = 0
    nesting: int = 0


def cost(node: Node) -> Cost:
    """The cost of the expression `node` for an event of `MAX_EVENT_BYTES`.

    Its functions are the built-in ones; another one counts as one that joins its arguments.
    """
    measure = _Measure()
    measure.value(node)
    return Cost(_START + measure.steps, measure.longest, nesting(node))


def nesting(node: Node) -> int:
    """How many functions and comparisons stand within each other at most."""
    below = max(map(nesting, tree.children(node)), default=0)
    return below + isinstance(node, tree.Call | tree.In | tree.Comparison)


class _Measure:
    def __init__(self) -> None:
        self.steps = 0
        self.longest = 0

    def value(self, node: Node) -> int:
        """The most bytes that the value of `node` has as a text."""
        match node:
            case tree.Literal():
                return _literal_bytes(node.value)
            case tree.Attribute():
                self.steps += _ATTRIBUTE
                return MAX_EVENT_BYTES
            case tree.Call():
                return self._call(node)
            case tree.Exists():
                self.steps += _ATTRIBUTE
                return _NUMBER_BYTES
            case _:
                lengths = [self.value(each) for each in tree.children(node)]
                self.steps += _OPERATION + _operation_steps(node, lengths)
                return _NUMBER_BYTES

    def _call(self, node: tree.Call) -> int:
        lengths = [self.value(each) for each in node.arguments]
        self.steps += _CALL + _CAST * len(lengths)
        match node.name, lengths:
            case "LENGTH" | "ABS" | "INT" | "BOOL", _:
                return _NUMBER_BYTES
            case "LOWER" | "UPPER" | "TRIM", [length]:
                self.steps += _MAPPED_BYTE * length
                # Of two bytes LOWER makes three at most (U+023A), UPPER six (U+0390).
                return self._text(3 * length if node.name == "UPPER" else 3 * length // 2)
            case "LEFT" | "RIGHT", [length, _]:
                return self._text(_cut(length, node.arguments[1]))
            case "SUBSTRING", [length, _, *rest]:
                return self._text(_cut(length, node.arguments[2]) if rest else length)
            case "CONCAT_WS", [delimiter, *texts]:
                return self._text(sum(texts) + delimiter * max(0, len(texts) - 1))
            case _:
                return self._text(sum(lengths))

    def _text(self, length: int) -> int:
        """Count the making of a text of so many bytes."""
        self.steps += length
        self.longest = max(self.longest, length)
        return length


def _operation_steps(node: Node, lengths: list[int]) -> int:
    """The steps of an operator on operands of so many bytes. A cast to another type is of bounded length."""
    match node:
        case tree.Like():
            return _CAST + _search_steps(node.pattern, lengths[0])
        case tree.Comparison(
            operator="=" | "!=", left=tree.Attribute(), right=tree.Literal(type=Type.STRING)
        ):
            return lengths[1]
        case tree.Comparison(operator="=" | "!="):
            # Texts are compared as far as the shorter one goes.
            return 2 * _CAST + min(lengths)
        case tree.In(elements=elements) if all(isinstance(each, tree.Literal) for each in elements):
            # A text is looked up; a value of another type is compared with each that has a cast.
            return _CAST + _CAST * sum(_is_castable(each) for each in elements)
        case tree.In():
            return sum(_CAST + each for each in lengths)
        case tree.Logic():
            return _CAST * sum(isinstance(each, tree.Attribute | tree.Call) for each in tree.children(node))
        case _:
            return _CAST * len(lengths)


def _search_steps(pattern: str, length: int) -> int:
    """The steps of LIKE on a text of `length` bytes: the ends of the pattern are compared in place."""
    steps = len(pattern.encode("utf-8", "surrogatepass"))
    for part in parts(pattern)[1:-1]:
        size = sum(1 if isinstance(each, Wildcard) else len(each) for each in part)
        # The audit compares the part with each place of the text; so does a router if the part has `_`.
        has_one = Wildcard.ONE in part
        steps += length * (_SOUGHT_BYTE * size if has_one else max(_SOUGHT_BYTE, size))
    return steps


def _cut(length: int, count: Node) -> int:
    """The bytes of what LEFT, RIGHT or SUBSTRING takes of a text of `length` bytes."""
    if isinstance(count, tree.Literal) and count.type is Type.INTEGER:
        return min(length, _CHARACTER_BYTES * max(0, int(count.value)))
    return length


def _is_castable(literal: Node) -> bool:
    """Whether a literal can be read as a value of another type; never false for one that can."""
    text = attribute_text(literal.value) if isinstance(literal, tree.Literal) else ""
    return text.lstrip("+-")[:1].isdigit() or text.lower() in ("true", "false")


def _literal_bytes(value: AttributeValue) -> int:
    return len(attribute_text(value).encode("utf-8", "surrogatepass"))


def cost_problem(expression: Expression) -> tuple[str, str] | None:
    """Why `expression` cannot be (part of) a filter, and the remedy; None when it can."""
    found = cost(expression.tree)
    if found.nesting > MAX_FILTER_NESTING:
        return (
            f"functions and comparisons stand within each other {found.nesting} deep, "
            f"more than {MAX_FILTER_NESTING}",
            "join parts with AND and OR instead",
        )
    if found.longest > MAX_FILTER_TEXT_BYTES:
        return (
            f"it can make a text of {found.longest:,} bytes, more than {MAX_FILTER_TEXT_BYTES:,}",
            "join fewer texts, or the beginnings of them: LEFT(x, 100)",
        )
    return None
