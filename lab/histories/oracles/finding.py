"""The findings of oracles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from lab.histories.history import History

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class OracleFinding:
    """A promise that was broken: `kind` in a few words, the same for all of its kind, and `detail`."""

    kind: str
    detail: str


def seen_once(look: Callable[..., T]) -> Callable[..., T]:
    """Let `look` read a history, which has ended, only once: several oracles need what it sees."""

    @wraps(look)
    def seen(history: History, *given: object, **named: object) -> T:
        key = look, given, *named.items()
        if key not in history.seen:
            history.seen[key] = look(history, *given, **named)
        found: T = history.seen[key]
        return found

    return seen
