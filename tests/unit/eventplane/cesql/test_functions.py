"""Tables of functions, and functions of one's own."""

import pytest

from eventplane.cesql import (
    BUILTINS,
    CesqlFunctionEvaluationError,
    CesqlGenericError,
    Function,
    Functions,
    parse,
)
from eventplane.cesql.operations import Type


def home(source: str) -> str:
    if not source.startswith("/homes/"):
        raise CesqlFunctionEvaluationError("HOME: no home; test the source first")
    return source.split("/")[2]


HOME = Function("HOME", (Type.STRING,), Type.STRING, home)
JOINED = Function(
    "J", (Type.STRING, Type.INTEGER), Type.INTEGER, lambda *values: len(values), rest=Type.STRING
)
UNARY = Function("J", (Type.STRING,), Type.INTEGER, len)


def test_a_function_of_ones_own() -> None:
    expression = parse("home(source) = 17", BUILTINS.extended(HOME))
    assert expression.matches({"source": "/homes/17/voice"})
    assert not expression.matches({"source": "/cloud"})
    result = expression.evaluate({"source": "/cloud"})
    assert (result.value, [error.kind for error in result.errors]) == (False, ["functionEvaluation"])
    assert BUILTINS.resolve("HOME", 1) is None


def test_dispatch_by_arity() -> None:
    table = Functions((UNARY, JOINED))
    attributes = {"a": "abc"}
    assert parse("J(a) = 3", table).matches(attributes)
    assert parse("J(a, 1, a, a) = 4", table).matches(attributes)
    assert parse("J()", table).evaluate(attributes).errors[0].kind == "missingFunction"


@pytest.mark.parametrize(
    "functions",
    [
        (HOME, HOME),
        (JOINED, JOINED),
        (JOINED, Function("J", (Type.STRING,) * 2, Type.INTEGER, max)),
        (Function("CONCAT", (Type.STRING,), Type.STRING, str), *[BUILTINS.resolve("CONCAT", 0)]),
        (Function("home", (), Type.STRING, str),),
    ],
)
def test_tables_that_cannot_be(functions: tuple[Function, ...]) -> None:
    with pytest.raises(CesqlGenericError):
        Functions(functions)
