"""Dialling in virtual time: look-ups, and staggered attempts at the addresses of a name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from errno import ECONNREFUSED, EINPROGRESS, ENETUNREACH
from itertools import count
from math import inf
from typing import Any

import pytest

from eventplane_mqtt import dial as module
from eventplane_mqtt.dial import ANSWER_S, dial
from eventplane_mqtt.endpoint import MOST_ADDRESSES, STAGGER_S
from eventplane_mqtt.mailbox import Disconnected
from tests.unit.eventplane_mqtt.probe import ENDPOINT, SECONDS, Probe

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
        (socket.EAI_NONAME, "see that it is the right name"),
    ],
)
def test_a_look_up_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, code: int, remedy: str) -> None:
    def look_up(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(code, "words of the system")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reason = Probe(8883, host="abc.example").next(Disconnected).reason
    assert f"look-up of abc.example failed: words of the system; {remedy}" in reason
