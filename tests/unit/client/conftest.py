"""Every backend, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.worlds import MAX_RECEIVES, MemoryWorld, World

WORLDS = ("memory", "sqlite")


def make_world(kind: str, directory: Path, max_receives: int = MAX_RECEIVES) -> World:
    return MemoryWorld(directory if kind == "sqlite" else None, max_receives)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    it = make_world(request.param, tmp_path)
    yield it
    it.close()
