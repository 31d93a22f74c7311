"""What the operators do with values of the right type. Both evaluators stand on these."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from eventplane.attributes import AttributeValue
from eventplane.cesql.casts import INTEGER_MAX, INTEGER_MIN, cast, to_boolean, type_of
from eventplane.cesql.errors import CesqlCastError, CesqlMathError

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def divide(left: int, right: int) -> int:
    """The quotient, rounded towards zero; raises CesqlMathError."""
    if right == 0:
        raise CesqlMathError("division by zero; test the divisor first")
    quotient = abs(left) // abs(right)
    return checked(quotient if (left < 0) == (right < 0) else -quotient)


def remainder(left: int, right: int) -> int:
    """The remainder of that division, with the sign of `left`; raises CesqlMathError."""
    if right == 0:
        raise CesqlMathError("remainder of a division by zero; test the divisor first")
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def checked(number: int) -> int:
    """`number`, if 32 bits hold it; raises CesqlMathError. The specification leaves overflow open."""
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    raise CesqlMathError(f"the result {number} is no 32 bit Integer")


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "*": lambda left, right: checked(left * right),
    "/": divide,
    "%": remainder,
    "+": lambda left, right: checked(left + right),
    "-": lambda left, right: checked(left - right),
}


def negate(number: int) -> int:
    """-number; raises CesqlMathError for the one Integer that has no opposite."""
    return checked(-number)


def invert(value: AttributeValue) -> bool:
    """NOT value; raises CesqlCastError, for an Integer too, and then stands for true.

    The text casts an Integer to a Boolean; the conformance case "Invalid int cast" wants this instead.
    """
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        raise CesqlCastError(f"NOT takes no Integer; write {value} = 0 or NOT BOOL({value})", value=True)
    try:
        return not to_boolean(value)
    except CesqlCastError as error:
        error.value = True
        raise


def equal(left: AttributeValue, right: AttributeValue) -> bool:
    """Whether `left`, cast to the type of `right`, is `right`; raises CesqlCastError."""
    return cast(left, type_of(right)) == right


def contains(value: AttributeValue, elements: Iterable[AttributeValue]) -> bool:
    """Whether an element, cast to the type of `value`, is `value`; raises CesqlCastError.

    Every element is cast, also after one that is equal: a Set has no order, so an answer must not rest on it.
    """
    target = type_of(value)
    return value in [cast(element, target) for element in elements]
