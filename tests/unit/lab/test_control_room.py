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
    def __init__(self, url: str, method: str, path: str, body: str | None = None, **headers: str) -> None:
        address = urlsplit(url)
        connection = HTTPConnection(str(address.hostname), address.port, timeout=10)
        connection.request(method, address.path + path, body, headers=headers)
        answer = connection.getresponse()
        self.status, self.headers, self.text = answer.status, answer.headers, answer.read().decode()
        connection.close()


def assert_refused(plane: FakePlane, url: str, **headers: str) -> None:
    for method, path in product(
        ("GET", "POST", "DELETE"),
        ("", "state", "offers", "send/bell", "ask/audit", "readers/desk", "faults/network", "x.ico"),
    ):
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
    assert [Answer(room.url, method, each).status for each in ("faults/network", "send/bell")] == [403, 403]
    assert plane.asked == []


def test_the_page_runs_its_own_script_only_and_is_in_no_frame(room: ControlRoom) -> None:
    answer = Answer(room.url, "GET", "")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert answer.text.count("<script>") == 1


def changed(room: ControlRoom, path: str, body: str | None = None, **headers: str) -> Answer:
    origin = room.url.rsplit("/", 2)[0]
    return Answer(room.url, "POST", path, body, Origin=origin, **headers)


def test_an_event_is_sent_as_its_sender(room: ControlRoom, plane: FakePlane) -> None:
    (offer, *_) = json.loads(Answer(room.url, "GET", "offers").text)
    answer = changed(room, f"send/{offer['sender']}", json.dumps({**offer["event"], "id": "mine"}))
    assert (answer.status, json.loads(answer.text)) == (200, {"id": "mine"})
    assert [each.id for each in plane.tally.last()] == ["mine"]


def test_nothing_to_send_is_a_list(
    room: ControlRoom, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page then says what to do."""
    monkeypatch.setattr(plane, "offers", tuple)
    assert json.loads(Answer(room.url, "GET", "offers").text) == []


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("send/bell", "{", "Expecting property name"),
        ("send/bell", "[]", "no JSON object"),
        ("send/bell", None, "Expecting value"),
        ("send/bell", '{"type": "a", "source": "/b", "a": NaN}', "NaN"),
        ("send/bell", "{}", "'source' is required"),
        ("send/bell", '{"type": "a", "source": "/b", "data": "' + "y" * 100_000 + '"}', "98304"),
        ("ask/show", "[]", "takes 1 words"),
        ("ask/show", "[1]", "takes 1 words"),
        ("ask/show", '{"a": 1}', "takes 1 words"),
        ("ask/audit", None, "the emulated cloud has ended"),
    ],
)
def test_what_is_wrong_is_said(
    room: ControlRoom, plane: FakePlane, path: str, body: str | None, problem: str
) -> None:
    answer = changed(room, path, body)
    assert answer.status == 409
    assert problem in json.loads(answer.text)["error"]
    assert plane.tally.last() == ()


@pytest.mark.parametrize("size", ["1048577", "9" * 5_000, "-1", "\u00b2"])
def test_a_large_request_is_not_read(room: ControlRoom, size: str) -> None:
    answer = changed(room, "send/bell", **{"Content-Length": size.encode().decode("latin-1")})
    assert (answer.status, "1,048,576 bytes at most" in answer.text) == (409, True)


@pytest.mark.parametrize("path", ["ask/format-the-disk", "faults/none", "send", "readers"])
def test_other_requests_find_nothing(room: ControlRoom, plane: FakePlane, path: str) -> None:
    assert changed(room, path, "[]").status == 404
    assert plane.asked == []


def test_a_fault_of_the_room_is_no_exception_on_the_screen(
    room: ControlRoom, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plane, "offers", lambda: 1 / 0)
    answer = Answer(room.url, "GET", "offers")
    assert answer.status == 500
    assert "the plane could not do that (division by zero)" in json.loads(answer.text)["error"]
