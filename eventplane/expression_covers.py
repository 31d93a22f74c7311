"""The covers of an expression: terms that hold for every event that passes it.

Only what follows from the syntax: `type = 'x'`, `IN`, `LIKE` with a fixed beginning or end, the conjuncts
of `AND`, both sides of `OR`. Because of casts some comparisons imply less than they seem to: `'05' = a` holds
for the Integer 5 as well, and `a = 5` for the Strings `5`, `05`, `+5` and so on, which no lookup can list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventplane.attributes import REQUIRED, AttributeValue, attribute_text
from eventplane.cesql import tree
from eventplane.cesql.errors import CesqlCastError
from eventplane.cesql.operations import Type, cast, read
from eventplane.cesql.tree import Node
from eventplane.filters import Exact, Prefix, Suffix, Term

Cover = frozenset[Term]
"""Terms of a filter, one of which is true for every event that the filter matches.

A filter has several covers (one for each condition of an `all`), or none: then it is evaluated for every
event.
"""


def present(attribute: str) -> Term:
    """Return the weakest term: the event has the attribute."""
    return Prefix(attribute, "")


def weakness(cover: Cover) -> tuple[int, int, int]:
    """Return the key to sort covers by, the most selective first, without knowing the other routes."""
    shortest = min((len(term.value) for term in cover), default=0)
    return max(map(_kind, cover), default=0), len(cover), -shortest


def either(sides: Iterable[Iterable[Cover]]) -> Iterator[Cover]:
    """Yield the cover, if there is one, of a filter that matches where at least one of its `sides` does."""
    union: set[Term] = set()
    for covers in sides:
        best = min(covers, key=weakness, default=None)
        if best is None:
            return
        union |= best
    yield frozenset(union)


def _kind(term: Term) -> int:
    if isinstance(term, Exact):
        return 0
    return 1 if term.value else 2


def expression_covers(node: Node) -> Iterator[Cover]:
    """Yield the covers of `node` as a filter, which passes an event only if it is true without an error."""
    match node:
        case tree.Logic(operator="AND"):
            yield from expression_covers(node.left)
            yield from expression_covers(node.right)
            return
        case tree.Logic():
            # OR and XOR are true only where a side is.
            yield from either((expression_covers(node.left), expression_covers(node.right)))
            return
        case tree.Exists(name=name) if name not in REQUIRED:
            yield frozenset((present(name),))
        case tree.Comparison(
            operator="=", left=tree.Attribute(name=name), right=tree.Literal(value=str(text))
        ):
            yield frozenset((Exact(name, text),))
        case tree.Comparison(operator="=", left=tree.Literal(value=value), right=tree.Attribute(name=name)):
            yield _one_of(name, (value,))
        case tree.In(operand=tree.Attribute(name=name), elements=elements):
            literals = [each.value for each in elements if isinstance(each, tree.Literal)]
            if len(literals) == len(elements):
                yield _one_of(name, literals)
        case tree.Like(operand=tree.Attribute(name=name), pattern=pattern):
            yield from _like(name, pattern)
    yield from (frozenset((present(name),)) for name in _needed(node))


def _like(attribute: str, pattern: str) -> Iterator[Cover]:
    pieces = read(pattern) or ("",)
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1 and isinstance(first, str):
        yield frozenset((Exact(attribute, first),))
        return
    if isinstance(first, str):
        yield frozenset((Prefix(attribute, first),))
    if isinstance(last, str):
        yield frozenset((Suffix(attribute, last),))


def _one_of(attribute: str, values: Iterable[AttributeValue]) -> Cover:
    """Return the cover of an attribute that equals one of `values`, cast to its own unknown type."""
    return frozenset(Exact(attribute, text) for value in values for text in _spellings(value))


def _spellings(value: AttributeValue) -> Iterator[str]:
    yield attribute_text(value)
    for target in (Type.INTEGER, Type.BOOLEAN):
        try:
            yield attribute_text(cast(value, target))
        except CesqlCastError:
            continue


def _needed(node: Node) -> Iterator[str]:
    """Yield attributes without which `node` errs: all but AND, OR, XOR evaluate every operand."""
    if isinstance(node, tree.Attribute) and node.name not in REQUIRED:
        yield node.name
    elif not isinstance(node, tree.Logic):
        for each in tree.children(node):
            yield from _needed(each)
