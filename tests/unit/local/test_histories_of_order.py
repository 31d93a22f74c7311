"""What the histories' oracle of order says when a FIFO queue is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from local.histories.search import told
from local.histories.story import WATCH, Decision, Story
from tests.fakes.sqs import FakeQueue, FakeSqs
from tests.plane import shipped_contract

pytestmark = pytest.mark.long

ROUNDS = [Decision(20.0 + at, "round", WATCH, 1) for at in range(4)]
STORY = Story(
    1,
    0,
    (
        Decision(19.0, "dependency-down", WATCH, 3.5),
        *ROUNDS,
    ),
    is_ordered=True,
)


def all_visible(queue: FakeQueue, now_ms: int) -> list[Any]:
    return [each for each in queue.messages if each.visible_ms <= now_ms]


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "is_found"),
    [
        (FakeSqs, "changed", FakeSqs.changed, False),
        (FakeSqs, "_receivable", staticmethod(all_visible), True),
    ],
)
def test_events_out_of_order_are_found(
    owner: Any, name: str, wrong: Any, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    found = {each.kind for each in told(STORY, shipped_contract()).findings}
    assert found == ({"handled out of order"} if is_found else set())
