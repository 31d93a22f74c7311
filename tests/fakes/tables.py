"""DynamoDB's tables in memory, as `eventplane.records` asks for them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

from eventplane.records import Condition, Item, Page, Selection, value_of

_Place = tuple[str | int, ...]


class MemoryTables:
    """`Tables` in memory, for one process."""

    def __init__(self) -> None:
        self._tables: defaultdict[str, dict[_Place, tuple[Item, Item]]] = defaultdict(dict)
        self._partitions: defaultdict[str, dict[str, defaultdict[str | int, set[_Place]]]] = defaultdict(dict)
        """By table and attribute: where the items are that have a value. Made when it is first asked for."""
        self._revisions = count(1)

    def first(self) -> int:
        return next(self._revisions)

    def get(self, table: str, key: Item) -> Item | None:
        found = self._tables[table].get(_place(key))
        return found and found[1]

    def get_many(
        self,
        table: str,
        keys: Sequence[Item],
        *,
        is_consistent: bool,
    ) -> tuple[list[Item], list[Item]]:
        return [item for key in keys if (item := self.get(table, key)) is not None], []

    def put(self, table: str, key: Item, item: Item, condition: Condition | None) -> bool:
        if condition is not None and not condition.holds(self.get(table, key)):
            return False
        self._store(table, key, item)
        return True

    def delete(self, table: str, key: Item, condition: Condition | None) -> bool:
        found = self.get(table, key)
        if found is not None and condition is not None and not condition.holds(found):
            return False
        self._store(table, key, None)
        return True

    def _store(self, table: str, key: Item, item: Item | None) -> None:
        place, items, known = _place(key), self._tables[table], self._partitions[table]
        now = {name: value_of(item[name]) for name in known if item and name in item}
        _, before = items.pop(place, (key, {}))
        if item is not None:
            items[place] = key, item
        for name, partitions in known.items():
            if name in before:
                partitions[value_of(before[name])].discard(place)
            if name in now:
                partitions[now[name]].add(place)

    def _of_partition(self, table: str, selection: Selection) -> Iterator[tuple[_Place, tuple[Item, Item]]]:
        items, name = self._tables[table], selection.partition
        if name is None:
            yield from items.items()
            return
        if name not in self._partitions[table]:
            self._partitions[table][name] = defaultdict(set)
            for place, (_, item) in items.items():
                if name in item:
                    self._partitions[table][name][value_of(item[name])].add(place)
        for place in self._partitions[table][name].get(selection.of, ()):
            if place in items:
                yield place, items[place]

    def page(self, table: str, selection: Selection) -> Page:
        def rank(place: _Place, item: Item) -> tuple[_Place, _Place]:
            return (value_of(item[selection.sort]),) if selection.sort else (), place

        # A rank is of one item, so sorting compares ranks alone.
        found = [
            (rank(place, item), key, item)
            for place, (key, item) in self._of_partition(table, selection)
            if selection.takes(item)
        ]
        if found and (after := selection.after) is not None:
            last = rank(_place({name: after[name] for name in found[0][1]}), after)
            found = [each for each in found if each[0] > last]
        shown = sorted(found)[: selection.limit]
        items = tuple(item for _, _, item in shown)
        if len(shown) == len(found):
            return Page(items, None)
        _, key, item = shown[-1]
        return Page(items, {**key, selection.sort: item[selection.sort]} if selection.sort else key)


def _place(key: Item) -> _Place:
    return tuple(map(value_of, key.values()))
