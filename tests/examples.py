"""How many examples a property test tries: all in `make test`, a part in `make check`."""

from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import HealthCheck, settings

FAST: Final = "fast"
"""The profile of `make check`: few examples, others in each run."""

_ALL: Final = 100

_Case = TypeVar("_Case")

# No time is asserted: a busy machine is not a fault. Where one matters, a test sets it.
_PATIENT: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("all", _PATIENT, max_examples=_ALL)
settings.register_profile(FAST, _PATIENT, max_examples=10)
settings.load_profile("all")


def examples(number: int) -> int:
    """`number` of them, or the part of it that the chosen profile allows."""
    return max(5, number * settings().max_examples // _ALL)


def sampled(cases: Sequence[_Case]) -> Sequence[_Case]:
    """Return all `cases`, or some of them, evenly spread, where the profile tries fewer."""
    return cases[:: max(1, len(cases) // examples(len(cases)))]
