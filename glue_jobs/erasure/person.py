"""Whose rows an erasure removes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from glue_jobs.erasure.errors import TooWideError

_SHORTEST: Final = 4
_BORDERS: Final = ("/", "#", "?", ":")
"""What may follow the prefix, so that //home-1 is not //home-10."""

_SOURCE: Final = "source"
_CLIENTS: Final = ("client_id", "device")
_TEXTS: Final = ("line_text", "text", "body", "detail")


@dataclass(frozen=True, slots=True)
class Person:
    """All whose events come from `source` or beneath it, and all of the device `client` where it is given.

    The device also leads to what bears no source: refused items, and the letters that routers wrote about its
    events. Raises `TooWideError`.
    """

    source: str
    client: str | None = None

    def __post_init__(self) -> None:
        if len(self.source.strip("/:")) < _SHORTEST:
            raise TooWideError(self.source)

    @property
    def pseudonym(self) -> str:
        """A name for the records of the erasure, which must not hold the person's own."""
        return hashlib.sha256(json.dumps([self.source, self.client]).encode()).hexdigest()[:32]

    def is_in(self, columns: Collection[str]) -> Column:
        """Whether a row that has `columns` is the person's; of mere text, whether it names the person."""
        tests = [sf.lit(False)]
        if _SOURCE in columns:
            source = sf.col(_SOURCE)
            tests += [source == self.source, *(source.startswith(each) for each in self._beginnings)]
        if self.client is not None:
            tests += [sf.col(name) == self.client for name in _CLIENTS if name in columns]
        texts = [sf.col(name) for name in _TEXTS if name in columns]
        tests += [text.contains(word) for text in texts for word in self._words]
        return reduce(or_, (sf.coalesce(each, sf.lit(False)) for each in tests))

    def is_named_in(self, text: str) -> bool:
        """Whether `text` names the person."""
        return any(word in text for word in self._words)

    @property
    def _beginnings(self) -> tuple[str, ...]:
        if self.source.endswith(_BORDERS):
            return (self.source,)
        return tuple(self.source + border for border in _BORDERS)

    @property
    def _words(self) -> tuple[str, ...]:
        names = [name for name in (self.source, self.client) if name is not None]
        # In JSON, and in JSON that is a text in JSON.
        return (*self._beginnings, *(f'"{name}{end}' for name in names for end in ('"', '\\"')))
