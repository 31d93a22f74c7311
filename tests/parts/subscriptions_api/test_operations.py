"""Create, retrieve, query, update, delete, with the draft's errors."""

import os
from os import urandom
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventplane.contract import Place
from eventplane.contract.filter_reader import MAX_FILTER_DEPTH
from eventplane.contract.subscription import (
    MAX_FILTER_BYTES,
    MAX_NAME,
    MAX_OWN,
    new_subscription,
    subscribable,
    subscribed_routes,
    with_subscriptions,
)
from eventplane.envelope import write_event
from eventplane.filter_texts import to_document
from eventplane.filters import DIALECTS
from eventplane.function_settings import ContractSettings
from eventplane.limits import MAX_ATTRIBUTE_NAME
from eventplane.router import Router
from eventplane_aws.tables import DynamoDbTables
from lambdas.router.wiring import contract_in_force
from parts.subscriptions_api import handler
from parts.subscriptions_api.document import PROTOCOLS
from parts.subscriptions_api.handler import METHODS
from tests import endpoint
from tests.fakes.faults import FailingClient
from tests.http_api import Call, send
from tests.parts.subscriptions_api.conftest import INBOXES
from tests.plane import shipped_contract
from tests.unit.lambdas.support import DAWN, SUBSCRIPTIONS, TABLE, Cloud, figures

NEWS = {"exact": {"type": "org.example.news.v1"}}
WANTED = {"filters": [NEWS], "protocol": "SQS", "sink": INBOXES["carers"]}

ALARMS = {"prefix": {"type": "org.eventplane.alarm."}}


def within(filter: object, participant: str = "carers") -> object:
    """The filter of a subscription of `participant` to `filter`."""
    return {"all": [subscribable(shipped_contract(), participant), filter]}


def test_a_subscription_lives_from_create_to_delete(call: Call, cloud: Cloud) -> None:
    created = call("POST", body={**WANTED, "id": "mine"})
    id = created.body["id"]
    assert id != "mine", "the plane chooses"
    assert (created.status, created.body) == (201, {"id": id, **WANTED, "effectivefilter": within(NEWS)})
    assert created.headers["Location"] == f"/participants/carers/subscriptions/{id}"

    found = call("GET", id)
    assert (found.status, found.body, found.headers["ETag"]) == (200, created.body, created.headers["ETag"])
    assert call("GET").body == [created.body]
    assert call("GET", participant="family-app").body == []
    assert call("GET", id, participant="family-app").status == 404

    changed = call("PUT", id, {**WANTED, "types": ["a", "b"]})
    assert (changed.status, changed.body["types"]) == (200, ["a", "b"])
    assert changed.headers["ETag"] != created.headers["ETag"]
    assert call("GET", id).body == changed.body

    deleted = call("DELETE", id)
    assert (deleted.status, deleted.body) == (200, changed.body)
    assert call("GET", id).status == 404
    assert call("DELETE", id).status == 404
    assert cloud.subscriptions.all() == frozenset()


