"""Generators of random numbers: one for each question, so that an answer does not depend on another's."""

from __future__ import annotations

from random import Random as Draws

__all__ = ["Draws", "draws"]


def draws(*names: object) -> Draws:
    """Return the generator of what `names` say; the same names draw the same numbers, on every machine."""
    return Draws("/".join(map(str, names)))  # noqa: S311 - repeatable, not secret
