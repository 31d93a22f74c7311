"""A link: its endpoint, dialling, and dialling again."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from errno import ECONNREFUSED, EINPROGRESS, ENETUNREACH
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from eventplane_mqtt import Login
from eventplane_mqtt import dial as module
from eventplane_mqtt.dial import ANSWER_S, dial
from eventplane_mqtt.endpoint import (
    MAX_PASSWORD_BYTES,
    MOST_ADDRESSES,
    STAGGER_S,
    PasswordFileError,
    TlsFileError,
    is_private,
)
from eventplane_mqtt.mailbox import Disconnected, LinkName
from eventplane_mqtt.reconnection import Backoff, Link
from lab.things import Authority
from tests.unit.edge.fakes import Wires
from tests.unit.eventplane_mqtt.probe import ENDPOINT, SECONDS, Probe, files


def stat_of(mode: int, owner: int) -> os.stat_result:
    """What stat says of a regular file."""
    return os.stat_result((0o100000 | mode, 1, 1, 1, owner, 1, 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("mode", "owner", "private"),
    [
        (0o600, 1000, True),
        (0o400, 1000, True),
        (0o600, 0, True),
        # What systemd makes of LoadCredential= for a service with a user of its own.
        (0o440, 0, True),
        (0o640, 0, True),
        (0o440, 1000, False),
        (0o640, 1000, False),
        (0o660, 0, False),
        (0o650, 0, False),
        (0o644, 0, False),
        (0o604, 0, False),
        (0o601, 1000, False),
    ],
)
def test_a_private_file_is_its_owners(mode: int, owner: int, private: bool) -> None:
    assert is_private(stat_of(mode, owner)) is private


def login(folder: Path, content: bytes, mode: int = 0o600) -> Login:
    file = folder / "password"
    file.write_bytes(content)
    file.chmod(mode)
    return Login("me", file)


LONGEST = b"\xff" * MAX_PASSWORD_BYTES


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"secret", b"secret"),
        (b"secret\n", b"secret"),
        (b"secret\r\n", b"secret"),
        (LONGEST + b"\n", LONGEST),
    ],
)
def test_a_password_is_a_bounded_line(tmp_path: Path, content: bytes, password: bytes) -> None:
    assert login(tmp_path, content).password() == password


@pytest.mark.parametrize("content", [b"", b"\n", b"secret\nsecond\n", b"secret" * MAX_PASSWORD_BYTES])
def test_a_malformed_password_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PasswordFileError, match="one line") as error:
        login(tmp_path, content).password()
    assert "secret" not in str(error.value)


def test_a_password_file_that_others_may_read_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    it = login(tmp_path, b"secret", 0o604)
    with pytest.raises(PasswordFileError) as error:
        it.password()
    assert (error.value.path, error.value.remedy) == (it.password_file, f"chmod 600 {it.password_file}")
    with pytest.raises(PasswordFileError, match="No such file"):
        Login("me", tmp_path / "absent").password()


@pytest.mark.parametrize("mode", [0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(authority: Authority, mode: int) -> None:
    identity = authority.issue("c")
    identity.key.chmod(mode)
    with pytest.raises(TlsFileError) as error:
        files(authority, identity).context()
    assert (error.value.path, error.value.remedy) == (identity.key, f"chmod 600 {identity.key}")
    probe = Probe(1, tls=files(authority, identity))
    assert f"chmod 600 {identity.key}" in probe.next(Disconnected).reason


def test_each_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    good = files(authority, authority.issue("c"))
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.touch(0o600)
    garbage.write_text("-----BEGIN GARBAGE-----\n")
    other = authority.issue("other").key
    cases: list[tuple[dict[str, Path], Path]] = [
        *(({name: bad}, bad) for name in ("ca", "certificate", "key") for bad in (missing, garbage)),
        ({"key": other}, other),
    ]
    for change, named in cases:
        with pytest.raises(TlsFileError) as error:
            good._replace(**change).context()
        assert str(named) in str(error.value)
        assert error.value.remedy


def test_only_the_given_authority_is_trusted(authority: Authority) -> None:
    context = files(authority, authority.issue("c")).context()
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


V4, V6 = socket.AF_INET, socket.AF_INET6
TIMEOUT_S = ENDPOINT.connect_timeout_s


@dataclass
class Net:
    """Virtual time, and what answers at each address of the name: after how long, with which error."""

    answers: list[tuple[socket.AddressFamily, float, int]]
    now: float = 0.0
    begun: list[tuple[int, float]] = field(default_factory=list)
    open: dict[int, VirtualSocket] = field(default_factory=dict)

    def look_up(self, *_: object, **__: object) -> list[Any]:
        return [(each[0], socket.SOCK_STREAM, 0, "", number) for number, each in enumerate(self.answers)]

    def wait(self, files: Collection[int], _: int, deadline: float) -> Collection[int]:
        assert files
        due = min(self.open[each].answers_at for each in files)
        self.now = min(max(due, self.now), deadline)
        return [each for each in files if self.open[each].answers_at <= self.now] if due < deadline else ()


class VirtualSocket:
    def __init__(self, net: Net, file: int, family: socket.AddressFamily) -> None:
        self.family, self._net, self._file = family, net, file
        self.number, self.answers_at, self.error = -1, inf, 0
        net.open[file] = self

    def connect_ex(self, number: int) -> int:
        _, after_s, self.error = self._net.answers[number]
        self.number, self.answers_at = number, self._net.now + after_s
        self._net.begun.append((number, self._net.now))
        return EINPROGRESS if after_s else self.error

    def fileno(self) -> int:
        return self._file

    def getsockopt(self, *_: int) -> int:
        return self.error

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: int) -> None: ...

    def close(self) -> None:
        self._net.open.pop(self._file, None)


@pytest.fixture
def make_net(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Net]:
    def make(*answers: tuple[socket.AddressFamily, float, int]) -> Net:
        net, files = Net([*answers]), count(3)
        monkeypatch.setattr(module, "monotonic", lambda: net.now)
        monkeypatch.setattr(socket, "getaddrinfo", net.look_up)
        monkeypatch.setattr(socket, "socket", lambda family, *_: VirtualSocket(net, next(files), family))
        return net

    return make


def reached(net: Net) -> int:
    """The number of the address that was reached; all others are closed."""
    transport = dial(ENDPOINT, net.wait)
    (left,) = net.open.values()
    assert transport.fileno() == left.fileno()
    return left.number


@pytest.mark.parametrize("round_trip_s", [0.1, 1.8, 3.0, 9.9])
@pytest.mark.parametrize("dead", [0, 7, 15])
def test_one_live_address_is_reached(make_net: Callable[..., Net], round_trip_s: float, dead: int) -> None:
    net = make_net(*[(V4, inf, 0)] * dead, (V4, round_trip_s, 0))
    assert reached(net) == dead
    assert net.now == pytest.approx(dead * STAGGER_S + round_trip_s)
    assert [at for _, at in net.begun] == [number * STAGGER_S for number in range(dead + 1)]


def test_the_first_to_answer_wins_and_no_attempt_begins_after_it(make_net: Callable[..., Net]) -> None:
    net = make_net((V4, 1.0, 0), (V4, 0.1, 0), (V4, 0.1, 0))
    assert reached(net) == 1
    assert net.begun == [(0, 0.0), (1, STAGGER_S)]


def test_families_take_turns_from_that_of_the_first(make_net: Callable[..., Net]) -> None:
    net = make_net(*[(V6, inf, 0)] * 3, *[(V4, inf, 0)] * 2)
    with pytest.raises(TimeoutError, match="no answer in time"):
        dial(ENDPOINT, net.wait)
    assert [number for number, _ in net.begun] == [0, 3, 1, 4, 2]
    assert net.now == 4 * STAGGER_S + TIMEOUT_S
    assert not net.open


@pytest.mark.parametrize("after_s", [0.0, 0.01])
def test_a_refusal_begins_the_next_attempt(make_net: Callable[..., Net], after_s: float) -> None:
    net = make_net((V6, after_s, ENETUNREACH), (V6, after_s, ECONNREFUSED), (V4, 0.0, 0))
    assert reached(net) == 2
    assert net.now < STAGGER_S


@pytest.mark.parametrize(("addresses", "reason"), [(0, "no address"), (3, "refused"), (100, "refused")])
def test_attempts_are_bounded(make_net: Callable[..., Net], addresses: int, reason: str) -> None:
    net = make_net(*[(V4, 0.01, ECONNREFUSED)] * addresses)
    with pytest.raises(OSError, match=reason):
        dial(ENDPOINT, net.wait)
    assert len(net.begun) == min(addresses, MOST_ADDRESSES)
    assert not net.open


def test_a_silent_address_is_asked_anew(make_net: Callable[..., Net]) -> None:
    net = make_net((V4, inf, 0))
    with pytest.raises(TimeoutError):
        dial(replace(ENDPOINT, connect_timeout_s=120.0), net.wait)
    assert net.now == ANSWER_S


def test_a_timeout_shorter_than_the_pause_leaves_each_address_its_time(make_net: Callable[..., Net]) -> None:
    net = make_net((V4, inf, 0), (V4, 0.09, 0))
    dial(replace(ENDPOINT, connect_timeout_s=0.1), net.wait)
    assert net.begun == [(0, 0.0), (1, 0.1)]


def test_a_name_is_looked_up_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        answer.wait(SECONDS)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for _ in range(5):
        reason = Probe(8883, host="abc.example", connect_timeout_s=0.05).next(Disconnected).reason
        assert "look-up of abc.example gave no answer in 0.05 s; see the device's name servers" in reason
        assert [each.name for each in threading.enumerate()].count("look-up-abc.example") == 1
    waiting = Probe(8883, host="abc.example", connect_timeout_s=SECONDS)
    answer.set()
    assert "no address" in waiting.next(Disconnected).reason


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (socket.EAI_AGAIN, "see the device's name servers"),
        (socket.EAI_FAIL, "see the device's name servers"),
        (socket.EAI_NODATA, "see that it is the right name"),
        (socket.EAI_NONAME, "see that it is the right name"),
    ],
)
def test_a_look_up_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, code: int, remedy: str) -> None:
    def look_up(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(code, "words of the system")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reason = Probe(8883, host="abc.example").next(Disconnected).reason
    assert f"look-up of abc.example failed: words of the system; {remedy}" in reason


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def link(wires: Wires) -> Link:
    return Link(LinkName.CLOUD, wires.dial, Backoff(1.0, 60.0, Random(1).random), connect_timeout_s=5.0)


def test_an_unanswered_attempt_ends(link: Link, wires: Wires, caplog: pytest.LogCaptureFixture) -> None:
    link.tick(0.0)
    link.tick(33.9)
    assert not wires.last.abandoned
    link.tick(34.0)
    assert wires.last.abandoned
    assert "neither connected nor refused within 34 s" in caplog.text
    due = link.deadline()
    assert due is not None
    link.tick(due)
    assert wires.last.generation == 2


@pytest.mark.source("C10")
def test_a_lost_connection_is_dialled_again_after_the_backoff(link: Link, wires: Wires) -> None:
    link.tick(0.0)
    assert link.connected(1, 0.0)
    assert link.deadline() is None
    assert link.disconnected(1, "gone", 50.0)
    due = link.deadline()
    assert due is not None
    assert 51.0 <= due <= 53.0
    link.tick(due - 0.01)
    assert len(wires.all) == 1
    link.tick(due)
    assert wires.last.generation == 2


@pytest.mark.parametrize(
    ("ends_at", "reason", "is_named"),
    [
        ((1.0, 30.0, 59.0), "connection lost: the broker hung up", True),
        ((1.0, 30.0, 92.0), "connection lost: the broker hung up", False),
        ((1.0, 30.0), "connection lost: the broker hung up", False),
        ((1.0, 30.0, 59.0), "connection lost: timed out", False),
    ],
)
def test_two_programs_that_take_the_session_from_each_other_are_named(
    link: Link,
    wires: Wires,
    caplog: pytest.LogCaptureFixture,
    ends_at: tuple[float, ...],
    reason: str,
    is_named: bool,
) -> None:
    for at in ends_at:
        link.tick(link.deadline() or 0.0)
        link.connected(wires.last.generation, at)
        link.disconnected(wires.last.generation, reason, at)
    assert ("another program connects with the same client id" in caplog.text) is is_named


def test_a_connection_that_drops_at_once_counts_as_a_failed_attempt(link: Link, wires: Wires) -> None:
    now, dialled = 0.0, []
    for _ in range(12):
        link.tick(now)
        dialled.append(now)
        link.connected(wires.last.generation, now)
        link.disconnected(wires.last.generation, "gone", now)
        now = link.deadline() or 0.0
    waits = [later - earlier for earlier, later in itertools.pairwise(dialled)]
    assert min(waits) >= 1.0
    assert max(waits) > 10.0
    assert link.connects == 12


def test_an_urgent_event_waits_at_most_five_times_the_shortest_delay(link: Link, wires: Wires) -> None:
    now, waits = 0.0, []
    for _ in range(30):
        link.tick(now)
        ended = now
        link.disconnected(wires.last.generation, "gone", ended)
        link.hurry()
        now = link.deadline() or 0.0
        waits.append(now - ended)
    assert min(waits) >= 1.0
    assert max(waits) <= 5.0
    link.tick(now)
    due = link.deadline()
    link.hurry()
    assert link.deadline() == due, "an attempt that is under way is not given up sooner"


def test_a_connection_that_was_up_for_the_longest_backoff_resets_it(link: Link, wires: Wires) -> None:
    now = 0.0
    for stood in [0.0] * 10 + [60.0]:
        link.tick(now)
        link.connected(wires.last.generation, now)
        now += stood
        link.disconnected(wires.last.generation, "gone", now)
        last, now = now, link.deadline() or 0.0
    assert now - last <= 3.0


def test_reports_of_an_earlier_connection_are_ignored(link: Link) -> None:
    link.tick(0.0)
    link.disconnected(1, "gone", 0.0)
    link.tick(60.0)
    assert not link.connected(1, 0.0)
    assert not link.disconnected(1, "gone twice", 61.0)
    assert link.connected(2, 61.0)


def test_an_acknowledgement_goes_only_over_the_connection_of_its_message(link: Link, wires: Wires) -> None:
    link.tick(0.0)
    link.connected(1, 0.0)
    link.acknowledge(1, 7)
    link.disconnected(1, "gone", 0.0)
    link.acknowledge(1, 8)
    link.tick(60.0)
    link.acknowledge(1, 9)
    link.acknowledge(2, 1)
    assert [wire.acknowledged for wire in wires.all] == [[7], [1]]


@pytest.mark.parametrize("up", [True, False])
def test_a_closed_link_stays_closed(link: Link, wires: Wires, up: bool) -> None:
    link.tick(0.0)
    if up:
        link.connected(1, 0.0)
    link.close(1.0)
    assert (wires.last.closed, wires.last.abandoned) == (up, not up)
    link.tick(1_000.0)
    assert link.deadline() is None
    assert len(wires.all) == 1


def test_publishing_while_down_is_an_error(link: Link) -> None:
    with pytest.raises(RuntimeError, match="down"):
        link.connection.publish("topic", b"")


@pytest.mark.source("C10")
def test_the_backoff_grows_to_its_bound_and_never_undercuts_the_budget() -> None:
    backoff = Backoff(1.0, 60.0, Random(1).random)
    for failures, ceiling in [(1, 2.0), (3, 8.0), (6, 60.0), (10_000, 60.0)]:
        delays = [backoff.delay_s(failures) for _ in range(200)]
        assert min(delays) >= 1.0
        assert ceiling / 2 < max(delays) <= 1.0 + ceiling
