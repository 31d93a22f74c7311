"""Files of arrivals of a service: the process that delivers to it appends to a file, and the run reads it.

Each batch is appended in one write, so that a killed process leaves at most a torn last line, of what
it had not acknowledged.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lab.consumers import identify
from lab.oracle import Arrived, Key

_LINE_END: Final = b"\n"


class ArrivalWriter:
    """Appends to the file of one service. A torn line of a killed predecessor is cut off."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _cut_torn(self._file)

    def write(self, texts: Iterable[str]) -> None:
        """Record events that arrived now."""
        now = time.time()
        lines = [json.dumps([now, *identify(text)], ensure_ascii=False).encode() for text in texts]
        os.write(self._file, b"".join(line + _LINE_END for line in lines))


class Arrivals:
    """The arrivals of one service, as far as its files were read.

    `first` has when each event first arrived (Unix seconds), in that order; `again` counts the duplicates of
    each; `reports` are those whose number cannot be known.
    """

    def __init__(self, *paths: Path) -> None:
        self.first: dict[Key, float] = {}
        self.reports: dict[Key, float] = {}
        self.again: Counter[Key] = Counter()
        self._read = dict.fromkeys(paths, 0)

    def refresh(self) -> None:
        """Read what was appended since."""
        for path in self._read:
            if path.exists():
                self._refresh(path)

    @property
    def duplicates(self) -> int:
        """The number of duplicate deliveries."""
        return self.again.total()

    @property
    def arrived(self) -> Arrived:
        """Return what arrived, for the oracle."""
        return Arrived(self.first.keys(), self.duplicates, self.reports.keys())

    def _refresh(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read[path])
            for line in file:
                if not line.endswith(_LINE_END):
                    return  # torn, or still being written
                self._read[path] += len(line)
                self._count(line)

    def _count(self, line: bytes) -> None:
        at, (first, second), is_report = json.loads(line)
        counted = self.reports if is_report else self.first
        key = first, second
        if key in counted:
            self.again[key] += 1
        else:
            counted[key] = at


def _cut_torn(file: int) -> None:
    size = os.fstat(file).st_size
    if not size:
        return
    tail = os.pread(file, min(size, 1 << 20), max(0, size - (1 << 20)))
    os.ftruncate(file, size - len(tail) + tail.rfind(_LINE_END) + 1)
