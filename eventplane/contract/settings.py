"""What a setting may be and its default: read by the compiler and by the docs, so that the two agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from eventplane.contract.reader import Choice, Section


@dataclass(frozen=True, slots=True)
class Word(Generic[Choice]):
    """A setting that is one word of `options`."""

    options: type[Choice]
    default: Choice
    meaning: str

    def read(self, name: str, section: Section) -> Choice:
        """The member `name` of `section`; faults go where the section's faults go."""
        return section.choice(name, self.options, self.default) or self.default


@dataclass(frozen=True, slots=True)
class Number:
    """A setting that is a whole number of `unit` from `low` to `high`; default None means no limit."""

    default: int | None
    low: int
    high: int
    unit: str
    meaning: str

    def read(self, name: str, section: Section, default: int | None = None) -> int | None:
        """The member `name` of `section`; `default` goes before the setting's own."""
        return section.integer(
            name, self.default if default is None else default, self.low, self.high, self.unit
        )
