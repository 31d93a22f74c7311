"""Randomness as a parameter: a program's wiring passes in the kernel's, a simulation that of a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Draws so many bytes. The kernel's, at each use: clones of a snapshot share what was drawn before."""


def random_share(draw: RandomBytes) -> float:
    """Draw a number from 0 up to 1."""
    return (int.from_bytes(draw(7)) >> 3) / (1 << 53)
