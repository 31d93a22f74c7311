"""The control room's server: whom it answers, and what it asks of the plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from local.control_room.server import ControlRoom
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


def test_the_page_runs_its_own_script_only_and_is_in_no_frame(room: ControlRoom) -> None:
    answer = Answer(room, "GET", "/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert answer.text.count("<script>") == 1
