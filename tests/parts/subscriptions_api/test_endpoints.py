"""Subscriptions of HTTPS endpoints: their consent, their settings, their key."""

import base64
import socket
from typing import Any

import pytest

from eventplane.contract.subscription import MAX_FILTER_BYTES, MAX_OWN, new_subscription, with_subscriptions
from eventplane.names import SUBSCRIBERS
from tests.endpoint import EndpointServer, Play, answer, says
from tests.http_api import Call
from tests.parts.subscriptions_api.conftest import INBOXES
from tests.plane import shipped_contract
from tests.unit.lambdas.support import Cloud

CONSENT = answer(200, webhook_allowed_origin="eventplane-dev")


def wanted(url: str, **more: Any) -> dict[str, Any]:
    return {"types": ["ring"], "protocol": "HTTP", "sink": url, **more}


def test_an_endpoint_that_consents_is_subscribed(call: Call, cloud: Cloud) -> None:
    with EndpointServer(CONSENT) as server:
        created = call("PUT", "rings", wanted(server.url()))
        assert created.status == 201
        assert created.body.items() > {"id": "rings", "filters": [], **wanted(server.url())}.items()
        (asked,) = server.received
        assert (asked.method, asked.headers["webhook-request-origin"]) == ("OPTIONS", "eventplane-dev")
        # The same sink again has consented already.
        assert call("PUT", "rings", wanted(server.url(), types=["knock"])).status == 200
        assert len(server.received) == 1
    (subscription,) = cloud.subscriptions.all()
    contract, refused = with_subscriptions(shipped_contract(), [subscription])
    assert refused == {}
    (route,) = (each for each in contract.routes if each.name == "carers-subscribes-rings")
    assert route.destination == f"{SUBSCRIBERS}.inbox"


def test_a_subscription_with_a_sink_keeps_one(call: Call, cloud: Cloud) -> None:
    """Without it the function that posts would know the subscription no more, and drop what waits for it."""
    with EndpointServer(CONSENT) as server:
        assert call("PUT", "rings", wanted(server.url())).status == 201
        before = cloud.subscriptions.all()
        refused = call("PUT", "rings", wanted(INBOXES["carers"], protocol="SQS"))
    assert refused.status == 400
    assert "another `id`" in refused.body["detail"]
    assert cloud.subscriptions.all() == before


def test_the_endpoint_limits_its_rate(call: Call) -> None:
    allowed = answer(200, webhook_allowed_origin="*", webhook_allowed_rate="60")
    with EndpointServer(allowed, allowed, allowed) as server:
        assert call("PUT", "a", wanted(server.url())).body["protocolsettings"] == {"requests_per_minute": 60}
        for id, rate in (("b", 30), ("c", 90)):
            settings = {"requests_per_minute": rate}
            answered = call("PUT", id, wanted(server.url(), protocolsettings=settings))
            assert answered.body["protocolsettings"] == {"requests_per_minute": min(rate, 60)}
        assert [each.headers.get("webhook-request-rate") for each in server.received] == [None, "30", "90"]


def test_a_higher_rate_needs_another_consent(call: Call) -> None:
    allowed = answer(200, webhook_allowed_origin="*", webhook_allowed_rate="60")
    sixty = {"requests_per_minute": 60}
    with EndpointServer(allowed, allowed) as server:
        for settings, asked in (({}, 1), ({"protocolsettings": sixty}, 1), ({}, 2)):
            assert call("PUT", "a", wanted(server.url(), **settings)).body["protocolsettings"] == sixty
            assert len(server.received) == asked


@pytest.mark.parametrize(
    "play",
    [
        answer(200),
        answer(200, webhook_allowed_origin="somebody.else"),
        answer(200, webhook_allowed_origin="*", webhook_allowed_rate="0"),
        answer(405),
        says(b"nonsense\r\n\r\n"),
    ],
)
def test_an_endpoint_without_consent_is_not_subscribed(call: Call, cloud: Cloud, play: Play) -> None:
    with EndpointServer(play, play) as server:
        for answered in (call("PUT", "rings", wanted(server.url())), call("POST", body=wanted(server.url()))):
            assert (answered.status, answered.body["problems"][0]["path"]) == (400, "sink")
    assert cloud.subscriptions.all() == frozenset()