def test_every_request_is_counted(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert [call("GET").status, call("GET", "none").status] == [200, 404]
    counted = [figures(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert counted == [{"Requests": 1}] * 2


def test_put_creates_under_a_name_and_is_idempotent(call: Call) -> None:
    first, again = (call("PUT", "news", WANTED) for _ in range(2))
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    assert first.headers["ETag"] == again.headers["ETag"]
    assert call("PUT", "news", {**WANTED, "id": "other"}).status == 400
    assert call("PUT", "No Name", WANTED).body["problems"][0]["path"] == "name"


def test_a_foreign_subscription_keeps_its_age(call: Call, cloud: Cloud) -> None:
    cloud.subscriptions.write(new_subscription("carers", "news", NEWS, "2020-01-01T00:00:00.000Z"))
    shown = call("GET", "news").body
    assert shown == {"id": "news", **WANTED, "effectivefilter": within(NEWS)}
    # What was answered can be sent again.
    assert call("PUT", "news", shown).body == shown
    (kept,) = cloud.subscriptions.all()
    assert kept.created_at == "2020-01-01T00:00:00.000Z"


@pytest.mark.lost_answers
@pytest.mark.parametrize(
    ("method", "id", "status", "left"),
    [
        ("POST", None, 201, 2),
        ("PUT", "other", 201, 2),
        ("PUT", "news", 200, 1),
        ("DELETE", "news", 200, 0),
    ],
)
def test_what_is_done_is_answered_so(
    call: Call, cloud: Cloud, method: str, id: str | None, status: int, left: int
) -> None:
    assert call("PUT", "news", {**WANTED, "types": ["before"]}).status == 201
    assert call(method, id, None if method == "DELETE" else WANTED).status == status
    assert len(cloud.subscriptions.all()) == left


EVENT = {"id": "1", "source": "/bells/1", "type": "ring", "subject": "front door"}


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ({}, True),
        ({"filters": []}, True),
        ({"source": "/bells/1"}, True),
        ({"source": "/bells/2"}, False),
        ({"types": ["knock", "ring"]}, True),
        ({"types": ["knock"]}, False),
        ({"types": ["ring"], "source": "/bells/2"}, False),
        ({"filters": [{"prefix": {"subject": "front"}}, {"suffix": {"subject": "door"}}]}, True),
        ({"filters": [{"prefix": {"subject": "front"}}, {"suffix": {"subject": "gate"}}]}, False),
        ({"filters": [{"any": [{"exact": {"type": "x"}}, {"sql": "subject LIKE '%door'"}]}]}, True),
        ({"filters": [{"not": {"all": [{"exact": {"type": "ring"}}]}}]}, False),
    ],
)
def test_all_conditions_must_match(call: Call, cloud: Cloud, wanted: dict[str, Any], taken: bool) -> None:
    sink = {"protocol": "SQS", "sink": INBOXES["carers"]}
    body = call("POST", body={**sink, **wanted}).body
    effective = body.pop("effectivefilter")
    assert body == {"id": body["id"], "filters": [], **sink, **wanted}
    contract, refused = with_subscriptions(shipped_contract(), cloud.subscriptions.all())
    assert refused == {}
    (route,) = subscribed_routes(contract)
    assert (route.name, to_document(route.filter)) == (f"carers-subscribes-{body['id']}", effective)
    routes = Router(contract, Place.CLOUD).route(write_event(EVENT))
    assert (route.name in {each.name for each in routes}) is taken


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"protocol": "MQTT5"}, "protocol"),
        ({"protocol": "sqs"}, "protocol"),
        ({"protocol": ["SQS"]}, "protocol"),
        ({"protocol": None}, "protocol"),
        ({"sink": None}, "sink"),
        ({"sink": INBOXES["family-app"]}, "sink"),
        ({"filters": [{"regex": {"type": "x"}}]}, "filters[0].regex"),
        ({"filters": [NEWS, {"sql": "type = ("}]}, "filters[1].sql"),
        ({"filters": [{"sql": "NO_SUCH(1)"}]}, "filters[0].sql"),
        ({"filters": [{"exact": {"type": ""}}]}, "filters[0].exact.type"),
        ({"filters": [{"sql": f"subject LIKE '%{'a' * 4_000}b%'"}]}, "filters[0]"),
        ({"filters": [{"sql": f"{'CONCAT(id,' * 5}id{')' * 5} = 'x'"}]}, "filters[0].sql"),
        # Each filter of the list may, all of them together may not.
        ({"filters": [{"sql": "LOWER(subject) = 'x'"}] * 9}, "filter"),
        ({"filters": [{"all": []}]}, "filters[0].all"),
        ({"filters": NEWS}, "filters"),
        ({"filters": [{"exact": {"type": "x" * MAX_FILTER_BYTES}}]}, "filter"),
        ({"source": ""}, "source"),
        ({"source": 5}, "source"),
        ({"types": []}, "types"),
        ({"types": [""]}, "types"),
        ({"config": {"interval": 5}}, "config"),
        ({"protocolsettings": {"qos": 1}}, "protocolsettings"),
        ({"sinkcredential": {"credentialtype": "PLAIN"}}, "sinkcredential"),
    ],
)
def test_a_wrong_member_is_named(call: Call, cloud: Cloud, change: dict[str, Any], path: str) -> None:
    for answer in (call("POST", body={**WANTED, **change}), call("PUT", "news", {**WANTED, **change})):
        assert (answer.status, answer.headers["Content-Type"]) == (400, "application/problem+json")
        assert [each["path"] for each in answer.body["problems"]] == [path]
        remedy = answer.body["problems"][0]["remedy"]
        assert remedy
        assert "sink" not in change or remedy == f"write {INBOXES['carers']}"
    assert cloud.subscriptions.all() == frozenset()


