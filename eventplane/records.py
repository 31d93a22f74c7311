"""Records: keyed, versioned values that are written only over what was read. No I/O.

A record is a frozen dataclass with a `revision`, which grows with each write; 0 before the first. One that is
deleted and made anew begins with another revision, so that it is not mistaken for the one before. Every
change is made in the same way: read it, decide, write its successor unless it was written meanwhile. The
codec writes a dataclass as an item of DynamoDB by the types of its fields; `Tables` keeps items, in
`eventplane_aws` in DynamoDB.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from eventplane.errors import EventPlaneError

Item = dict[str, dict[str, Any]]
"""An item as DynamoDB's low-level API has it: a typed value by attribute."""

NEW: Final = 0
"""The revision of a record that was never written: its key has to be free."""

UNCOUNTED: Final = -1
"""The revision of an item that has none: it was last written before 0.4.0."""

REVISION: Final = "revision"

ATTEMPTS: Final = 5
"""Most tries of a change. Ours: two writers of one record at the same time are rare."""


class RecordError(EventPlaneError):
    """The item `item` is no `kind`. `problem` says why."""

    kind: str
    item: str
    problem: str
    message = "no {kind} can be read of {item}: {problem}; correct the item or delete it"


class ConflictError(EventPlaneError):
    """Others wrote the record `key` of `table` each time that it was read."""

    table: str
    key: tuple[str, ...]
    message = "the record {key} of {table} keeps changing; try again"


class Record(Protocol):
    """A frozen dataclass whose `revision` grows with its writes."""

    @property
    def revision(self) -> int: ...


R = TypeVar("R", bound=Record)


# The codec.


def to_attribute(value: Any) -> dict[str, Any]:
    """Return `value` as a typed attribute. Raises TypeError for what no attribute holds."""
    match value:
        case bool():
            return {"BOOL": value}
        case Enum():
            return to_attribute(value.value)
        case int() | float():
            return {"N": repr(value)}
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
        case frozenset():
            return {"SS": sorted(value)}
        case Mapping():
            return {"M": {name: to_attribute(each) for name, each in value.items()}}
        case _ if is_dataclass(value) or hasattr(value, "_fields"):
            return {"M": _members(value)}
        case Sequence():
            return {"L": [to_attribute(each) for each in value]}
    raise TypeError(f"no attribute holds {type(value).__name__}")


def _members(value: Any, names: Collection[str] | None = None) -> Item:
    """Return the members of `value` as attributes, by default all."""
    # What is left out is read as the default; DynamoDB has no empty sets anyway. 0.3.0 has no defaults for
    # these types.
    defaults = _defaults(value.__class__)
    given = ((name, getattr(value, name)) for name in names or defaults)
    return {
        name: to_attribute(each)
        for name, each in given
        if each is not None and (isinstance(each, _KEPT) or each != defaults[name])
    }


