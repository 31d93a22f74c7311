"""What ends by itself is started again, as the device's systemd does it, and counted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Final

from local.background import Background
from local.chaos.injector import Struck
from local.process import Child, End

RESTART_S: Final = 5.0
"""`RestartSec` of the forwarder's unit."""

_POLL_S: Final = 0.1

_FORESEEN: Final = {"disk-full": os.EX_IOERR}
"""How a forwarder may end that starts during such a fault: it gets no spool."""


class Restarter(Background):
    """Starts those of `children` again that end while its `with` block runs, `pause_s` later."""

    def __init__(self, children: Sequence[Child], pause_s: float = RESTART_S) -> None:
        super().__init__("restarter")
        self._children = children
        self._pause_s = pause_s

    @property
    def ends(self) -> Sequence[End]:
        """Every end of theirs that nobody asked for."""
        return [end for child in self._children for end in child.ends]

    def _run(self) -> None:
        due: dict[Child, float] = {}
        while not self._ending.wait(_POLL_S):
            for child in self._children:
                if not child.has_ended:
                    due.pop(child, None)
                elif monotonic() >= due.setdefault(child, monotonic() + self._pause_s):
                    child.revive()


def by_themselves(ends: Iterable[End], struck: Iterable[Struck]) -> list[End]:
    """The ends that no fault of `struck` explains."""
    struck = list(struck)
    return [end for end in ends if not any(_explains(fault, end) for fault in struck)]


def _explains(fault: Struck, end: End) -> bool:
    return (
        _FORESEEN.get(fault.kind) == end.status
        and end.name == f"forwarder-{fault.home}"
        and fault.began <= end.at
        and end.started <= fault.ended
    )
