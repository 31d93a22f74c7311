"""The service manager's interfaces: readiness, status and watchdog (sd_notify(3)), and the journal.

Without a manager nothing is sent, and the log is plain text. A manager that does not listen is ignored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, monotonic_ns

REPEATS_PASSED = 5
"""Records of one kind that pass within `REPEAT_S` seconds; the rest are counted."""

REPEAT_S = 60.0

_PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
"""Of syslog; the journal reads them from the head of each line (sd-daemon(3))."""


class ServiceManager:
    """The manager of the `environment` that this process `pid` was started with."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" means the zero byte that starts an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environment, pid) if address else None
        """Seconds within which it expects `alive`; None without a watchdog."""

    def ready(self, status: str) -> None:
        """Report that we are in service, after the start or a reload."""
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """Report that a reload begins; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that we are about to end."""
        self._send("STOPPING=1", "STATUS=stopping")

    def status(self, text: str) -> None:
        """Set what `systemctl status` shows."""
        self._send(_status(text))

    def alive(self, status: str) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1", _status(status))

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams,
        ):
            datagrams.setblocking(False)  # a manager with a full socket must not hold up the loop
            datagrams.sendto("\n".join(assignments).encode(), self._address)


def _status(text: str) -> str:
    return "STATUS=" + text.replace("\n", " ")


def _watchdog_s(environment: Mapping[str, str], pid: int) -> float | None:
    try:
        whose = int(environment.get("WATCHDOG_PID") or pid)
        microseconds = int(environment.get("WATCHDOG_USEC") or 0)
    except ValueError:
        return None
    return microseconds / 1e6 if whose == pid and microseconds > 0 else None


class JournalFormatter(logging.Formatter):
    """Formats each line with its priority; the journal itself knows the time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return all lines of the record: a traceback's last line is as severe as its first."""
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


@dataclass(slots=True)
class _Kind:
    """The records of one kind in the interval from `since`, monotonic seconds."""

    since: float
    passed: int = 0
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Passes `REPEATS_PASSED` records of a kind every `REPEAT_S` seconds; the next one says how many did not.

    A kind is a logger and a message before its arguments are put in, so there are as many as the code has.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record passes."""
        now = self._now()
        kind = self._kinds.setdefault((record.name, record.msg), _Kind(now))
        if now - kind.since >= REPEAT_S:
            if kind.left_out:
                record.msg = f"{record.msg} ({kind.left_out} more like it were left out)"
            kind.since, kind.passed, kind.left_out = now, 0, 0
        if kind.passed >= REPEATS_PASSED:
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
    if level != "debug":
        handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(handler)


def stop_event() -> threading.Event:
    """Return an event that SIGTERM or SIGINT sets."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def logs_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Return whether `descriptor` is the journal's own stream, by JOURNAL_STREAM (systemd.exec(5))."""
    try:
        opened = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{opened.st_dev}:{opened.st_ino}"
