"""Compile an expression to one Python function that returns whether an event passes.

The function is built from syntax nodes, never from text, so that nothing in an expression can become code.
It stops at the first error, because an event that errs does not pass. Up to there it does what `evaluate`
does, operand by operand, so both agree on every event; a property test compares them.

A cast costs nothing where the types are known: `type = 'x'` needs none, because no Integer or Boolean is
written `x`. Elsewhere the value's class decides.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from eventplane.attributes import REQUIRED, Attributes, AttributeValue, attribute_text
from eventplane.cesql import operations, tree
from eventplane.cesql.errors import CesqlError, CesqlGenericError
from eventplane.cesql.operations import Type, Wildcard, matcher, read, to_boolean, to_integer
from eventplane.cesql.tree import Node, signature

_CLASSES: dict[Type, tuple[str, Callable[[Any], AttributeValue]]] = {
    Type.STRING: ("str", attribute_text),
    Type.INTEGER: ("int", to_integer),
    Type.BOOLEAN: ("bool", to_boolean),
}
_COMPARE: dict[str, ast.cmpop] = {
    "=": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}


def compile_filter(node: Node) -> Callable[[Attributes], bool]:
    """Return a function of an event's attributes that returns whether it passes, and raises nothing."""
    translation = _Translation()
    body = ast.Try(
        body=[ast.Return(translation.root(node))],
        handlers=[
            ast.ExceptHandler(
                type=ast.Tuple([_name("KeyError"), translation.bind(CesqlError)], ast.Load()),
                body=[ast.Return(ast.Constant(False))],
            )
        ],
        orelse=[],
        finalbody=[],
    )
    return translation.function(body)


