"""A collection a page at a time (xRegistry's pagination specification)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eventplane.registry.errors import BadFlagError
from eventplane.values import whole_number

LIMIT: Final = 100
"""Most entities of a collection in one answer. Ours: 100 messages are about 150 KB."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some `ids` of a collection; `link` is the header that leads to the next page, '' on the last."""

    ids: tuple[str, ...]
    link: str


def page(ids: Iterable[str], query: Mapping[str, str], path: str, url: str) -> Page:
    """The page that `query` asks for; `path` is what was asked for, `url` the collection's.

    `after` is the id that the page before ended with: pages neither repeat nor leave out what stays in the
    registry while somebody reads them. Raises `BadFlagError`.
    """
    limit = _limit(query.get("limit"), path)
    everything = sorted(ids)
    waiting = [each for each in everything if each > query.get("after", "")]
    shown = tuple(waiting[:limit])
    if len(waiting) <= limit:
        return Page(shown, "")
    # An id has no character that a URL would have to escape.
    return Page(shown, f'<{url}?limit={limit}&after={shown[-1]}>;rel="next";count={len(everything)}')


def _limit(text: str | None, path: str) -> int:
    if text is None:
        return LIMIT
    try:
        return whole_number(text, LIMIT, 1)
    except ValueError as error:
        raise BadFlagError(path, "limit", f"ask for 1 to {LIMIT} entities") from error
