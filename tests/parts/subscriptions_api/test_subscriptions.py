"""Subscriptions of HTTPS endpoints, and concurrent writers of one."""

import base64
import socket
from collections.abc import Callable
from os import urandom
from typing import Any

import pytest

from eventplane.contract.subscription import (
    MAX_FILTER_BYTES,
    MAX_OWN,
    Subscription,
    new_subscription,
    with_subscriptions,
)
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.names import SUBSCRIBERS
from eventplane.sinks import ANYWHERE
from eventplane_aws.tables import DynamoDbTables
from lambdas.common.http_api import if_match_names, if_none_match_names, tag_of
from parts.subscriptions_api.errors import LimitError, NotFoundError, PreconditionError, TakenError
from parts.subscriptions_api.service import ATTEMPTS, Conditions, SubscriptionService
from tests.endpoint import EndpointServer, Play, answer, says
from tests.fakes.faults import HookedClient
from tests.http_api import Call
from tests.parts.subscriptions_api.conftest import INBOXES
from tests.plane import shipped_contract
from tests.unit.lambdas.support import SUBSCRIPTIONS, Cloud

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


ALWAYS = Conditions()
TAG = tag_of(b"content")


def route_for(type: str) -> dict[str, Any]:
    return {"types": [type], "protocol": "SQS", "sink": INBOXES["carers"]}


@pytest.fixture
def service(cloud: Cloud) -> Callable[..., SubscriptionService]:
    """The service over a table in which one of `others` acts just before each of our writes."""

    def make(*others: Callable[[], object]) -> SubscriptionService:
        left = iter(others)

        def act() -> None:
            next(left, int)()

        dynamodb = HookedClient(HookedClient(cloud.dynamodb, "put_item", act), "delete_item", act)
        return SubscriptionService(
            table=SubscriptionTable(DynamoDbTables(dynamodb, urandom), SUBSCRIPTIONS),
            inboxes=INBOXES,
            contract=shipped_contract,
            consent=lambda _url, rate: rate,
            reach=ANYWHERE,
            clock=cloud.clock,
            random_bytes=urandom,
        )

    return make


def test_the_later_of_two_changes_wins(service: Any) -> None:
    other = service()
    other.update("carers", "news", route_for("first"), ALWAYS)
    ours, is_new = service(lambda: other.update("carers", "news", route_for("theirs"), ALWAYS)).update(
        "carers", "news", route_for("ours"), ALWAYS
    )
    assert not is_new
    assert other.retrieve("carers", "news") == ours


def test_the_second_of_two_conditional_changes_is_refused(service: Any) -> None:
    other = service()
    read, _ = other.update("carers", "news", route_for("first"), ALWAYS)
    match = Conditions(match=read.tag)
    # Also of a change between its reading and its writing.
    late = service(lambda: other.update("carers", "news", route_for("theirs"), match))
    for each in (late, service()):
        with pytest.raises(PreconditionError):
            each.update("carers", "news", route_for("ours"), match)
        with pytest.raises(PreconditionError):
            each.delete("carers", "news", match)
    theirs = other.retrieve("carers", "news")
    assert theirs.document["types"] == ["theirs"]
    other.delete("carers", "news", Conditions(match=f'"x", {theirs.tag}'))


@pytest.mark.lost_answers
def test_one_of_two_writers_creates_a_name(service: Any) -> None:
    other = service()
    late = service(lambda: other.update("carers", "news", route_for("theirs"), Conditions(none_match="*")))
    with pytest.raises(PreconditionError):
        late.update("carers", "news", route_for("ours"), Conditions(none_match="*"))
    with pytest.raises(PreconditionError):
        other.update("carers", "gone", route_for("ours"), Conditions(match="*"))
    assert [each.id for each in other.query("carers")] == ["news"]


@pytest.mark.lost_answers
def test_a_deleted_subscription_is_made_anew(service: Any) -> None:
    other = service()
    other.update("carers", "news", route_for("first"), ALWAYS)
    _, is_new = service(lambda: other.delete("carers", "news", ALWAYS)).update(
        "carers", "news", route_for("ours"), ALWAYS
    )
    assert is_new
    service(lambda: other.delete("carers", "news", ALWAYS)).delete("carers", "news", ALWAYS)
    with pytest.raises(NotFoundError):
        other.retrieve("carers", "news")


def test_a_writer_that_always_loses_gets_a_conflict(service: Any) -> None:
    other = service()
    other.update("carers", "news", route_for("first"), ALWAYS)
    busy = [
        lambda at=at: other.update("carers", "news", route_for(f"theirs{at}"), ALWAYS)
        for at in range(ATTEMPTS)
    ]
    with pytest.raises(TakenError):
        service(*busy).update("carers", "news", route_for("ours"), ALWAYS)


def test_two_concurrent_creations_do_not_exceed_the_quota(service: Any, cloud: Cloud) -> None:
    own = cloud.subscriptions
    for number in range(MAX_OWN - 1):
        own.write(new_subscription("carers", f"n{number}", {"exact": {"type": "t"}}, "2026-01-01T00:00:00Z"))
    other = service()
    late = service(lambda: other.create("carers", route_for("theirs")))
    with pytest.raises(LimitError):
        late.create("carers", route_for("ours"))
    kept: list[Subscription] = own.of("carers")
    assert len(kept) == MAX_OWN
    assert any("theirs" in each.document for each in kept)


@pytest.mark.parametrize(
    ("condition", "strongly", "weakly"),
    [
        (tag_of(b"other"), False, False),
        (TAG, True, True),
        (f'"other" , {TAG}', True, True),
        (f"W/{TAG}", False, True),
        (f'W/"other",W/{TAG}', False, True),
        ("*", True, True),
        ('"other"', False, False),
        (TAG.strip('"'), False, False),
        ("", False, False),
    ],
)
def test_if_match_compares_strongly(condition: str, strongly: bool, weakly: bool) -> None:
    assert (if_match_names(condition, TAG), if_none_match_names(condition, TAG)) == (strongly, weakly)
    assert (if_match_names(condition, None), if_none_match_names(condition, None)) == (False, False)
