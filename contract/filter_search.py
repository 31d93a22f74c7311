"""Search for an event that gets an answer from filters: a decision procedure, over all events.

Of each attribute finitely many values stand for all others: those between which no filter can tell. Texts
are compared with patterns, and one automaton that runs all of them yields a text for each combination of
answers that any text gets. Numbers are compared with constants, and the numbers at these and beside them
stand for all. Where a filter does anything else with an attribute, such as a function, or text and number at
once, its values are samples: an event that is found counts, that none is found does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count
from string import ascii_lowercase, digits
from typing import Final

from eventplane.attributes import (
    REQUIRED,
    SEVERITY_NUMBERS,
    STRINGS,
    AttributeValue,
    attribute_text,
    value_problem,
)
from eventplane.cesql import tree, write
from eventplane.cesql.errors import CesqlCastError
from eventplane.cesql.operations import INTEGER_MAX, INTEGER_MIN, Pattern, Type, Wildcard, read, to_integer
from eventplane.envelope import write_event
from eventplane.errors import EnvelopeError
from eventplane.filters import Combination, Exact, Filter, Suffix, Term
from eventplane.hops import ROUTER_HOPS
from eventplane.names import (
    EPOCH,
    FOLLOWED_CONTRACT,
    LIFETIME_ATTRIBUTES,
    ORDER,
    ORDER_EPOCH,
    SENDER_DEVICE,
    SEQUENCE,
)

MAX_STATES: Final = 20_000
"""Most states of the automaton of an attribute. Ours: a second of computing."""

MAX_LOOKS: Final = 100_000
"""Most partial events that a search looks at. Ours: some seconds of computing."""

_WITNESSES: Final = 8
"""Texts that are kept of one combination of answers: an attribute's own rule may refuse some."""

_MOST_DOUBTS: Final = 3

_STAMPED: Final = frozenset(
    {EPOCH, SEQUENCE, FOLLOWED_CONTRACT, ORDER, ORDER_EPOCH, ROUTER_HOPS, *LIFETIME_ATTRIBUTES}
)
"""Attributes that the plane sets between two routers, so that both may see another value."""

_TYPED: Final = ("x", True, False, "true", "false")
_SAMPLES: Final = (
    "1999-09-09T09:09:09.999Z", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "urn:a:b",
    "application/json", "a long text, of 40 characters or more", 0, 1, True, "true", "1",
)  # fmt: skip

Value = AttributeValue | None
"""The value of an attribute; None: the event lacks it."""

Known = Mapping[str, Value]
Event = dict[str, AttributeValue]
Answers = Callable[[Known], frozenset[bool]]
"""Gives the answers that events with known attributes could get; too many rather than too few."""