def test_the_cost_of_all_filters_of_a_participant_is_bounded(call: Call, cloud: Cloud) -> None:
    costly = {**WANTED, "filters": [{"sql": f"subject LIKE '%{'x' * 90}%'"}]}
    assert [call("PUT", name, costly).status for name in ("a", "b")] == [201, 201]
    for answer in (call("POST", body=costly), call("PUT", "c", costly)):
        assert (answer.status, answer.body["title"]) == (409, "quota")
        assert "steps for one event" in answer.body["detail"]
    assert call("PUT", "a", costly).status == 200  # it does not count twice
    assert call("PUT", "c", WANTED).status == 201
    assert call("PUT", "c", costly).status == 409
    assert {each.name for each in cloud.subscriptions.of("carers")} == {"a", "b", "c"}


@pytest.mark.parametrize("body", ["", "{", "[]", "1", "null", '{"a": 1, "a": 2}', '{"a": NaN}', "[" * 5_000])
def test_a_malformed_body_is_refused(call: Call, body: str) -> None:
    assert call("POST", body=body).status == 400


def test_a_body_must_be_json(call: Call) -> None:
    assert call("POST", body=WANTED, content_type="text/plain").status == 415
    assert call("POST", body=WANTED, content_type="application/json; charset=utf-8").status == 201


def test_only_cloud_services_in_use_are_found(call: Call) -> None:
    for method, id in (("GET", None), ("POST", None), ("GET", "a"), ("PUT", "a"), ("DELETE", "a")):
        answer = call(method, id, WANTED if method in ("POST", "PUT") else None, participant="call-service")
        assert (answer.status, answer.body["title"]) == (404, "not found")
    assert call("GET", "none").body == {
        "type": "urn:eventplane:problem:not_found",
        "title": "not found",
        "status": 404,
        "detail": "carers has no subscription 'none'; query which there are",
        "problems": [],
    }
    assert send(handler.handle, "GET", "/elsewhere").status == 404


def test_each_path_lists_its_methods(call: Call) -> None:
    for id, methods in ((None, "GET, POST, OPTIONS"), ("news", "GET, PUT, DELETE, OPTIONS")):
        answer = call("OPTIONS", id)
        assert (answer.status, answer.headers["Allow"]) == (200, methods)
        assert answer.body["filters"] == list(DIALECTS)
        refused = call("PATCH", id, WANTED)
        assert (refused.status, refused.headers["Allow"]) == (405, methods)


def test_a_participant_has_a_quota_of_subscriptions(call: Call, cloud: Cloud) -> None:
    for number in range(MAX_OWN):
        cloud.subscriptions.write(new_subscription("carers", f"n{number}", NEWS, DAWN))
    for answer in (call("POST", body=WANTED), call("PUT", "one-more", WANTED)):
        assert (answer.status, answer.body["title"]) == (409, "quota")
    assert call("PUT", "n1", WANTED).status == 200
    alarms = {**WANTED, "filters": [ALARMS], "sink": INBOXES["family-app"]}
    assert call("POST", body=alarms, participant="family-app").status == 201
    call("DELETE", "n1")
    assert call("POST", body=WANTED).status == 201
    assert len(cloud.subscriptions.of("carers")) == MAX_OWN


