"""Every backend, one after the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventplane_client import asker
from eventplane_client.visibility import VisibilityExtender
from tests.unit.client.worlds import MAX_RECEIVES, MemoryWorld, SqsWorld, World

WORLDS = ("memory", "sqlite", "sqs")
"""All in memory; the filter on the disk; SQS with the filter in DynamoDB."""


def make_world(kind: str, directory: Path, max_receives: int = MAX_RECEIVES) -> World:
    if kind == "sqs":
        return SqsWorld(max_receives)
    return MemoryWorld(directory if kind == "sqlite" else None, max_receives)


@pytest.fixture(autouse=True)
def short_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a client that asks waits until its reception of replies ends."""
    monkeypatch.setattr(asker, "_POLL_S", 0.02)


@pytest.fixture(autouse=True)
def extenders_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread of a reader that a test left as after a crash ends with the test."""
    made: list[VisibilityExtender] = []
    hold = VisibilityExtender.hold

    def noted(self: VisibilityExtender, *arguments: Any) -> None:
        made.append(self)
        hold(self, *arguments)

    monkeypatch.setattr(VisibilityExtender, "hold", noted)
    yield
    for each in made:
        each.close()


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    it = make_world(request.param, tmp_path)
    yield it
    it.close()
