"""The machine's clock, randomness and threads, for jobs: each is a program, and wires its own parts."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from eventplane.values import RandomBytes

random_bytes: RandomBytes = os.urandom

pool = ThreadPoolExecutor


def now() -> datetime:
    """Return the moment of the wall clock."""
    return datetime.now(UTC)


def new_id() -> str:
    """Draw an id that nothing else has."""
    return random_bytes(16).hex()