def test_subscriptions_have_a_quota(call: Call, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it routers would leave the subscription out."""
    monkeypatch.setattr("parts.subscriptions_api.service.MAX_SUBSCRIPTIONS", 2)
    cloud.subscriptions.write(new_subscription("family-app", "n", NEWS, DAWN))
    assert call("PUT", "n1", WANTED).status == 201
    for answer in (call("POST", body=WANTED), call("PUT", "one-more", WANTED)):
        assert (answer.status, answer.body["title"]) == (409, "quota")
        assert "the plane has 2 subscriptions" in answer.body["detail"]
    assert call("PUT", "n1", WANTED).status == 200


def test_an_unread_table_is_a_503(call: Call, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract that came with the code may allow what was published since does not."""
    settings = ContractSettings.read(os.environ)
    for client, method, detail in (
        (FailingClient(cloud.dynamodb, targets={TABLE}), "PUT", "the contract in force is not known yet"),
        (FailingClient(cloud.dynamodb, targets={SUBSCRIPTIONS}), "GET", "the table does not answer"),
    ):
        in_force = contract_in_force(
            cloud.contract, settings, DynamoDbTables(client, urandom), handler._InForce
        )
        monkeypatch.setattr(handler, "contract_in_force", lambda *_, made=in_force: made)
        monkeypatch.setattr(handler, "tables", lambda made=client: DynamoDbTables(made, urandom))
        handler.service.cache_clear()
        answer = call(method, "news", WANTED if method == "PUT" else None)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert answer.body["detail"] == f"{detail}; try again"
    assert cloud.subscriptions.all() == frozenset()


def posted(call: Call, body: dict[str, Any]) -> Any:
    """What the API answers the family's app that wants events at an endpoint of its own."""
    with endpoint.EndpointServer(endpoint.answer(200, webhook_allowed_origin="*")) as server:
        sink = {"protocol": "HTTP", "sink": server.url()}
        return call("PUT", "all", {**body, **sink}, participant="family-app")


def test_a_subscription_to_everything_is_limited_by_may_subscribe(call: Call, cloud: Cloud) -> None:
    created = posted(call, {"filters": [{"sql": "TRUE"}]})
    assert created.status == 201
    assert created.body["effectivefilter"] == within({"sql": "TRUE"}, "family-app")
    # Also of an item that the participant wrote without the API.
    letters = {"exact": {"type": "org.eventplane.deadletter.v1"}}
    cloud.subscriptions.write(new_subscription("family-app", "more", letters, DAWN))
    assert call("GET", "more", participant="family-app").body["effectivefilter"] is None


def test_a_filter_outside_may_subscribe_is_refused_with_the_remedy(call: Call) -> None:
    refused = posted(call, {"types": ["org.eventplane.home.message.v1"]})
    assert refused.status == 400
    (problem,) = refused.body["problems"]
    assert (problem["path"], problem["message"]) == ("filter", "'family-app' may subscribe to no such event")
    assert "may_subscribe" in problem["remedy"]


FILE = Path(__file__).parents[3] / "parts" / "subscriptions_api" / "openapi.yaml"


def test_the_openapi_document_agrees_with_the_code() -> None:
    document = yaml.safe_load(FILE.read_text())
    paths = {
        path.replace("{", "<").replace("}", ">"): {each.upper() for each in item if each != "parameters"}
        for path, item in document["paths"].items()
    }
    assert paths == {path: set(methods) for path, methods in METHODS.items()}
    schemas = document["components"]["schemas"]
    assert schemas["Protocol"]["enum"] == list(PROTOCOLS)
    dialects = [each["$ref"].rpartition("/")[2].lower() for each in schemas["Filter"]["oneOf"]]
    assert dialects == list(DIALECTS)
    assert schemas["Id"]["maxLength"] == MAX_NAME
    assert f"{{1,{MAX_ATTRIBUTE_NAME}}}" in schemas["Comparison"]["propertyNames"]["pattern"]
    assert f"{MAX_FILTER_BYTES} bytes" in schemas["Filters"]["description"]
    assert f"{MAX_FILTER_DEPTH} levels" in schemas["Filters"]["description"]
    collection = document["paths"]["/participants/{participant}/subscriptions"]
    listed = collection["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed["maxItems"] == MAX_OWN