_KEPT: Final = (int, float, Enum)
"""The types of which a default is written too."""


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return the default by member of a dataclass or named tuple; `MISSING` for none."""
    if is_dataclass(kind):
        return {each.name: each.default for each in fields(kind)}
    return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}


@cache
def _reader(hint: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return what reads an attribute as a value of the type `hint`, or raises what is wrong with it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return _reader(inner)
    if origin is tuple:
        return lambda attribute: tuple(map(_reader(arguments[0]), attribute["L"]))
    if origin is frozenset:
        return lambda attribute: frozenset(attribute["SS"])
    if origin is not None:  # a mapping
        return lambda attribute: {name: _reader(arguments[1])(each) for name, each in attribute["M"].items()}
    if hint is bool:
        return lambda attribute: bool(attribute["BOOL"])
    if issubclass(hint, Enum):
        inner = int if issubclass(hint, int) else str
        return lambda attribute: hint(_reader(inner)(attribute))
    if issubclass(hint, int | float):
        return lambda attribute: hint(attribute["N"])
    if issubclass(hint, str):
        return lambda attribute: str(attribute["S"])
    if issubclass(hint, bytes):
        return lambda attribute: bytes(attribute["B"])
    return lambda attribute: _structure(hint, attribute["M"])


def _structure(kind: Any, item: Mapping[str, Mapping[str, Any]]) -> Any:
    given = {name: read(item[name]) for name, read in _readers(kind) if name in item}
    return kind(**_nothing(kind) | given)


@cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...]:
    """Return what reads each member of `kind`: to look up a type each time takes longer than to read it."""
    return tuple((name, _reader(hint)) for name, hint in _hints(kind).items())


@cache
def _nothing(kind: Any) -> dict[str, None]:
    """Return None by member of `kind` that has no default and may be None."""
    defaults, hints = _defaults(kind), _hints(kind)
    return {name: None for name in hints if defaults[name] is MISSING and type(None) in get_args(hints[name])}


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind(Generic[R]):
    """The form in which records of the dataclass `type` are kept.

    `key` names the attributes of the primary key; `derived` are attributes besides the fields, such as keys
    of an index: what gives each of them for a record, None for none. Of the fields those in `written` are
    attributes, by default all. `upgrade` makes an item of today out of one of an earlier version.
    """

    type: type[R]
    key: tuple[str, ...]
    derived: Mapping[str, Callable[[R], str | int | Mapping[str, int] | None]] = field(default_factory=dict)
    written: Collection[str] | None = None
    upgrade: Callable[[Item], Item] = lambda item: item

    def to_item(self, record: R) -> Item:
        """Return `record` as an item."""
        derived = {name: derive(record) for name, derive in self.derived.items()}
        key = {name: getattr(record, name) for name in self.key if name not in derived}
        others = {name: to_attribute(each) for name, each in (derived | key).items() if each is not None}
        return _members(record, self.written) | others

    def from_item(self, item: Item) -> R:
        """Return the record in `item`. Raises `RecordError`."""
        try:
            found: R = _structure(self.type, {REVISION: {"N": UNCOUNTED}, **self.upgrade(item)})
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration, EventPlaneError) as error:
            raise RecordError(self.type.__name__, str(item)[:200], repr(error)) from error
        return found

    def key_in(self, item: Item) -> Item:
        """Return the primary key of `item`."""
        return {name: item[name] for name in self.key}

    def key_of(self, *key: str) -> Item:
        """Return the primary key with these values."""
        return {name: {"S": value} for name, value in zip(self.key, key, strict=True)}

    def values_in(self, item: Item) -> tuple[str, ...]:
        """Return the values of the primary key of `item`."""
        return tuple(item[name]["S"] for name in self.key)


# Where items lie.


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a write: an item of this `revision` at its key, whose first attribute is `key`."""

    revision: int
    key: str

    def holds(self, item: Item | None) -> bool:
        """Return whether `item`, None for none, is what the writer had read."""
        if self.revision == NEW or item is None:
            return (self.revision == NEW) is (item is None)
        return int(item.get(REVISION, {"N": UNCOUNTED})["N"]) == self.revision


@dataclass(frozen=True, slots=True)
class Selection:
    """Items whose attribute `partition` has the value `of`, by their attribute `sort`; by default all.

    `until`, and with it `since`, bound its values, and are included. `index` is where they are looked up,
    None for the table itself. `after` is where the page before ended.
    """

    partition: str | None = None
    of: str | int = ""
    sort: str | None = None
    until: str | int | None = None
    index: str | None = None
    is_consistent: bool = True
    limit: int | None = None
    after: Item | None = None
    since: int | None = None

    def takes(self, item: Item) -> bool:
        """Return whether `item` is one of them."""
        if self.partition is None:
            return True
        if self.partition not in item or value_of(item[self.partition]) != self.of:
            return False
        if self.sort is None:
            return True
        if self.sort not in item:
            return False  # an index has only items with both of its keys
        value: Any = value_of(item[self.sort])
        return self.until is None or (value <= self.until and (self.since is None or value >= self.since))


@dataclass(frozen=True, slots=True)
class Page:
    """Some items, of an index their keys only; `after` is where the next page begins, None at the end."""

    items: tuple[Item, ...]
    after: Item | None


class Tables(Protocol):
    """Keeps items by table. Reads of tables see all writes that were acknowledged before."""

    def first(self) -> int:
        """Return a revision for a new item, which an earlier one at the same key did not have."""

    def get(self, table: str, key: Item) -> Item | None:
        """Return the item at `key`."""

    def get_many(
        self, table: str, keys: Sequence[Item], *, is_consistent: bool
    ) -> tuple[list[Item], list[Item]]:
        """Return the items at `keys`, and those keys that could not be looked up now."""

    def put(self, table: str, key: Item, item: Item, condition: Condition | None) -> bool:
        """Write `item` at `key` if the condition holds, and return whether it was written.

        It was also if the answer was lost. Without a condition it is written over whatever is there.
        """

    def delete(self, table: str, key: Item, condition: Condition | None) -> bool:
        """Delete what is at `key` if the condition holds, and return whether nothing is there any more."""

    def page(self, table: str, selection: Selection) -> Page:
        """Return one page of what is selected: of all in any order, else in that of the sort key."""


OnForeign = Callable[[Item, RecordError], None]
"""Is told of an item that is no record, and why."""


def value_of(attribute: Mapping[str, Any]) -> str | int:
    """Return the text or the number of a key's attribute."""
    return int(attribute["N"]) if "N" in attribute else str(attribute["S"])


