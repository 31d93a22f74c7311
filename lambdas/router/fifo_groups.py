"""The order of a FIFO queue, kept while several of its messages are worked on at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lambdas.common.queue import QueueMessage


def fifo_groups(messages: Sequence[QueueMessage], failed: set[str]) -> Iterator[list[QueueMessage]]:
    """`messages` in waves, each to be finished before the next; one of a group never stands beside another.

    The caller adds to `failed` between two waves. The later messages of a group in which one failed are added
    here, and not given out: they must come again after it. Those of a standard queue are all one wave.
    """
    waiting = list(messages)
    while waiting:
        broken = {message.group for message in messages if message.id in failed} - {None}
        failed |= {message.id for message in waiting if message.group in broken}
        wave: list[QueueMessage] = []
        later: list[QueueMessage] = []
        for message in waiting:
            if message.group is not None and any(each.group == message.group for each in wave):
                later.append(message)
            elif message.group not in broken:
                wave.append(message)
        waiting = later
        if wave:
            yield wave
