"""CESQL as Spark columns, without UDFs: the same trees that the routers compile to Python.

An expression that errs gives null: no CESQL value is null, and nearly every Spark function of null is null.
So an error ends the evaluation, as it does in the routers; AND, OR, IN and CONCAT_WS, where Spark would
ignore a null, are built from other functions. The type of each part is known beforehand, but for extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import REQUIRED, STRINGS
from eventplane.cesql import BUILTINS, CesqlGenericError, Expression, tree
from eventplane.cesql.analysis import nesting, result_type
from eventplane.cesql.operations import Type
from eventplane.cesql.tree import Node
from eventplane.limits import MAX_FILTER_NESTING
from glue_jobs.delivery_audit import cesql_operations as operations
from glue_jobs.delivery_audit.errors import UnsupportedExpressionError

NOT_ATTRIBUTES = frozenset({"data", "data_base64"})
"""Members of an event's JSON that are none of its attributes, though a filter may name them."""


@dataclass(frozen=True, slots=True)
class AttributeColumns:
    """The attributes of an event as columns by name, null where the event has none.

    `texts` has canonical strings: Spark's reader renders a Boolean as `true`, an Integer in decimals, as the
    core's `attribute_text` does. `integers` and `booleans` have a value only where the JSON has a number, or
    true or false, without quotes: 5 and "5" have one text, and are two things to CESQL.
    """

    texts: Mapping[str, Column]
    integers: Mapping[str, Column]
    booleans: Mapping[str, Column]

    @classmethod
    def read(cls, texts: Collection[str], typed: Collection[str]) -> AttributeColumns:
        """Return the attributes of the rows that `Archive.read` gives when it is asked for these names."""
        return cls(
            {name: sf.col("texts")[name] for name in texts},
            {name: sf.col("integers")[name] for name in typed},
            {name: sf.col("booleans")[name] for name in typed},
        )


Reader = Callable[[Type], Column]
"""An operand, cast to the type that is asked for."""


def passes(expression: Expression, attributes: AttributeColumns) -> Column:
    """Return whether an event passes `expression`: true or false, never null.

    Raises `UnsupportedExpressionError` for what Spark cannot evaluate as the routers do.
    """
    _check(expression)
    return _Translation(expression, _Context(attributes)).root()


class _Translation:
    def __init__(self, expression: Expression, context: _Context) -> None:
        self._expression = expression
        self._context = context

    def root(self) -> Column:
        """Return whether the value is a Boolean true: one of another type is not cast."""
        node = self._expression.tree
        if isinstance(node, tree.Attribute) and self._kind(node) is Type.ANY:
            is_true = self._context.by_type(
                node.name, lambda kind, value: value if kind is Type.BOOLEAN else None
            )
            return sf.coalesce(is_true, sf.lit(False))
        return self._holds(node) if self._kind(node) is Type.BOOLEAN else sf.lit(False)

    def _holds(self, node: Node) -> Column:
        """Return whether `node` is true without an error, by Spark's own AND, which skips the right side."""
        if isinstance(node, tree.Logic) and node.operator == "AND":
            return self._holds(node.left) & self._holds(node.right)
        return sf.coalesce(self._cast(node, Type.BOOLEAN), sf.lit(False))

    def _kind(self, node: Node) -> Type:
        if isinstance(node, tree.Attribute) and node.name in STRINGS:
            return Type.STRING
        return result_type(node, self._expression.functions)

    def _cast(self, node: Node, target: Type) -> Column:
        """Return the value of `node`, cast to `target`, which is not ANY."""
        match node:
            case tree.Literal():
                return operations.constant(node.value, target)
            case tree.Attribute():
                return self._context.cast(node.name, target)
            case _:
                return operations.cast(self._value(node), self._kind(node), target)

    def _value(self, node: Node) -> Column:
        """Return the value of `node`; of a literal or an attribute `_cast` does, in the type needed."""
        match node:
            case tree.Negate():
                return sf.try_subtract(sf.lit(0), self._cast(node.operand, Type.INTEGER))
            case tree.Arithmetic():
                return operations.ARITHMETIC[node.operator](*self._both(node, Type.INTEGER))
            case tree.Call():
                return self._call(node)
            case _:
                return self._condition(node)

    def _condition(self, node: Node) -> Column:
        match node:
            case tree.Exists():
                return self._context.exists(node.name)
            case tree.Not(operand=tree.Literal(type=Type.INTEGER)):
                # An error, see docs/reference/cesql.md.
                return operations.failure(Type.BOOLEAN)
            case tree.Not():
                return ~self._cast(node.operand, Type.BOOLEAN)
            case tree.Comparison(operator="=" | "!="):
                same = self._equal(node.left, node.right)
                return same if node.operator == "=" else ~same
            case tree.Comparison():
                return operations.COMPARE[node.operator](*self._both(node, Type.INTEGER))
            case tree.Logic():
                return operations.LOGIC[node.operator](*self._both(node, Type.BOOLEAN))
            case tree.Like():
                return operations.like(self._cast(node.operand, Type.STRING), node.pattern)
            case tree.In():
                return self._in(node)
            case _:
                raise CesqlGenericError(f"{type(node).__name__} is not a condition", position=node.position)

    def _both(
        self, node: tree.Arithmetic | tree.Comparison | tree.Logic, kind: Type
    ) -> tuple[Column, Column]:
        return self._cast(node.left, kind), self._cast(node.right, kind)

    def _equal(self, left: Node, right: Node) -> Column:
        kind = self._kind(right)
        if kind is not Type.ANY:
            return self._cast(left, kind) == self._cast(right, kind)
        return self._shared([left], lambda readers: self._by_type(right, lambda k, v: readers[0](k) == v))

    def _in(self, node: tree.In) -> Column:
        literals = [each.value for each in node.elements if isinstance(each, tree.Literal)]
        others = [each for each in node.elements if not isinstance(each, tree.Literal)]
        kind = self._kind(node.operand)
        if not others and kind is not Type.ANY:
            return operations.contains(kind, self._cast(node.operand, kind), literals, [])

        def found(readers: Sequence[Reader]) -> Column:
            operand, *elements = readers

            def among(kind: Type, value: Column) -> Column:
                return operations.contains(kind, value, literals, [element(kind) for element in elements])

            return self._by_type(node.operand, among) if kind is Type.ANY else among(kind, operand(kind))

        return self._shared([node.operand, *others], found)

    def _by_type(self, node: Node, body: Callable[[Type, Column], Column]) -> Column:
        assert isinstance(node, tree.Attribute)  # noqa: S101 - nothing else has the type ANY
        return self._context.by_type(node.name, body)

    def _call(self, node: tree.Call) -> Column:
        arity = len(node.arguments)
        function = self._expression.functions.resolve(node.name, arity)
        if function is None:
            return operations.failure(Type.BOOLEAN)
        types = function.types(arity)

        def run(readers: Sequence[Reader]) -> Column:
            return operations.FUNCTIONS[node.name](
                *(read(kind) for read, kind in zip(readers, types, strict=True))
            )

        if node.name in operations.REUSING:
            return self._shared(node.arguments, run)
        return run([partial(self._cast, each) for each in node.arguments])

    def _shared(self, nodes: Sequence[Node], body: Callable[[Sequence[Reader]], Column]) -> Column:
        """Return `body` of operands that it may use repeatedly; those that take work are computed once."""
        works = {
            at: each for at, each in enumerate(nodes) if not isinstance(each, tree.Literal | tree.Attribute)
        }
        if not works:
            return body([partial(self._cast, each) for each in nodes])
        values = sf.struct(*(self._value(each).alias(f"v{at}") for at, each in works.items()))

        def readers(held: Column) -> list[Reader]:
            return [
                partial(operations.cast, held[f"v{at}"], self._kind(each))
                if at in works
                else partial(self._cast, each)
                for at, each in enumerate(nodes)
            ]

        return operations.let(values, lambda held: body(readers(held)))


