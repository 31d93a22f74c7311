"""What a run costs while it goes on: memory of the forwarders and room of their spools, sampled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression
from time import monotonic
from typing import Final, NamedTuple

from local.background import Background
from local.home import Home

_EVERY_S: Final = 1.0
_MIB: Final = 1 << 20
_HOUR_S: Final = 3_600.0


class Sample(NamedTuple):
    """At `at_s` of the run: resident memory and spool files of the largest home, MiB."""

    at_s: float
    rss_mib: float
    spool_mib: float


class Probe(Background):
    """Samples `homes` once a second while its `with` block runs."""

    def __init__(self, homes: Sequence[Home]) -> None:
        super().__init__("probe")
        self.samples: list[Sample] = []
        self._homes = homes

    def _run(self) -> None:
        began = monotonic()
        while not self._ending.wait(_EVERY_S):
            memory = max(map(_rss_mib, self._homes))
            if memory:  # none runs in this moment
                self.samples.append(Sample(monotonic() - began, memory, max(map(_spool_mib, self._homes))))


def per_hour(samples: Sequence[Sample], part: int) -> float:
    """How much field number `part` of the samples grows in an hour, by the line that fits their second half.

    The first half is left out: a process has to warm up.
    """
    late = samples[len(samples) // 2 :]
    if len(late) < 2:
        return 0.0
    return linear_regression([each.at_s for each in late], [each[part] for each in late]).slope * _HOUR_S


def _rss_mib(home: Home) -> float:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{home.forwarder.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024
    return 0.0


def _spool_mib(home: Home) -> float:
    sizes = []
    for path in home.spool.parent.glob(f"{home.spool.name}*"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return sum(sizes) / _MIB
