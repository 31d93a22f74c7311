"""The tree of an expression as one column. The type of every part is known beforehand, but for extensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.cesql import CesqlGenericError, Expression, tree
from eventplane.cesql.casts import Type
from eventplane.cesql.tree import Node
from glue_jobs.delivery_audit.attributes import Attributes
from glue_jobs.delivery_audit.cesql import casts, operations
from glue_jobs.delivery_audit.cesql.context import Context, kind_of
from glue_jobs.delivery_audit.cesql.functions import FUNCTIONS, REUSING
from glue_jobs.delivery_audit.cesql.refusals import check

Reader = Callable[[Type], Column]
"""An operand, cast to the type that one asks for."""


def passes(expression: Expression, attributes: Attributes) -> Column:
    """Whether an event passes `expression`: true or false, never null.

    Raises `UnsupportedExpressionError` for what Spark cannot evaluate as the routers do.
    """
    check(expression)
    return _Translation(expression, Context(attributes)).root()


class _Translation:
    def __init__(self, expression: Expression, context: Context) -> None:
        self._expression = expression
        self._context = context

    def root(self) -> Column:
        """Only a Boolean true passes: a value of another type is not cast."""
        node = self._expression.tree
        if isinstance(node, tree.Attribute) and self._kind(node) is Type.ANY:
            is_true = self._context.by_type(
                node.name, lambda kind, value: value if kind is Type.BOOLEAN else None
            )
            return sf.coalesce(is_true, sf.lit(False))
        return self._holds(node) if self._kind(node) is Type.BOOLEAN else sf.lit(False)

    def _holds(self, node: Node) -> Column:
        """Whether `node` is true without an error; with Spark's own AND, which skips what cannot matter."""
        if isinstance(node, tree.Logic) and node.operator == "AND":
            return self._holds(node.left) & self._holds(node.right)
        return sf.coalesce(self._cast(node, Type.BOOLEAN), sf.lit(False))

    def _kind(self, node: Node) -> Type:
        match node:
            case tree.Literal():
                return node.type
            case tree.Attribute():
                return kind_of(node.name)
            case tree.Negate() | tree.Arithmetic():
                return Type.INTEGER
            case tree.Call():
                function = self._expression.functions.resolve(node.name, len(node.arguments))
                return function.result if function else Type.BOOLEAN
            case _:
                return Type.BOOLEAN

    def _cast(self, node: Node, target: Type) -> Column:
        """The value of `node`, cast to `target`, which is not ANY."""
        match node:
            case tree.Literal():
                return casts.constant(node.value, target)
            case tree.Attribute():
                return self._context.cast(node.name, target)
            case _:
                return casts.cast(self._value(node), self._kind(node), target)

    def _value(self, node: Node) -> Column:
        """The value of `node`; not of a literal or an attribute, which `_cast` reads in the type needed."""
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
            case tree.Not():
                return self._not(node.operand)
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
                raise CesqlGenericError(f"{type(node).__name__} is no condition", position=node.position)

    def _both(
        self, node: tree.Arithmetic | tree.Comparison | tree.Logic, kind: Type
    ) -> tuple[Column, Column]:
        return self._cast(node.left, kind), self._cast(node.right, kind)

    def _not(self, operand: Node) -> Column:
        """NOT takes no Integer, see docs/cesql.md."""
        kind = self._kind(operand)
        if kind is Type.INTEGER:
            return casts.failure(Type.BOOLEAN)
        if isinstance(operand, tree.Attribute) and kind is Type.ANY:
            return self._context.by_type(
                operand.name,
                lambda held, value: None if held is Type.INTEGER else ~casts.cast(value, held, Type.BOOLEAN),
            )
        return ~self._cast(operand, Type.BOOLEAN)

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
            return casts.failure(Type.BOOLEAN)
        types = function.types(arity)

        def run(readers: Sequence[Reader]) -> Column:
            return FUNCTIONS[node.name](*(read(kind) for read, kind in zip(readers, types, strict=True)))

        if node.name in REUSING:
            return self._shared(node.arguments, run)
        return run([partial(self._cast, each) for each in node.arguments])

    def _shared(self, nodes: Sequence[Node], body: Callable[[Sequence[Reader]], Column]) -> Column:
        """`body` of operands that it may use more than once: what takes work is computed before, once."""
        works = {
            at: each for at, each in enumerate(nodes) if not isinstance(each, tree.Literal | tree.Attribute)
        }
        if not works:
            return body([partial(self._cast, each) for each in nodes])
        values = sf.struct(*(self._value(each).alias(f"v{at}") for at, each in works.items()))

        def readers(held: Column) -> list[Reader]:
            return [
                partial(casts.cast, held[f"v{at}"], self._kind(each))
                if at in works
                else partial(self._cast, each)
                for at, each in enumerate(nodes)
            ]

        return casts.let(values, lambda held: body(readers(held)))
