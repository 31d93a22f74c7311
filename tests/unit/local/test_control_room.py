"""The control room's server: whom it answers, and what it asks of the plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from local.control_room.plane import Fault, Stage
from local.control_room.server import BUTTONS, ControlRoom, PortTakenError
from tests.fake_plane import FakePlane


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def room(plane: FakePlane) -> Iterator[ControlRoom]:
    with ControlRoom(plane) as room:
        yield room


class Answer:
    def __init__(self, room: ControlRoom, method: str, path: str, **headers: str) -> None:
        address = urlsplit(room.url)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=10)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        self.status, self.headers, self.text = answer.status, answer.headers, answer.read().decode()
        connection.close()


def own(room: ControlRoom) -> dict[str, str]:
    return {"Origin": room.url.rstrip("/")}


def test_the_state_has_every_stage_and_what_was_sent(room: ControlRoom, plane: FakePlane) -> None:
    plane.strike(Fault.NETWORK)
    plane.send_alarm()
    answer = Answer(room, "GET", "/state")
    state = json.loads(answer.text)
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert state["stages"].keys() == set(Stage)
    assert state["stages"]["forwarder"]["waiting"] == 1
    assert state["counters"] == {
        "sent": 1, "due": 3, "received": 0, "lost": 0, "duplicates": 0, "waiting": 1,
    }  # fmt: skip
    assert state["active"] == ["network"]
    assert state["events"][0]["id"] == "alarm-1"


def test_its_page_answers_and_changes_the_plane(room: ControlRoom, plane: FakePlane) -> None:
    assert json.loads(Answer(room, "POST", "/alarm", **own(room)).text) == {"id": "alarm-1"}
    for fault in Fault:
        assert Answer(room, "POST", f"/faults/{fault}", **own(room)).status == 200
        assert Answer(room, "DELETE", f"/faults/{fault}", **own(room)).status == 200
    assert plane.asked == [(what, fault) for fault in Fault for what in ("strike", "heal")]
    assert BUTTONS.keys() == set(Fault)
    lasting = [fault for fault, (_, heal) in BUTTONS.items() if heal]
    assert lasting == [each for each in Fault if each.is_lasting]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Host": "rebound.example", "Origin": "http://rebound.example"},
    ],
)
def test_other_hosts_and_origins_are_refused(
    room: ControlRoom, plane: FakePlane, method: str, headers: dict[str, str]
) -> None:
    for path in ("/", "/state", "/alarm", "/faults/network"):
        answer = Answer(room, method, path, **headers)
        assert answer.status == 403
        assert "error" in json.loads(answer.text)
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert plane.asked == []
    assert plane.tally.last() == ()


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_change_without_an_origin_is_refused(room: ControlRoom, plane: FakePlane, method: str) -> None:
    assert Answer(room, method, "/faults/network").status == 403
    assert Answer(room, method, "/alarm").status == 403
    assert plane.asked == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("GET", "/../server.py"),
        ("POST", "/faults/everything"),
        ("POST", "/faults/"),
        ("POST", "/other/network"),
        ("DELETE", "/alarm"),
    ],
)
def test_what_is_not_there_is_not_found(room: ControlRoom, plane: FakePlane, method: str, path: str) -> None:
    assert Answer(room, method, path, **own(room)).status == 404
    assert plane.asked == []


def test_a_failure_of_the_plane_is_its_message(room: ControlRoom, plane: FakePlane) -> None:
    plane.is_broken = True
    answer = Answer(room, "GET", "/state")
    assert (answer.status, json.loads(answer.text)) == (
        409,
        {"error": "the emulated cloud has ended; see its log"},
    )


def test_the_page_runs_its_own_script_only_and_is_in_no_frame(room: ControlRoom) -> None:
    answer = Answer(room, "GET", "/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert answer.text.count("<script>") == 1


def test_a_taken_port_is_one_clear_error(room: ControlRoom, plane: FakePlane) -> None:
    port = urlsplit(room.url).port
    assert port is not None
    with pytest.raises(PortTakenError, match=f"port {port} of 127.0.0.1 is taken"):
        ControlRoom(plane, port)
