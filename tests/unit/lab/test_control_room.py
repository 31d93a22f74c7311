"""The control room's server: whom it answers, and what it asks of the plane."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import product
from urllib.parse import urlsplit

import pytest

from lab.control_room.server import ControlRoom
from tests.fake_plane import FakePlane


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def room(plane: FakePlane) -> Iterator[ControlRoom]:
    with ControlRoom(plane) as room:
        yield room


class Answer:
    def __init__(self, url: str, method: str, path: str, **headers: str) -> None:
        address = urlsplit(url)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=10)
        connection.request(method, address.path + path, headers=headers)
        answer = connection.getresponse()
        self.status, self.headers, self.text = answer.status, answer.headers, answer.read().decode()
        connection.close()


def assert_refused(plane: FakePlane, url: str, **headers: str) -> None:
    for method, path in product(("GET", "POST", "DELETE"), ("", "state", "alarm", "faults/network", "x.ico")):
        answer = Answer(url, method, path, **headers)
        assert answer.status == 403
        assert "error" in json.loads(answer.text)
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert plane.asked == []
    assert plane.tally.last() == ()


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
def test_other_origins_are_refused(room: ControlRoom, plane: FakePlane, headers: dict[str, str]) -> None:
    assert_refused(plane, room.url, **headers)


def test_a_request_without_the_secret_of_this_start_is_refused(room: ControlRoom, plane: FakePlane) -> None:
    base, secret = room.url.rstrip("/").rsplit("/", 1)
    with ControlRoom(plane) as other:
        assert other.url.rsplit("/", 2)[1] != secret
    for path in ("", secret[:-1], f"{secret}x", f"?{secret}"):
        assert_refused(plane, f"{base}/{path}/", Origin=base)
    assert Answer(base, "GET", f"/{secret}").status == 403


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_change_without_an_origin_is_refused(room: ControlRoom, plane: FakePlane, method: str) -> None:
    assert [Answer(room.url, method, each).status for each in ("faults/network", "alarm")] == [403, 403]
    assert plane.asked == []


def test_the_page_runs_its_own_script_only_and_is_in_no_frame(room: ControlRoom) -> None:
    answer = Answer(room.url, "GET", "")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert answer.text.count("<script>") == 1
