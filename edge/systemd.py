"""Our word to the service manager: datagrams to the socket that it names in the environment (sd_notify(3)).

Without a manager nothing is sent. A manager that does not listen is not our problem: nothing here fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from time import monotonic_ns


class ServiceManager:
    """The manager of the `environment` that this process `pid` was started with."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@" stands for the zero byte that starts an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environment, pid) if address else None
        """Within how many seconds it wants to hear that we are alive; None when it does not ask."""

    def ready(self, status: str) -> None:
        """We are in service, after the start or a reload."""
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """We are about to end."""
        self._send("STOPPING=1", "STATUS=stopping")

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
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


def logs_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Whether `descriptor` is the journal's own stream, as JOURNAL_STREAM (systemd.exec(5)) names it."""
    try:
        opened = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{opened.st_dev}:{opened.st_ino}"
