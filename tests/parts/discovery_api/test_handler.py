"""The Discovery API's function as API Gateway calls it."""

from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, subscription_table
from lambdas.common.http_api import Request
from lambdas.router import wiring
from parts.discovery_api import handler
from parts.discovery_api.handler import PATHS, DiscoveryService, InForceRegistry
from tests.dynamodb import create_table
from tests.http_api import HOST, Call, send
from tests.unit.lambdas.support import SUBSCRIPTIONS, TABLE, TABLES, Cloud, deploy, with_route

REFRESH_S = 30


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Sends one request to the function."""
    deploy(monkeypatch, tmp_path, cloud.contract, TABLES)
    monkeypatch.setattr(wiring, "system_clock", cloud.clock)
    return lambda path, method="GET", **more: send(handler.handle, method, path, **more)


@pytest.mark.parametrize("path", PATHS)
def test_the_registry_is_one_document(call: Call, cloud: Cloud, path: str) -> None:
    answer = call(path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert answer.body["labels"] == {"contractversion": cloud.contract.version}
    assert answer.body["participants"].keys() == cloud.contract.participants.keys()
    head = call(path, method="HEAD")
    assert (head.status, head.text, head.headers) == (200, "", answer.headers)


def test_a_known_document_is_not_sent_again(call: Call) -> None:
    first = call("/")
    tag = first.headers["ETag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = call("/", if_none_match=condition)
        assert (again.status, again.text, again.headers["ETag"]) == (304, "", tag)
    assert call("/", if_none_match='"other"').text == first.text


def test_a_published_contract_is_served_with_another_tag(call: Call, cloud: Cloud) -> None:
    tag = call("/").headers["ETag"]
    cloud.publish(with_route(cloud.contract, "more", "carers.inbox"))
    cloud.subscribe("messages", "org.eventplane.home.message.v1", "care-analytics")
    assert "more" not in call("/").body["routes"]
    cloud.clock.advance(REFRESH_S)
    answer = call("/", if_none_match=tag)
    assert answer.status == 200
    assert answer.body["routes"]["more"]["eventplane"]["to"] == "/endpoints/carers.inbox"
    # A subscription is a route, and its participant a receiver.
    messages = answer.body["messagegroups"]["care-at-home"]["messages"]
    (message,) = messages["org.eventplane.home.message.v1"]["versions"].values()
    receivers = message["eventplane"]["receivers"]
    ways = {each["participant"]: each["routes"] for each in receivers}
    assert ways["/participants/care-analytics"] == ["/routes/care-analytics-subscribes-messages"]
    # While a table does not answer what it said last stays.
    cloud.dynamodb.delete_table(TableName=TABLE)
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    cloud.clock.advance(REFRESH_S)
    assert call("/").text == answer.text


def test_a_process_that_could_not_read_the_tables_answers_503(call: Call, cloud: Cloud) -> None:
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    answer = call("/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert answer.body["type"].endswith("/spec.md#server_error")
    create_table(cloud.dynamodb, SUBSCRIPTIONS, subscription_table.PARTITION, subscription_table.SORT)
    cloud.clock.advance(2)
    assert call("/").status == 200


@pytest.mark.parametrize(
    ("path", "changes", "status", "type"),
    [
        ("/nothing", {}, 404, "http.md#api_not_found"),
        ("/routes", {}, 404, "http.md#api_not_found"),
        ("/", {"method": "POST"}, 405, "spec.md#method_not_allowed"),
        ("/%ff\u00e9/../\u0000", {}, 404, "http.md#api_not_found"),
    ],
)
def test_a_refusal_is_typed(call: Call, path: str, changes: dict[str, Any], status: int, type: str) -> None:
    answer = call(path, **changes)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.body
    assert problem["type"].endswith(f"/{type}")
    assert problem["status"] == status
    assert problem["instance"].startswith(f"https://{HOST}/")
    assert ("Allow" in answer.headers) is (status == 405)


def test_too_large_answers_are_refused(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAX_BODY_BYTES", 10_000)
    discovery = DiscoveryService(lambda: InForceRegistry(contract))
    answer = discovery.answer(Request("GET", "https://a", "/export", {}, {}))
    assert (answer.status, "contract's file" in answer.body) == (406, True)
