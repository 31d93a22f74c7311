"""A wall clock for one process that can be set while it runs: Debian's libfaketime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1",)


@dataclass(frozen=True)
class FakeClock:
    """The offset in `file`, in seconds, is what the process reads on its wall clock beyond the true time.

    The clocks that nobody can set (CLOCK_MONOTONIC, CLOCK_BOOTTIME) stay true, as on a device.
    """

    library: Path
    file: Path

    @classmethod
    def found(cls, file: Path) -> Self | None:
        """A clock that is right for now; None without libfaketime (Debian's package of that name)."""
        library = next((path for each in _LIBRARIES for path in Path("/").glob(each[1:])), None)
        if library is None:
            return None
        clock = cls(library, file.resolve())
        clock.jump(0)
        return clock

    def jump(self, seconds: float) -> None:
        """Set the clock to `seconds` beyond the true time; 0 is the truth."""
        unfinished = self.file.with_suffix(".unfinished")
        unfinished.write_text(f"{seconds:+g}\n")
        unfinished.replace(self.file)

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes a process read this clock."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
            # Or two busy threads of Python fight for its lock: libfaketime lets each wait for it end at once.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
