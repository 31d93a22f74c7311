"""What arrived, written down by whoever received it and read by whoever judges: one file a service.

Appended in one write each, so that a reader that is killed leaves at most a torn last line, of what it had
not confirmed to anybody yet.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

from local.consumers import UNREADABLE, comes_in_its_own_time, key_of, texts_of
from local.oracle import Arrived, Key

_LINE_END: Final = b"\n"


class ArrivalWriter:
    """Appends to the file of one service for as long as its process lives.

    What a killed predecessor left torn is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _cut_torn(self._file)

    def write(self, bodies: Iterable[str]) -> None:
        """Note the events of messages that arrived now."""
        now = time.time()
        texts = (text for body in bodies for text in texts_of(body))
        lines = [json.dumps([now, *_known_by(text)], ensure_ascii=False).encode() for text in texts]
        os.write(self._file, b"".join(line + _LINE_END for line in lines))


class Arrivals:
    """The file of one service, read as far as it goes.

    `first` has when each event came first (seconds of the Unix clock), in the order of that; `again` counts
    the repetitions of each; `reports` are what devices say of themselves in their own time.
    """

    def __init__(self, path: Path) -> None:
        self.first: dict[Key, float] = {}
        self.reports: dict[Key, float] = {}
        self.again: Counter[Key] = Counter()
        self._path = path
        self._read = 0

    def refresh(self) -> None:
        """Read what was added since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(_LINE_END):
                    return  # torn, or still being written
                self._read += len(line)
                self._count(line)

    @property
    def duplicates(self) -> int:
        """How many deliveries were repetitions."""
        return self.again.total()

    @property
    def arrived(self) -> Arrived:
        """What the oracle compares."""
        return Arrived(self.first.keys(), self.duplicates, self.reports.keys())

    def _count(self, line: bytes) -> None:
        at, first, second, is_report = json.loads(line)
        counted = self.reports if is_report else self.first
        key = first, second
        if key in counted:
            self.again[key] += 1
        else:
            counted[key] = at


def _known_by(body: str) -> tuple[str, str, bool]:
    try:
        event = json.loads(body)
        key = key_of(event["type"], event["source"], event["id"], event.get("data"))
        return *key, comes_in_its_own_time(event["type"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return UNREADABLE, sha256(body.encode()).hexdigest(), False


def _cut_torn(file: int) -> None:
    size = os.fstat(file).st_size
    if not size:
        return
    tail = os.pread(file, min(size, 1 << 20), max(0, size - (1 << 20)))
    os.ftruncate(file, size - len(tail) + tail.rfind(_LINE_END) + 1)
