"""The log: one stream, standard error, in the form that its reader likes; repeated complaints are damped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from edge.systemd import logs_to_journal

DAMP_BURST = 5
"""Records of one kind that pass within `DAMP_S`; the rest are counted."""

DAMP_S = 60.0

_PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
"""syslog's, which the journal reads from the head of each line (sd-daemon(3))."""


class JournalFormatter(logging.Formatter):
    """Each line with its priority; the journal itself knows the time."""

    def format(self, record: logging.LogRecord) -> str:
        """All lines of the record, so that a traceback's last line is as grave as its first."""
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


@dataclass(slots=True)
class _Kind:
    since: float
    passed: int = 0
    left_out: int = 0


class Damper(logging.Filter):
    """Lets `DAMP_BURST` records of a kind pass every `DAMP_S`; the next one says how many did not.

    A kind is a logger and a message before its arguments are put in, so there are as many as the code has.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        now = self._now()
        kind = self._kinds.setdefault((record.name, record.msg), _Kind(now))
        if now - kind.since >= DAMP_S:
            if kind.left_out:
                record.msg = f"{record.msg} ({kind.left_out} more like it were left out)"
            kind.since, kind.passed, kind.left_out = now, 0, 0
        if kind.passed >= DAMP_BURST:
            kind.left_out += 1
            return False
        kind.passed += 1
        return True


def start_logging(level: str, environment: Mapping[str, str]) -> None:
    """Write records of `level` (a lower-case name) and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    if logs_to_journal(environment, sys.stderr.fileno()):
        handler.setFormatter(JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if level != "debug":  # who debugs wants to see everything
        handler.addFilter(Damper())
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(handler)
