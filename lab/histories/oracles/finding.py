"""The findings of oracles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class OracleFinding:
    """A promise that was broken: `kind` in a few words, the same for all of its kind, and `detail`."""

    kind: str
    detail: str
