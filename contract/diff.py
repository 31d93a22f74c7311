"""The differences between two versions of a contract, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eventplane.contract import Contract, contract_document

_PARTS = ("participants", "event_types", "routes")


@dataclass(frozen=True, slots=True)
class Difference:
    """`path` was added (`before` is None), removed (`after` is None), or has another value.

    Values are JSON texts; what was added or removed as a whole has the text '' for its value.
    """

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.path}{f': {self.after}' if self.after else ''}"
        if self.after is None:
            return f"- {self.path}{f': {self.before}' if self.before else ''}"
        return f"~ {self.path}: {self.before} -> {self.after}"


def diff(old: Contract, new: Contract) -> tuple[Difference, ...]:
    """Every change from `old` to `new`, by path. Defaults are written out on both sides."""
    before, after = _document(old), _document(new)
    changes = list(_changes("name", before["name"], after["name"]))
    for part in _PARTS:
        for name in sorted(before[part].keys() | after[part].keys()):
            path = f"{part}.{name}"
            if name not in before[part]:
                changes.append(Difference(path, None, ""))
            elif name not in after[part]:
                changes.append(Difference(path, "", None))
            else:
                changes += _changes(path, before[part][name], after[part][name])
    return tuple(changes)


def _document(contract: Contract) -> dict[str, Any]:
    """The contract's document with each payload schema by its `$id`, so that one can change alone."""
    document = contract_document(contract)
    for name, event_type in document["event_types"].items():
        by_id = contract.event_types[name].schemas
        event_type["schemas"] = list(by_id)
        event_type |= {f"schemas[{id}]": schema for id, schema in by_id.items()}
    return document


def diff_text(old: Contract, new: Contract) -> str:
    """The changes as lines: + added, - removed, ~ changed."""
    head = f"{old.name} {old.version} -> {new.name} {new.version}"
    changes = diff(old, new)
    return "\n".join([head, *(f"  {each}" for each in changes)] if changes else [f"{head}: nothing changed"])


def _changes(path: str, before: object, after: object) -> Iterator[Difference]:
    # A filter is shown whole: a part of it does not show what it passes.
    if not path.endswith(".filter") and isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            inner = f"{path}.{name}"
            if name not in before:
                yield Difference(inner, None, _text(after[name]))
            elif name not in after:
                yield Difference(inner, _text(before[name]), None)
            else:
                yield from _changes(inner, before[name], after[name])
    elif _text(before) != _text(after):  # to Python 1 is true
        yield Difference(path, _text(before), _text(after))


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
