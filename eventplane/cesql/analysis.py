"""Analyse an expression without any event.

`lint` warns about expressions that are correct and say something else than their author meant, `outcomes`
lists the results that are possible, `cost` bounds the work of an evaluation. An expression that is too costly
never becomes a filter, so device, routers and audit give the same answer for every event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from eventplane.attributes import REQUIRED, Attributes, AttributeValue, attribute_text
from eventplane.cesql import tree
from eventplane.cesql.errors import CesqlCastError, caret
from eventplane.cesql.expression import Expression, evaluate
from eventplane.cesql.operations import Type, Wildcard, cast, parts
from eventplane.cesql.parser import write
from eventplane.cesql.tree import Node, signature
from eventplane.limits import MAX_EVENT_BYTES, MAX_FILTER_NESTING, MAX_FILTER_TEXT_BYTES


@dataclass(frozen=True, slots=True)
class LintWarning:
    """A problem at `position` (characters from 0), its remedy, and the place with a caret under it."""

    position: int
    message: str
    remedy: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}\n{self.excerpt}"


def lint(expression: Expression) -> list[LintWarning]:
    """Return warnings about `expression` as a filter, in the order of the text."""
    found = [
        *_misread(expression.tree),
        *_unknown_calls(expression.tree),
        *_impossible_casts(expression.tree),
        *_constant(expression),
    ]
    return [_warning(expression, each) for each in sorted(found, key=lambda each: each[0])]


def missing_functions(expression: Expression) -> list[LintWarning]:
    """Return the calls of unknown functions: a contract refuses them, as they could only err."""
    return [_warning(expression, each) for each in _unknown_calls(expression.tree)]


def mixed_logic(expression: Expression) -> list[LintWarning]:
    """Return the places where AND, OR and XOR are mixed without parentheses: a contract refuses them.

    The text of the specification reads from left to right, as we do; the grammar beside it, and engines that
    are made of it, read from right to left.
    """
    return [_warning(expression, each) for each in _mixed_chains(expression.tree)]


_Finding = tuple[int, str, str]

_RANKS: tuple[tree.LogicOperator, ...] = ("AND", "XOR", "OR")


def _warning(expression: Expression, finding: _Finding) -> LintWarning:
    position, message, remedy = finding
    return LintWarning(position, message, remedy, caret(expression.text, position))


def _misread(root: Node) -> Iterator[_Finding]:
    """Yield precedence that few expect."""
    yield from _mixed_chains(root)
    for node in tree.walk(root):
        if isinstance(node, tree.Comparison | tree.Arithmetic | tree.Like | tree.In):
            inner = tree.children(node)[0]
            # `x NOT LIKE p` is a `LogicalNot` as well, but stands behind its operand.
            if (
                isinstance(inner, tree.LogicalNot)
                and not inner.grouped
                and inner.position < _start(inner.operand)
            ):
                yield (
                    inner.position,
                    "NOT binds to the next word only",
                    f"this means {write(node)}; group it",
                )


def _mixed_chains(root: Node) -> Iterator[_Finding]:
    linked: set[int] = set()
    for node in tree.walk(root):
        if not isinstance(node, tree.Logic) or id(node) in linked:
            continue
        links = [node]
        while isinstance(links[0].left, tree.Logic) and not links[0].left.grouped:
            links.insert(0, links[0].left)
        linked.update(map(id, links))
        operators = list(dict.fromkeys(each.operator for each in links))
        if len(operators) > 1:
            position = next(each.position for each in links if each.operator != operators[0])
            *others, last = operators
            yield position, f"{', '.join(others)} and {last} are mixed without parentheses", _readings(links)


def _readings(links: list[tree.Logic]) -> str:
    """Return the remedy for a chain of operators: the forms with parentheses of what it may mean."""
    operands = [links[0].left, *(each.right for each in links)]
    operators = [each.operator for each in links]
    left, right = write(links[-1]), write(_right_to_left(operands, operators))
    remedy = f"write {left} (from left to right, as it is read here) or {right} (from right to left)"
    by_rank = write(_by_rank(operands, operators))
    return remedy if by_rank in (left, right) else f"{remedy} or {by_rank} (AND first)"


def _right_to_left(operands: list[Node], operators: list[tree.LogicOperator]) -> Node:
    grouped = operands[-1]
    for operator, operand in zip(reversed(operators), reversed(operands[:-1]), strict=True):
        grouped = tree.Logic(operator, operand, grouped)
    return grouped


def _by_rank(operands: list[Node], operators: list[tree.LogicOperator]) -> Node:
    """Return the chain as in other languages: AND binds tighter than XOR, and XOR tighter than OR."""
    for rank in _RANKS:
        joined, rest = [operands[0]], []
        for operator, operand in zip(operators, operands[1:], strict=True):
            if operator == rank:
                joined[-1] = tree.Logic(operator, joined[-1], operand)
            else:
                joined.append(operand)
                rest.append(operator)
        operands, operators = joined, rest
    return operands[0]


def _unknown_calls(root: Node) -> Iterator[_Finding]:
    for node in tree.walk(root):
        if isinstance(node, tree.Call) and node.function is None:
            yield (
                node.position,
                f"there is no function {node.name} of {len(node.arguments)} argument(s)",
                "use one of the table in docs/reference/cesql.md",
            )


def _impossible_casts(root: Node) -> Iterator[_Finding]:
    """Yield literals that make every event err."""
    for node in tree.walk(root):
        for literal in bad_operands(node):
            yield (
                literal.position,
                f"{write(literal)} cannot be cast to what is needed here, so this always errs",
                "compare with = or LIKE, or give a literal of the right type",
            )


def _constant(expression: Expression) -> Iterator[_Finding]:
    """Yield filters, and parts of one, that have one outcome for all events."""
    root = expression.tree
    start = _start(root)
    kind = result_type(root)
    reachable = outcomes(root, {})
    if kind not in (Type.BOOLEAN, Type.ANY):
        yield (
            start,
            f"this gives a value of type {kind.value}, and only true passes",
            "compare it with something",
        )
    elif "true" not in reachable:
        yield start, "no event passes this filter", "remove the route or correct the condition"
    elif reachable == {"true"}:
        yield start, "every event passes this filter", "narrow it, or leave the condition out"
    else:
        yield from _constant_parts(root)


def _constant_parts(root: Node) -> Iterator[_Finding]:
    for node in tree.walk(root):
        if not isinstance(node, tree.Logic):
            continue
        for operand in (node.left, node.right):
            reachable = outcomes(operand, {})
            if reachable in ({"true"}, {"false"}):
                yield _start(operand), f"this part is always {next(iter(reachable))}", "remove it"


def result_type(node: Node) -> Type:
    """Return the type of the value of `node`; ANY for an attribute."""
    match node:
        case tree.Literal():
            return node.type
        case tree.Attribute():
            return Type.ANY
        case tree.Exists() | tree.Logic():
            return Type.BOOLEAN
        case _:
            return signature(node).result


def _start(node: Node) -> int:
    """Return where `node` begins: an operator's own position is behind its left operand."""
    return min(each.position for each in tree.walk(node))


