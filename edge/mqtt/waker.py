"""Wakes a thread that waits in poll."""

from __future__ import annotations

import os


class Waker:
    """A pipe that holds one byte at most. Not thread-safe: whoever calls holds a lock."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._awake = False
        self._closed = False

    def fileno(self) -> int:
        """For poll, to be read."""
        return self._read

    def wake(self) -> None:
        """End the wait, or keep the next one from beginning."""
        if not self._awake and not self._closed:
            self._awake = True
            os.write(self._write, b"\0")

    def clear(self) -> None:
        """The thread is awake."""
        if self._awake:
            self._awake = False
            os.read(self._read, 1)

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        os.close(self._read)
        os.close(self._write)
