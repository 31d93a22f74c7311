"""The process that is recorded: `python -m benchmarks.power.client_state FILE SEED STEPS`.

Claims and finishes events in the client library's state, reopening it now and then, and says before each step
what it begins and after it what is done.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from random import Random

from eventplane_client.notices import Notice
from eventplane_client.sqlite_filter import SqliteFilter

_REOPEN = 0.1


def key(number: int) -> bytes:
    """The digest of event `number`."""
    return number.to_bytes(16, "big")


def run(path: Path, random: Random, steps: int) -> None:
    """Do it, and close the state."""
    filter = SqliteFilter(path, on_notice=_ignore)
    in_hand: list[int] = []
    for number in range(steps):
        done = [each for each in in_hand if random.random() < 0.7]
        filter.claim([key(number)], [key(each) for each in done])
        in_hand = [each for each in in_hand if each not in done] + [number]
        _say({"claimed": number, "done": done})
        if random.random() < _REOPEN:
            filter.close()
            filter = SqliteFilter(path, on_notice=_ignore)
    filter.close()


def _say(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _ignore(notice: Notice) -> None:
    pass


if __name__ == "__main__":
    run(Path(sys.argv[1]), Random(int(sys.argv[2])), int(sys.argv[3]))
