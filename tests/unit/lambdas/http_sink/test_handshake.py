"""Asking an endpoint for its consent before it gets events."""

from __future__ import annotations

import socket

import pytest

from lambdas.http_sink.__main__ import main
from local.ports import free_port
from tests.endpoint import EndpointServer, answer

ORIGIN = "eventplane-dev-alarm-centre"


@pytest.mark.parametrize(
    ("allowed", "rate", "status", "said"),
    [
        ({"webhook_allowed_origin": ORIGIN}, None, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "*"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "120"}, 100, 0, "120 requests a minute"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60"}, 100, 1, "`requests_per_minute: 60`"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60"}, None, 1, "`requests_per_minute: 60`"),
        # More than a limit says, and more than int() converts.
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "60001"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "9" * 4_301}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "-60"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "*", "webhook_allowed_rate": "\u00b2"}, 100, 0, "consent\n"),
        ({"webhook_allowed_origin": "somebody.else"}, None, 1, "no consent: HTTP 200"),
        ({"allow": "OPTIONS, POST"}, None, 1, "no consent: HTTP 200"),
    ],
)
def test_only_the_header_is_a_consent(
    allowed: dict[str, str], rate: int | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rate", str(rate)] if rate else []
    with EndpointServer(answer(200, **allowed)) as server:
        assert main([server.url(), "--origin", ORIGIN, *words]) == status
    assert said in capsys.readouterr().out
    (request,) = server.received
    assert (request.method, request.target) == ("OPTIONS", "/events?site=7")
    assert request.headers["webhook-request-origin"] == ORIGIN
    assert request.headers.get("webhook-request-rate") == (str(rate) if rate else None)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://events.example.com/v1", "is not https://"),
        ("https://10.0.0.1/v1", "is not a public address"),
        ("https://a:b@events.example.com/", "carries credentials"),
        ("events", "is not a URL with a host"),
    ],
)
def test_an_address_that_no_deployment_takes_is_refused(
    url: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([url, "--origin", ORIGIN])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_host_that_does_not_exist_is_said_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert main(["https://nowhere.example.com/v1", "--origin", ORIGIN]) == 1
    out = capsys.readouterr().out
    assert "its host name has no address; see that the endpoint is up, and its address" in out
    assert "gaierror" not in out


def test_an_endpoint_that_is_down_gives_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"http://127.0.0.1:{free_port()}/", "--origin", ORIGIN]) == 1
    assert "no consent: ConnectionRefusedError" in capsys.readouterr().out
