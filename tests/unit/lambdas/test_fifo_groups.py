"""The order within the groups of a FIFO queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.common.queue import QueueMessage
from lambdas.router.fifo_groups import fifo_groups


def queued(*groups: str | None) -> list[QueueMessage]:
    return [QueueMessage(f"m{at}", "", 0, 1, "", group) for at, group in enumerate(groups)]


def test_a_standard_queue_is_one_wave() -> None:
    messages = queued(None, None, None)
    assert list(fifo_groups(messages, set())) == [messages]
    assert list(fifo_groups([], set())) == []


@pytest.mark.source("N3")
def test_what_follows_a_failed_message_of_its_group_comes_again_untried() -> None:
    messages = queued("a", "b", "a", "b", "a")
    failed: set[str] = set()
    tried = []
    for wave in fifo_groups(messages, failed):
        tried += [message.id for message in wave]
        if "m0" in tried:
            failed.add("m0")
    assert (tried, failed) == (["m0", "m1", "m3"], {"m0", "m2", "m4"})


@pytest.mark.source("P17")
@given(groups=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=10), bad=st.sets(st.integers(0, 9)))
def test_in_every_group_a_prefix_is_done_in_its_order(groups: list[str | None], bad: set[int]) -> None:
    messages = queued(*groups)
    failed: set[str] = set()
    done: list[QueueMessage] = []
    for wave in fifo_groups(messages, failed):
        for message in wave:
            if int(message.id[1:]) in bad:
                failed.add(message.id)
            else:
                done.append(message)
    assert {message.id for message in done} | failed == {message.id for message in messages}
    for group in {group for group in groups if group}:
        members = [message for message in messages if message.group == group]
        assert [each for each in done if each.group == group] == members[
            : len(members) - sum(each.id in failed for each in members)
        ]