class _Context:
    """Operands of an expression from `attributes`; an absent one is null, an error.

    Some are Strings by their definition. An extension may be a String in one event, an Integer in the next.
    """

    def __init__(self, attributes: AttributeColumns) -> None:
        self._attributes = attributes

    def exists(self, name: str) -> Column:
        """Return whether the event has the attribute."""
        if name in REQUIRED or name in NOT_ATTRIBUTES:
            return sf.lit(name in REQUIRED)
        return self._attributes.texts[name].isNotNull()

    def cast(self, name: str, target: Type) -> Column:
        """Return the attribute's value, cast to `target`."""
        if name in NOT_ATTRIBUTES:
            return operations.failure(target)
        by_text = operations.cast(self._attributes.texts[name], Type.STRING, target)
        if name in STRINGS or target is Type.STRING:
            return by_text
        # An Integer's text reads as this Integer and a Boolean's as this Boolean; the other way it does not.
        other = self._attributes.booleans if target is Type.INTEGER else self._attributes.integers
        return sf.coalesce(other[name].cast(operations.SPARK_TYPES[target]), by_text)

    def by_type(self, name: str, body: Callable[[Type, Column], Column | None]) -> Column:
        """Return `body` of an extension's type and value; null, an error, for a type that returns None."""
        result = sf.when(sf.lit(False), operations.failure(Type.BOOLEAN))
        if name in NOT_ATTRIBUTES:
            return result
        held = self._attributes
        # In this order, as the text is there in all three cases.
        for kind, column in (
            (Type.INTEGER, held.integers[name]),
            (Type.BOOLEAN, held.booleans[name]),
            (Type.STRING, held.texts[name]),
        ):
            given = body(kind, column)
            result = result.when(
                column.isNotNull(), operations.failure(Type.BOOLEAN) if given is None else given
            )
        return result


def _check(expression: Expression) -> None:
    """Raises `UnsupportedExpressionError`."""
    try:
        expression.text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedExpressionError(expression.text, "half a surrogate pair", "remove it") from error
    if nesting(expression.tree) > MAX_FILTER_NESTING:
        what = f"more than {MAX_FILTER_NESTING} functions and comparisons within each other"
        raise UnsupportedExpressionError(expression.text, what, "join parts with AND and OR instead")
    for node in tree.walk(expression.tree):
        if isinstance(node, tree.Call):
            called = node.name, len(node.arguments)
            if expression.functions.resolve(*called) is not BUILTINS.resolve(*called):
                what = f"a {node.name} of its own"
                raise UnsupportedExpressionError(expression.text, what, "use the built-in functions only")