def test_an_endpoint_that_does_not_answer_is_not_subscribed(call: Call) -> None:
    with EndpointServer() as server:
        gone = server.url()
    assert "does not answer" in call("POST", body=wanted(gone)).body["problems"][0]["message"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"sink": INBOXES["carers"]}, "sink"),
        ({"sink": None}, "sink"),
        ({"sink": "http://example.org/"}, "sink"),
        ({"sink": "https://10.0.0.1/"}, "sink"),
        ({"sink": "https://example.org:8443/"}, "sink"),
        ({"sink": f"https://example.org:{'9' * 1_900}/"}, "sink"),
        ({"sink": "https://a:b@example.org/"}, "sink"),
        ({"sink": "https://example.org/" + "x" * 2_000}, "sink"),
        ({"protocolsettings": {"method": "PUT"}}, "protocolsettings"),
        ({"protocolsettings": []}, "protocolsettings"),
        ({"protocolsettings": {"requests_per_minute": 0}}, "protocolsettings.requests_per_minute"),
        ({"protocolsettings": {"requests_per_minute": True}}, "protocolsettings.requests_per_minute"),
    ],
)
def test_wrong_member(call: Call, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], path: str) -> None:
    monkeypatch.setenv("EVENTPLANE_SINKS", "internet")
    answered = call("POST", body={**wanted("https://sink.invalid/"), **change})
    assert answered.status == 400
    assert [each["path"] for each in answered.body["problems"]] == [path]


def test_no_request_to_private_names(call: Call, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SINKS", "internet")
    with EndpointServer(CONSENT) as server:
        monkeypatch.setenv("EVENTPLANE_SINK_PORTS", f"[{server.port}]")
        inside = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: inside)
        answered = call("POST", body=wanted(f"https://127.0.0.1.nip.io:{server.port}/"))
        assert server.connections == 0
    (problem,) = answered.body["problems"]
    assert (answered.status, problem["path"]) == (400, "sink")
    assert problem["message"].startswith("127.0.0.1.nip.io leads to 127.0.0.1, which is not a public address")
    assert cloud.subscriptions.all() == frozenset()


def test_no_function_no_endpoint(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTPLANE_SINKS", "nowhere")
    with EndpointServer() as server:
        for answered in (call("POST", body=wanted(server.url())), call("PUT", "a", wanted(server.url()))):
            (problem,) = answered.body["problems"]
            assert (answered.status, problem["path"]) == (400, "protocol")
            assert "'subscribers'" in problem["message"]
            assert problem["remedy"] == "have it added and deployed, or use SQS"
        assert server.received == []
    assert call("OPTIONS").body["protocols"] == ["SQS"]
    assert call("PUT", "own", {"protocol": "SQS", "sink": INBOXES["carers"]}).status == 201


def test_no_consent_is_requested_for_what_cannot_be_stored(call: Call, cloud: Cloud) -> None:
    with EndpointServer() as server:
        long = wanted(server.url(), types=["x" * MAX_FILTER_BYTES])
        for answered in (call("POST", body=long), call("PUT", "rings", long)):
            assert (answered.status, answered.body["problems"][0]["path"]) == (400, "filter")
        own = cloud.subscriptions
        for at in range(MAX_OWN):
            own.write(new_subscription("carers", f"n{at}", {"sql": "TRUE"}, "2026-01-01T00:00:00Z"))
        one = wanted(server.url())
        assert [call("POST", body=one).status, call("PUT", "rings", one).status] == [409, 409]
        assert server.received == []


@pytest.mark.lost_answers
def test_each_subscription_has_a_key_of_its_own(call: Call, cloud: Cloud) -> None:
    master = base64.b64encode(b"m" * 48).decode()
    cloud.aws.secrets.create_secret(Name="webhook", SecretString=master)
    with EndpointServer(CONSENT, CONSENT) as server:
        for id in ("a", "b"):
            call("PUT", id, wanted(server.url()))
    one, other = (call("GET", f"{id}/signing-key").body["keys"] for id in ("a", "b"))
    assert one != other
    assert len(base64.b64decode(one[0])) == 32
    assert call("GET", "none/signing-key").status == 404
    call("PUT", "own", {"protocol": "SQS", "sink": INBOXES["carers"]})
    assert call("GET", "own/signing-key").status == 404


def test_without_the_planes_key_the_answer_is_503(call: Call) -> None:
    with EndpointServer(CONSENT) as server:
        call("PUT", "a", wanted(server.url()))
    assert call("GET", "a/signing-key").status == 503