Outcome = Literal["true", "false", "error"]

_ALL: frozenset[Outcome] = frozenset({"true", "false", "error"})
_NEGATION: dict[Outcome, Outcome] = {"true": "false", "false": "true", "error": "error"}


def outcomes(node: Node, known: Attributes) -> frozenset[Outcome]:
    """Return every outcome of `node` as a condition that an event with the `known` attributes could have.

    There may be one too many, never one too few: parts that share an unknown attribute count as independent.
    """
    if tree.names(node) <= known.keys():
        return frozenset({_exactly(node, known)})
    match node:
        case tree.LogicalNot():
            return frozenset(_NEGATION[each] for each in outcomes(node.operand, known))
        case tree.Logic():
            sides = outcomes(node.left, known), outcomes(node.right, known)
            return frozenset(_joined(node.operator, left, right) for left, right in product(*sides))
        case tree.Exists():
            return frozenset({"true"} if node.name in REQUIRED else {"true", "false"})
        case _:
            return frozenset({"error"}) if _must_err(node, known) else _ALL


def bad_operands(node: Node) -> list[tree.Literal]:
    """Return the literals under `node` that cannot be cast to what it needs."""
    if isinstance(node, tree.LogicalNot) and isinstance(node.operand, tree.Literal):
        # A cast could read an Integer and the operator still refuses it, see docs/reference/cesql.md.
        refused = node.operand.type is Type.INTEGER or _stuck(node.operand, Type.BOOLEAN)
        return [node.operand] if refused else []
    return [each for each, target in _needs(node) if isinstance(each, tree.Literal) and _stuck(each, target)]


def _exactly(node: Node, known: Attributes) -> Outcome:
    result = evaluate(node, known).as_condition()
    return "error" if result.errors else "true" if result.value else "false"


def _joined(operator: tree.LogicOperator, left: Outcome, right: Outcome) -> Outcome:
    if left == "error" or (operator, left) in {("AND", "false"), ("OR", "true")}:
        return left
    if right == "error" or operator != "XOR":
        return right
    return "false" if left == right else "true"


