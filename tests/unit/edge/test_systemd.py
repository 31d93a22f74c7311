import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.systemd import (
    REPEAT_S,
    REPEATS_PASSED,
    JournalFormatter,
    RepeatFilter,
    ServiceManager,
    logs_to_journal,
)


@pytest.fixture(params=["path", "abstract"])
def manager_socket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager's socket, and its address as the environment has it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@eventplane-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.bind("\0" + name[1:] if name.startswith("@") else name)
        it.settimeout(10)
        yield it, name


def test_the_manager_receives_each_notification(manager_socket: tuple[socket.socket, str]) -> None:
    heard, address = manager_socket
    manager = ServiceManager({"NOTIFY_SOCKET": address}, os.getpid())
    manager.ready("all is\nwell")
    assert heard.recv(999) == b"READY=1\nSTATUS=all is well"
    manager.status("s")
    assert heard.recv(999) == b"STATUS=s"
    manager.alive("s")
    assert heard.recv(999) == b"WATCHDOG=1\nSTATUS=s"
    manager.stopping()
    assert heard.recv(999) == b"STOPPING=1\nSTATUS=stopping"


def test_a_reload_carries_the_time_of_the_monotonic_clock(manager_socket: tuple[socket.socket, str]) -> None:
    heard, address = manager_socket
    before = time.monotonic_ns() // 1000
    ServiceManager({"NOTIFY_SOCKET": address}, 1).reloading()
    first, second = heard.recv(999).decode().split("\n")
    assert first == "RELOADING=1"
    name, _, value = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000


def test_a_manager_that_does_not_listen_delays_nothing(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}, 1).ready("s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "deaf")}, 1)
        for _ in range(1_000):  # more than its queue holds
            manager.status("x" * 1_000)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "30000000", "NOTIFY_SOCKET": ""}, None),
    ],
)
def test_only_a_named_watchdog_is_ours(environment: dict[str, str], expected: float | None) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/x", **environment}, 7).watchdog_s == expected


def test_the_journal_is_known_by_the_stream_it_names() -> None:
    with Path(os.devnull).open("wb") as stream:
        opened = os.fstat(stream.fileno())
        named = {"JOURNAL_STREAM": f"{opened.st_dev}:{opened.st_ino}"}
        assert logs_to_journal(named, stream.fileno())
        assert not logs_to_journal({}, stream.fileno())
        assert not logs_to_journal({"JOURNAL_STREAM": "1:2"}, stream.fileno())
        closed = stream.fileno()
    assert not logs_to_journal(named, closed if closed != sys.stderr.fileno() else -1)


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("eventplane_mqtt.link", level, "f", 1, message, arguments, None)


def test_every_line_of_a_record_has_its_priority() -> None:
    formatter = JournalFormatter("%(name)s: %(message)s")
    assert formatter.format(record("one\ntwo", level=logging.ERROR)) == "<3>eventplane_mqtt.link: one\n<3>two"
    assert formatter.format(record("x", level=logging.CRITICAL)).startswith("<2>")
    assert formatter.format(record("x", level=logging.INFO)).startswith("<6>")
    assert formatter.format(record("x", level=logging.DEBUG)).startswith("<7>")


def test_repeated_complaints_are_left_out_and_counted() -> None:
    now = [0.0]
    repeats = RepeatFilter(lambda: now[0])
    passed = [repeats.filter(record("cloud: %s", number)) for number in range(REPEATS_PASSED + 7)]
    assert passed == [True] * REPEATS_PASSED + [False] * 7
    assert repeats.filter(record("another one"))
    now[0] = REPEAT_S
    late = record("cloud: %s", "again")
    assert repeats.filter(late)
    assert late.getMessage() == "cloud: again (7 more like it were left out)"
    following = record("cloud: %s", "again")
    assert repeats.filter(following)
    assert following.getMessage() == "cloud: again"


def test_a_rare_complaint_is_never_left_out() -> None:
    now = [0.0]
    repeats = RepeatFilter(lambda: now[0])
    for _ in range(5 * REPEATS_PASSED):
        assert repeats.filter(record("rare"))
        now[0] += REPEAT_S / REPEATS_PASSED
