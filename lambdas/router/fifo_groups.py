"""The order of a FIFO queue, kept while several of its messages are worked on at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lambdas.common.queue import QueueMessage


def fifo_groups(messages: Sequence[QueueMessage], failed: set[str]) -> Iterator[list[QueueMessage]]:
    """`messages` in waves, each to be finished before the next; one of a group never stands beside another.

    The caller adds to `failed` between two waves. The later messages of a group in which one failed are added
    here, and not given out: they must come again after it. Those of a standard queue are all one wave.
    """
    waiting = list(messages)
    while waiting:
        broken = {message.group for message in messages if message.id in failed} - {None}
        held = {message.id for message in waiting if message.group in broken}
        failed |= held
        wave, waiting = _first_of_each_group([message for message in waiting if message.id not in held])
        if wave:
            yield wave


def _first_of_each_group(
    messages: Collection[QueueMessage],
) -> tuple[list[QueueMessage], list[QueueMessage]]:
    wave: list[QueueMessage] = []
    later: list[QueueMessage] = []
    seen: set[str] = set()
    for message in messages:
        if message.group is None:
            wave.append(message)
        elif message.group in seen:
            later.append(message)
        else:
            seen.add(message.group)
            wave.append(message)
    return wave, later