def _must_err(node: Node, known: Attributes) -> bool:
    if tree.names(node) <= known.keys():
        return bool(evaluate(node, known).errors)
    if isinstance(node, tree.LogicalNot | tree.Logic):
        return outcomes(node, known) == {"error"}
    if isinstance(node, tree.Call) and node.function is None:
        return True
    if bad_operands(node):
        return True
    return any(_must_err(each, known) for each in tree.children(node))


def _needs(node: Node) -> Sequence[tuple[Node, Type]]:
    """Return operands with the type that each is cast to; ANY where an attribute decides it."""
    match node:
        case tree.Comparison(operator="=" | "!=", right=tree.Literal() as right):
            return [(node.left, right.type)]
        case tree.Logic() | tree.LogicalNot():
            return [(each, Type.BOOLEAN) for each in tree.children(node)]
        case tree.In(operand=tree.Literal() as operand):
            return [(each, operand.type) for each in node.elements]
        case tree.Literal() | tree.Attribute() | tree.Exists():
            return []
        case _:
            return signature(node).operands


def _stuck(literal: tree.Literal, target: Type) -> bool:
    try:
        cast(literal.value, target)
    except CesqlCastError:
        return True
    return False


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
    """The most `steps` of an evaluation and the `longest` text that it builds, bytes of UTF-8.

    `nesting` is the depth of functions and comparisons within each other.
    """

    steps: int
    longest: int = 0
    nesting: int = 0


def cost(node: Node) -> Cost:
    """Return the cost of the expression `node` for an event of `MAX_EVENT_BYTES`.

    A function that is not built in counts as one that joins its arguments.
    """
    measure = _Measure()
    measure.value(node)
    return Cost(_START + measure.steps, measure.longest, nesting(node))


def nesting(node: Node) -> int:
    """Return the depth of functions and comparisons within each other."""
    below = max(map(nesting, tree.children(node)), default=0)
    return below + isinstance(node, tree.Call | tree.In | tree.Comparison)


class _Measure:
    def __init__(self) -> None:
        self.steps = 0
        self.longest = 0

    def value(self, node: Node) -> int:
        """Return the most bytes that the value of `node` has as a text."""
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
        """Count a text of `length` bytes that is built."""
        self.steps += length
        self.longest = max(self.longest, length)
        return length


def _operation_steps(node: Node, lengths: list[int]) -> int:
    """Return the steps of an operator on operands of these bytes. The length of casts is bounded."""
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
    """Return the steps of LIKE on a text of `length` bytes: the ends of the pattern are compared in place."""
    steps = len(pattern.encode("utf-8", "surrogatepass"))
    for part in parts(pattern)[1:-1]:
        size = sum(1 if isinstance(each, Wildcard) else len(each) for each in part)
        # The audit compares the part at each place of the text; so does a router if the part has `_`.
        has_one = Wildcard.ONE in part
        steps += length * (_SOUGHT_BYTE * size if has_one else max(_SOUGHT_BYTE, size))
    return steps


def _cut(length: int, count: Node) -> int:
    """Return the most bytes that LEFT, RIGHT or SUBSTRING returns of a text of `length` bytes."""
    if isinstance(count, tree.Literal) and count.type is Type.INTEGER:
        return min(length, _CHARACTER_BYTES * max(0, int(count.value)))
    return length


def _is_castable(literal: Node) -> bool:
    """Return whether a literal may be castable to another type; never false for one that is."""
    text = attribute_text(literal.value) if isinstance(literal, tree.Literal) else ""
    return text.lstrip("+-")[:1].isdigit() or text.lower() in ("true", "false")


def _literal_bytes(value: AttributeValue) -> int:
    return len(attribute_text(value).encode("utf-8", "surrogatepass"))


def cost_problem(expression: Expression) -> tuple[str, str] | None:
    """Return why `expression` is too costly for a filter, and the remedy; None if it is not."""
    found = cost(expression.tree)
    if found.nesting > MAX_FILTER_NESTING:
        return (
            f"functions and comparisons are nested {found.nesting} deep, more than {MAX_FILTER_NESTING}",
            "join parts with AND and OR instead",
        )
    if found.longest > MAX_FILTER_TEXT_BYTES:
        return (
            f"it can build a text of {found.longest:,} bytes, more than {MAX_FILTER_TEXT_BYTES:,}",
            "join fewer texts, or the beginnings of them: LEFT(x, 100)",
        )
    return None