class Records(Generic[R]):
    """Records of one `kind` in the table `name`. Raises what `tables` raise, and `RecordError`."""

    def __init__(self, tables: Tables, name: str, kind: RecordKind[R]) -> None:
        self.name = name
        self._tables = tables
        self._kind = kind

    def read(self, *key: str) -> R | None:
        """Return the record at `key`, as it is after all writes that were acknowledged."""
        item = self._tables.get(self.name, self._kind.key_of(*key))
        return self._kind.from_item(item) if item else None

    def read_many(
        self,
        keys: Collection[str],
        on_foreign: OnForeign | None = None,
        *,
        is_consistent: bool = True,
        sort: str | None = None,
    ) -> dict[str, R | None]:
        """Return the records at keys of one attribute, with `sort` for another one; None where there is none.

        Left out are keys that could not be looked up now, and items that are no records.
        """
        names = sorted(set(keys))
        items, left = self._tables.get_many(
            self.name,
            [self._kind.key_of(each, *([] if sort is None else [sort])) for each in names],
            is_consistent=is_consistent,
        )
        key, *_ = self._kind.key
        unread = {each[key]["S"] for each in (*items, *left)}
        found = {each[key]["S"]: record for each, record in self._read_each(items, on_foreign)}
        return {each: found.get(each) for each in names if each in found or each not in unread}

    def write(self, record: R) -> R | None:
        """Write the successor of `record` and return it; None if somebody else wrote since it was read."""
        stored = self._after(record)
        return stored if self._put(stored, self._unchanged(record)) else None

    def force(self, record: R) -> R:
        """Write the successor of `record` over whatever is there."""
        stored = self._after(record)
        self._put(stored, None)
        return stored

    def remove(self, record: R) -> bool:
        """Delete `record`; return False if somebody else wrote since it was read."""
        key = self._kind.key_in(self._kind.to_item(record))
        return self._tables.delete(self.name, key, self._unchanged(record))

    def discard(self, *key: str) -> None:
        """Delete what is at `key`, whatever it is; nothing if there is none."""
        self._tables.delete(self.name, self._kind.key_of(*key), None)

    def change(self, step: Callable[[R | None], R], *key: str) -> R:
        """Replace the record at `key` by what `step` makes of it, and return that.

        Nothing is written if `step` changes nothing. Raises `ConflictError`, and what `step` raises.
        """
        for _ in range(ATTEMPTS):
            before = self.read(*key)
            after = step(before)
            if after == before:
                return after
            if stored := self.write(after):
                return stored
        raise ConflictError(self.name, key)

    def all(self, on_foreign: OnForeign | None = None) -> Iterator[R]:
        """Yield every record. An item that is none goes to `on_foreign`, by default as an error."""
        return self._select(Selection(), on_foreign)

    def of(self, partition: str, on_foreign: OnForeign | None = None) -> Iterator[R]:
        """Yield the records of a partition by their sort key."""
        return self._select(Selection(self._kind.key[0], partition, self._kind.key[-1]), on_foreign)

    def page(self, selection: Selection, on_foreign: OnForeign | None = None) -> tuple[list[R], Item | None]:
        """Return one page of records, and where the next begins; None at the end."""
        page = self._tables.page(self.name, selection)
        return [record for _, record in self._read_each(page.items, on_foreign)], page.after

    def keys(self, selection: Selection) -> tuple[list[tuple[str, ...]], Item | None]:
        """Return the primary keys of one page, and where the next begins; read a record before using it."""
        page = self._tables.page(self.name, selection)
        return self._keys(page), page.after

    def key_pages(self, selection: Selection) -> Iterator[list[tuple[str, ...]]]:
        """Yield the primary keys of each page that has some; read a record before using it."""
        return filter(None, map(self._keys, self._pages(selection)))

    def _keys(self, page: Page) -> list[tuple[str, ...]]:
        return list(map(self._kind.values_in, page.items))

    def _select(self, selection: Selection, on_foreign: OnForeign | None) -> Iterator[R]:
        for page in self._pages(selection):
            for _, record in self._read_each(page.items, on_foreign):
                yield record

    def _read_each(self, items: Iterable[Item], on_foreign: OnForeign | None) -> Iterator[tuple[Item, R]]:
        for item in items:
            try:
                yield item, self._kind.from_item(item)
            except RecordError as error:
                if on_foreign is None:
                    raise
                on_foreign(item, error)

    def _pages(self, selection: Selection) -> Iterator[Page]:
        while True:
            page = self._tables.page(self.name, selection)
            yield page
            if page.after is None:
                return
            selection = replace(selection, after=page.after)

    def _after(self, record: R) -> R:
        revision = record.revision + 1 if record.revision > NEW else self._tables.first()
        return replace(record, revision=revision)  # type: ignore[type-var]

    def _put(self, record: R, condition: Condition | None) -> bool:
        item = self._kind.to_item(record)
        return self._tables.put(self.name, self._kind.key_in(item), item, condition)

    def _unchanged(self, record: R) -> Condition:
        return Condition(record.revision, self._kind.key[0])
