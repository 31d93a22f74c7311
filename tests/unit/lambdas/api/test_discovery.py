"""The Discovery API's function as API Gateway calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract, subscription_table
from lambdas.api import discovery as handler
from lambdas.api.discovery import DiscoveryService, InForceRegistry
from lambdas.api.http import Request
from lambdas.router import wiring
from tests.dynamodb import create_table
from tests.unit.lambdas.api.conftest import HOST, Call, send
from tests.unit.lambdas.support import SUBSCRIPTIONS, TABLE, TABLES, Cloud, deploy, with_route

SCHEMA = "/schemagroups/care-at-home/schemas/org.eventplane.home.message.v1"
MESSAGE = "/messagegroups/care-at-home/messages/org.eventplane.home.message.v1"
REFRESH_S = 30


@pytest.fixture
def call(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Sends one request to the function."""
    deploy(monkeypatch, tmp_path, cloud.contract, TABLES)
    monkeypatch.setattr(wiring, "system_clock", cloud.clock)
    return lambda path, method="GET", **more: send(handler.handle, method, path, **more)


def test_links_are_below_the_url_that_was_called(call: Call, cloud: Cloud) -> None:
    answer = call("/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert answer.body["labels"]["contractversion"] == cloud.contract.version
    assert answer.body["endpointsurl"] == f"https://{HOST}/endpoints"
    assert call("/", x_forwarded_proto="http").body["self"] == f"http://{HOST}/"


@pytest.mark.parametrize("details", ["$details", "%24details"])
def test_a_schema_and_its_metadata_have_urls_of_their_own(call: Call, details: str) -> None:
    document = call(SCHEMA)
    assert document.headers["Content-Type"] == "application/schema+json"
    assert document.body["title"] == "What a carer says to the people of a home"
    assert document.headers["xRegistry-xid"] == SCHEMA
    assert call(SCHEMA + details).body["xid"] == SCHEMA


def test_a_known_entity_is_not_sent_again(call: Call) -> None:
    first = call(MESSAGE)
    tag = first.headers["ETag"]
    for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = call(MESSAGE, if_none_match=condition)
        assert (again.status, again.text, again.headers["ETag"]) == (304, "", tag)
    assert call(MESSAGE, if_none_match='"other"').text == first.text


def test_head_returns_the_headers_alone(call: Call) -> None:
    head = call(MESSAGE, method="HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers == call(MESSAGE).headers


def test_a_published_contract_is_served_with_another_tag(call: Call, cloud: Cloud) -> None:
    tag = call("/routes").headers["ETag"]
    cloud.publish(with_route(cloud.contract, "more", "carers.inbox"))
    cloud.subscribe("messages", "org.eventplane.home.message.v1", "care-analytics")
    assert "more" not in call("/routes").body
    cloud.clock.advance(REFRESH_S)
    answer = call("/routes", if_none_match=tag)
    assert answer.status == 200
    assert answer.body["more"]["eventplane"]["to"] == "/endpoints/carers.inbox"
    # A subscription is a route, and its participant a receiver.
    receivers = call(MESSAGE).body["eventplane"]["receivers"]
    ways = {each["participant"]: each["routes"] for each in receivers}
    assert ways["/participants/care-analytics"] == ["/routes/care-analytics-subscribes-messages"]
    # While a table does not answer what it said last stays.
    cloud.dynamodb.delete_table(TableName=TABLE)
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    cloud.clock.advance(REFRESH_S)
    assert call("/routes").text == answer.text


def test_a_process_that_could_not_read_the_tables_answers_503(call: Call, cloud: Cloud) -> None:
    cloud.dynamodb.delete_table(TableName=SUBSCRIPTIONS)
    answer = call("/routes")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
    assert answer.body["type"].endswith("/spec.md#server_error")
    create_table(cloud.dynamodb, SUBSCRIPTIONS, subscription_table.PARTITION, subscription_table.SORT)
    cloud.clock.advance(2)
    assert call("/routes").status == 200


@pytest.mark.parametrize(
    ("path", "changes", "status", "type"),
    [
        ("/nothing", {}, 404, "http.md#api_not_found"),
        ("/routes/nothing", {}, 404, "spec.md#not_found"),
        ("/routes", {"query": {"limit": "0"}}, 400, "spec.md#bad_request"),
        ("/routes", {"method": "POST"}, 405, "spec.md#method_not_allowed"),
        ("/%ff\u00e9/../\u0000", {}, 404, "http.md#api_not_found"),
    ],
)
def test_a_refusal_has_the_error_of_xregistry(
    call: Call, path: str, changes: dict[str, Any], status: int, type: str
) -> None:
    answer = call(path, **changes)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.body
    assert problem["type"].endswith(f"/{type}")
    assert problem["status"] == status
    assert problem["instance"].startswith(f"https://{HOST}/")
    assert ("Allow" in answer.headers) is (status == 405)


def test_an_answer_that_is_too_large_for_lambda_is_refused(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "MAX_BODY_BYTES", 10_000)
    discovery = DiscoveryService(lambda: InForceRegistry(contract))
    answer = discovery.answer(Request("GET", "https://a", "/export", {}, {}))
    assert (answer.status, "page by page" in answer.body) == (406, True)
    assert discovery.answer(Request("GET", "https://a", "/", {}, {})).status == 200