class _Translation:
    def __init__(self) -> None:
        self._bound: dict[str, Any] = {}
        self._variables = 0

    def function(self, body: ast.stmt) -> Callable[[Attributes], bool]:
        """Return `def cesql(a): body` with the bound names as globals. The module around it never runs."""
        argument = ast.arguments(
            posonlyargs=[], args=[ast.arg("a")], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        definition = ast.FunctionDef("cesql", argument, [body], decorator_list=[])
        module = ast.fix_missing_locations(ast.Module([definition], type_ignores=[]))
        code = compile(module, "<cesql>", "exec", dont_inherit=True)
        inner = next(each for each in code.co_consts if isinstance(each, CodeType))
        return FunctionType(inner, self._bound)

    def bind(self, value: object) -> ast.expr:
        """Return a name in the generated function for a value that cannot be a constant."""
        name = f"b{len(self._bound)}"
        self._bound[name] = value
        return _name(name)

    def root(self, node: Node) -> ast.expr:
        """Only a Boolean true passes: a value of another type is not cast."""
        value, kind = self._value(node)
        if kind is Type.ANY:
            return _compare(value, ast.Is(), ast.Constant(True))
        return value if kind is Type.BOOLEAN else ast.Constant(False)

    def _value(self, node: Node) -> tuple[ast.expr, Type]:
        """Return what computes the value of `node`, and its type."""
        match node:
            case tree.Literal():
                return ast.Constant(node.value), node.type
            case tree.Attribute():
                return _attribute(node.name), Type.ANY
            case tree.Negate() | tree.Arithmetic() | tree.Call():
                found = signature(node)
                operands = [self._as(each, target) for each, target in found.operands]
                return self._call(found.run, *operands), found.result
            case _:
                return self._condition(node), Type.BOOLEAN

    def _condition(self, node: Node) -> ast.expr:
        match node:
            case tree.Exists():
                present = _compare(ast.Constant(node.name), ast.In(), _name("a"))
                return ast.Constant(True) if node.name in REQUIRED else present
            case tree.LogicalNot():
                return self._not(node)
            case tree.Logic():
                return self._logic(node)
            case tree.Comparison(operator="=" | "!="):
                return self._equality(node)
            case tree.Comparison():
                left, right = (self._as(each, Type.INTEGER) for each in (node.left, node.right))
                return _compare(left, _COMPARE[node.operator], right)
            case tree.Like():
                return self._like(node)
            case tree.In():
                return self._in(node)
            case _:
                raise CesqlGenericError(f"{type(node).__name__} is not a condition", position=node.position)

    def _as(self, node: Node, target: Type) -> ast.expr:
        """Return `node` cast to `target`."""
        value, kind = self._value(node)
        if target in (kind, Type.ANY):
            return value
        wanted, to_target = _CLASSES[target]
        if kind is not Type.ANY:
            return self._call(to_target, value)
        variable = self._variable()
        return _if_class(variable, value, wanted, _name(variable), self._call(to_target, _name(variable)))

    def _not(self, node: tree.LogicalNot) -> ast.expr:
        if isinstance(node.operand, tree.Literal) and node.operand.type is Type.INTEGER:
            return self._call(operations.refuse_integer, ast.Constant(node.operand.value))
        return ast.UnaryOp(ast.Not(), self._as(node.operand, Type.BOOLEAN))

    def _logic(self, node: tree.Logic) -> ast.expr:
        left, right = self._as(node.left, Type.BOOLEAN), self._as(node.right, Type.BOOLEAN)
        if node.operator == "XOR":
            return _compare(left, ast.IsNot(), right)
        return ast.BoolOp(ast.And() if node.operator == "AND" else ast.Or(), [left, right])

    def _equality(self, node: tree.Comparison) -> ast.expr:
        right, kind = self._value(node.right)
        compare = _COMPARE[node.operator]
        if isinstance(node.left, tree.Attribute) and _only_text(node.right):
            return _compare(_attribute(node.left.name), compare, right)
        if kind is not Type.ANY:
            return _compare(self._as(node.left, kind), compare, right)
        same = self._call(operations.equal, self._value(node.left)[0], right)
        return same if node.operator == "=" else ast.UnaryOp(ast.Not(), same)

    def _like(self, node: tree.Like) -> ast.expr:
        match read(node.pattern):
            case ():
                return self._equality(tree.Comparison("=", node.operand, tree.Literal("")))
            case (str(text),):
                return self._equality(tree.Comparison("=", node.operand, tree.Literal(text)))
            case (str(text), Wildcard.MANY):
                return _method(self._as(node.operand, Type.STRING), "startswith", text)
            case (Wildcard.MANY, str(text)):
                return _method(self._as(node.operand, Type.STRING), "endswith", text)
            case (Wildcard.MANY, str(text), Wildcard.MANY):
                return _compare(ast.Constant(text), ast.In(), self._as(node.operand, Type.STRING))
            case _:
                return self._call(matcher(node.pattern), self._as(node.operand, Type.STRING))

    def _in(self, node: tree.In) -> ast.expr:
        value = self._value(node.operand)[0]
        elements = [self._value(each)[0] for each in node.elements]
        literals = [each.value for each in node.elements if isinstance(each, tree.Literal)]
        if len(literals) < len(elements):
            return self._call(operations.contains, value, *elements)
        # Python makes a constant of it.
        texts = ast.Set([ast.Constant(attribute_text(each)) for each in literals])
        variable = self._variable()
        return _if_class(
            variable,
            value,
            "str",
            _compare(_name(variable), ast.In(), texts),
            self._call(operations.contains, _name(variable), *elements),
        )

    def _call(self, function: Callable[..., object], *arguments: ast.expr) -> ast.expr:
        return ast.Call(self.bind(function), list(arguments), [])

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"


def _only_text(node: Node) -> bool:
    """Return whether `node` is a text that is not the canonical string of any Integer or Boolean."""
    if not isinstance(node, tree.Literal) or not isinstance(node.value, str):
        return False
    return node.value not in ("true", "false") and not node.value.lstrip("-").isdecimal()


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _attribute(name: str) -> ast.expr:
    return ast.Subscript(_name("a"), ast.Constant(name), ast.Load())


def _compare(left: ast.expr, how: ast.cmpop, right: ast.expr) -> ast.expr:
    return ast.Compare(left, [how], [right])


def _method(value: ast.expr, method: str, argument: str) -> ast.expr:
    return ast.Call(ast.Attribute(value, method, ast.Load()), [ast.Constant(argument)], [])


def _if_class(variable: str, value: ast.expr, wanted: str, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    """Return `then if (variable := value).__class__ is wanted else otherwise`."""
    assigned = ast.NamedExpr(ast.Name(variable, ast.Store()), value)
    held = ast.Attribute(assigned, "__class__", ast.Load())
    return ast.IfExp(_compare(held, ast.Is(), _name(wanted)), then, otherwise)