@dataclass(frozen=True, slots=True)
class Values:
    """The `values` of one attribute to try; `problem`: why they do not stand for all others, or ''."""

    values: tuple[Value, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """The `event` that was found, as attributes. Without one, none exists unless there is a `problem`."""

    event: Event | None = None
    problem: str = ""


_DEVICE: Final = "home-1"
_UNNAMED: Final[Mapping[str, AttributeValue]] = {
    "specversion": "1.0", "id": "1", "source": "/counter-example", "type": "org.example.any",
}  # fmt: skip


def completed(event: Mapping[str, AttributeValue]) -> Event:
    """Return an event that was found, with the required attributes at which no filter looks."""
    return {**_UNNAMED, **event}


def at_routers(event: Mapping[str, AttributeValue], *, comes_up: bool) -> tuple[Event, Event] | None:
    """Return the attributes that the routers at home and in the cloud see; None for no valid event.

    At home no event has the device's name. In the cloud one that `comes_up` has.
    """
    try:
        above = dict(write_event(completed(event)).attributes)
    except EnvelopeError:
        return None
    at_home = {name: value for name, value in above.items() if name != SENDER_DEVICE}
    return at_home, {SENDER_DEVICE: _DEVICE, **above} if comes_up else above


@dataclass(slots=True)
class _Uses:
    """The comparisons of an attribute: with patterns, with constants by its own type, as number, as truth."""

    patterns: set[Pattern] = field(default_factory=set)
    by_type: set[AttributeValue] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    is_number: bool = False
    is_truth: bool = False
    others: list[str] = field(default_factory=list)


def search(
    filters: Iterable[Filter],
    answers: Answers,
    holds: Callable[[Event], bool],
    fixed: Known,
) -> Search:
    """Find an event with the `fixed` attributes that gets the answer False.

    `answers` is made of `filters`, and `holds` is whether a complete event is what is searched for; it
    refuses what is no valid event.
    """
    uses: dict[str, _Uses] = {}
    for each in filters:
        _collect(each, uses)
    domains = {name: _values(name, uses[name]) for name in sorted(uses.keys() - fixed.keys())}
    order = sorted(domains, key=lambda name: (bool(domains[name].problem), len(domains[name].values)))
    visit = _Visit([(name, domains[name]) for name in order], answers, holds)
    event = visit.event(fixed, 0)
    return Search(event, "" if event is not None else "; ".join([*visit.doubts][:_MOST_DOUBTS]))


class _Visit:
    """A visit of all combinations of values, without those whose answer is known before the last value.

    `doubts` are why the search may have missed an event.
    """

    def __init__(
        self, domains: Sequence[tuple[str, Values]], answers: Answers, holds: Callable[[Event], bool]
    ) -> None:
        self._domains = domains
        self._answers = answers
        self._holds = holds
        self._looks = 0
        self.doubts: dict[str, None] = {}

    def event(self, known: Known, depth: int) -> Event | None:
        """Return an event with what is `known`, and with values for the attributes from `depth` on."""
        self._looks += 1
        if self._looks > MAX_LOOKS:
            self.doubts[f"more than {MAX_LOOKS:,} combinations of values"] = None
            return None
        found = self._answers(known)
        if False not in found:
            return None
        if found == {False} or depth == len(self._domains):
            return self._held({name: value for name, value in known.items() if value is not None}, depth)
        name, domain = self._domains[depth]
        if domain.problem:
            self.doubts[domain.problem] = None
        events = (self.event({**known, name: value}, depth + 1) for value in domain.values)
        return next((each for each in events if each is not None), None)

    def _held(self, event: Event, depth: int) -> Event | None:
        if self._holds(event):
            return event
        if not any(each.problem for _, each in self._domains[:depth]):
            self.doubts["an event that was found is not valid"] = None
        return None


def _collect(filter: Filter, uses: dict[str, _Uses]) -> None:
    match filter:
        case Term(name, text):
            fixed: Pattern = (text,) if text else ()
            many = () if isinstance(filter, Exact) else (Wildcard.MANY,)
            _of(uses, name).patterns.add(many + fixed if isinstance(filter, Suffix) else fixed + many)
        case Combination():
            for each in filter.filters:
                _collect(each, uses)
        case _:
            _collect_sql(filter.tree, uses)


def _of(uses: dict[str, _Uses], name: str) -> _Uses:
    return uses.setdefault(name, _Uses())


def _collect_sql(node: tree.Node, uses: dict[str, _Uses]) -> None:
    match node:
        case tree.LogicalNot() | tree.Logic():
            for each in tree.children(node):
                _collect_sql(each, uses)
        case tree.Attribute(name=name):
            _of(uses, name).is_truth = True
        case tree.Like(operand=tree.Attribute(name=name), pattern=pattern):
            _of(uses, name).patterns.add(read(pattern))
        case tree.In(operand=tree.Attribute(name=name), elements=elements) if _literals(elements):
            _of(uses, name).by_type.update(each.value for each in elements if isinstance(each, tree.Literal))
        case tree.Comparison(
            operator="=" | "!=", left=tree.Literal() as constant, right=tree.Attribute(name=name)
        ):
            # The constant is cast to the attribute's type.
            _of(uses, name).by_type.add(constant.value)
        case (
            tree.Comparison(left=tree.Attribute(name=name), right=tree.Literal() as constant)
            | tree.Comparison(left=tree.Literal() as constant, right=tree.Attribute(name=name))
        ):
            _compare(_of(uses, name), node.operator, constant)
        case _:
            for name in tree.names(node):
                _of(uses, name).others += [] if isinstance(node, tree.Exists) else [write(node)]


def _literals(nodes: Sequence[tree.Node]) -> bool:
    return all(isinstance(each, tree.Literal) for each in nodes)


def _compare(uses: _Uses, operator: str, constant: tree.Literal) -> None:
    """Add a comparison that casts the attribute: to the type of the constant, or to a number."""
    is_equality = operator in ("=", "!=")
    if is_equality and constant.type is Type.STRING:
        uses.patterns.add((str(constant.value),) if constant.value else ())
    elif is_equality and constant.type is Type.BOOLEAN:
        uses.is_truth = True
    else:
        uses.is_number = True
        with suppress(CesqlCastError):  # otherwise it errs, whatever the attribute is
            uses.numbers.add(to_integer(constant.value))


def _values(name: str, uses: _Uses) -> Values:
    if name == "specversion":
        return Values(("1.0",))
    if name == "severitynumber":
        return Values((None, *SEVERITY_NUMBERS))
    if name == "deliveryguarantee":
        return Values((None, "best_effort"))
    if name in _STAMPED:
        return Values((None,), f"the plane sets {name} between its routers")
    found, problem = _compared(name, uses)
    if uses.others:
        problem = f"{uses.others[0]} is more than a comparison of {name} with constants"
    values = [value for value in found if value_problem(name, value) is None]
    if problem:
        values += [value for value in _SAMPLES if value_problem(name, value) is None]
    typed = {(each.__class__, each): each for each in values}
    absent = () if name in REQUIRED else (None,)
    return Values((*absent, *typed.values()), problem)


def _compared(name: str, uses: _Uses) -> tuple[list[AttributeValue], str]:
    """Return values that stand for all others as far as `uses` says, and else a problem."""
    is_typed = uses.is_number or uses.is_truth
    if uses.patterns or uses.by_type:
        try:
            found, problem = _texts(name, uses)
        except OverflowError:
            return [], f"the patterns of {name} make more than {MAX_STATES:,} states"
        if not is_typed:
            return found, problem
        return found + _numbers(uses), f"{name} is compared both as a text and as a number or a truth value"
    if is_typed:
        found = _numbers(uses)
        # The rule of an attribute may refuse those texts, and take others.
        is_free = all(value_problem(name, each) is None for each in found if isinstance(each, str))
    else:
        # Where only EXISTS asks for it, one value stands for all.
        found = [each for each in ("x", *_SAMPLES) if value_problem(name, each) is None][:1]
        is_free = bool(found)
    return found, "" if is_free else f"{name} has a form of its own"


def _numbers(uses: _Uses) -> list[AttributeValue]:
    """Return values that stand for all by their number, and by their truth value."""
    near = {number for each in {0, *uses.numbers} for number in (each - 1, each, each + 1)}
    numbers = [each for each in {*near, INTEGER_MIN, INTEGER_MAX} if INTEGER_MIN <= each <= INTEGER_MAX]
    return [*_TYPED, *sorted(numbers), *map(str, sorted(numbers))]


def _texts(name: str, uses: _Uses) -> tuple[list[AttributeValue], str]:
    """Return values that stand for all by their text, or by text and type. Raises OverflowError."""
    texts = {attribute_text(each) for each in uses.by_type}
    has_types = bool(uses.by_type) and name not in STRINGS
    if has_types:
        texts |= {"true", "false", *(text for each in uses.by_type for text in _spellings(each))}
    patterns = {*uses.patterns, *((each,) if each else () for each in texts)}
    found: list[AttributeValue] = [True, False] if has_types else []
    problem = ""
    for is_number, likes in _classes(sorted(patterns, key=repr), with_numbers=has_types):
        valid = [each for each in likes if value_problem(name, each) is None]
        found += valid[:1]
        if not valid and likes != [""]:
            problem = f"no text like {likes[0]!r:.60} has the form that {name} needs, as far as is known"
        if is_number:
            # A number has the same text, and another type.
            fitting = [int(each) for each in likes if INTEGER_MIN <= int(each) <= INTEGER_MAX]
            found += fitting[:1]
            problem = problem if fitting else f"no number like {likes[0]} was found for {name}"
    return found, problem


def _spellings(value: AttributeValue) -> Iterator[str]:
    """Yield the text of what a constant equals once it is cast to another type."""
    with suppress(CesqlCastError):
        yield str(to_integer(value))


def _classes(patterns: Sequence[Pattern], *, with_numbers: bool) -> Iterable[tuple[bool, list[str]]]:
    """Return texts for each combination of answers that `patterns` give to any text, shortest first.

    With them comes whether they are the texts of numbers. Raises OverflowError.
    """
    items = [tuple(_items(each)) for each in patterns]
    letters = {item for each in items for item in each if isinstance(item, str)}
    letters |= {*digits, "-"} if with_numbers else set()
    alphabet = [*sorted(letters), _other(letters)]
    start = (tuple((at, _closed(each, 1)) for at, each in enumerate(items)), "" if with_numbers else None)
    classes: dict[tuple[frozenset[int], bool], list[str]] = {}
    # Empty or not is part of a state: an attribute that may not be empty needs another text of the class.
    seen = {(start, True)}
    waiting = deque([(start, "")])
    while waiting:
        (states, number), text = waiting.popleft()
        taking = frozenset(at for at, state in states if state >> len(items[at]) & 1)
        is_number = number is not None and number not in ("", "-")
        texts = classes.setdefault((taking, is_number), [])
        if len(texts) < _WITNESSES:
            texts.append(text)
        for letter in alphabet:
            stepped = ((at, _step(items[at], state, letter)) for at, state in states)
            after = tuple(each for each in stepped if each[1]), _digits_step(number, letter)
            if (after, False) not in seen:
                if len(seen) == MAX_STATES:
                    raise OverflowError
                seen.add((after, False))
                waiting.append((after, text + letter))
    return [(is_number, texts) for (_, is_number), texts in classes.items()]


def _items(pattern: Pattern) -> Iterator[str | Wildcard]:
    for piece in pattern:
        yield from piece if isinstance(piece, str) else (piece,)


def _closed(items: Sequence[str | Wildcard], state: int) -> int:
    """Return the places of a pattern, one bit each, with those behind a wildcard that takes nothing."""
    for at, item in enumerate(items):
        if item is Wildcard.MANY and state >> at & 1:
            state |= 1 << (at + 1)
    return state


def _step(items: Sequence[str | Wildcard], state: int, letter: str) -> int:
    after = 0
    for at, item in enumerate(items):
        if state >> at & 1:
            if item is Wildcard.MANY:
                after |= 1 << at
            elif item is Wildcard.ONE or item == letter:
                after |= 1 << (at + 1)
    return _closed(items, after)


_MOST_DIGITS: Final = len(str(INTEGER_MAX))


def _digits_step(number: str | None, letter: str) -> str | None:
    """Return the form of a number so far: '', '-', '0', or a digit for its length. None: no number's text."""
    if number is None or number == "0" or (letter == "-" and number) or letter not in f"{digits}-":
        return None
    if letter == "-":
        return "-"
    if number in ("", "-"):
        return ("0" if not number else None) if letter == "0" else "1"
    return str(int(number) + 1) if int(number) < _MOST_DIGITS else None


def _other(letters: set[str]) -> str:
    """Return a character that stands for all that no pattern has."""
    free = chain(ascii_lowercase[::-1], digits, map(chr, count(0x100)))
    return next(each for each in free if each not in letters and each.isprintable())
