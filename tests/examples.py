"""How many examples a property test tries: all in `make test`, a part in `make check`."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

FAST: Final = "fast"
"""The profile of `make check`: few examples, others in each run."""

_DEFAULT: Final = 100
"""Of Hypothesis, without a profile."""

settings.register_profile(FAST, max_examples=15)


def examples(number: int) -> int:
    """`number` of them, or the part of it that the chosen profile allows."""
    return max(5, number * settings().max_examples // _DEFAULT)
