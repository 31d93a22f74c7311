"""A participant's own routes: in the plane's table, and by the API's function without a network between."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from os import urandom
from pathlib import Path
from typing import Any

import boto3
import pytest

from contract import load_contract
from eventplane.contract.publication import KEY
from eventplane.contract.subscription import IN_FORCE_S, MAX_OWN, new_subscription, with_subscriptions
from eventplane.contract.subscription_table import PARTITION, SORT, SUBSCRIPTION, SubscriptionTable
from eventplane.interest import table as interest_table
from eventplane.settings import written
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.api_subscriptions import ApiSubscriptions
from eventplane_client.dynamodb_routes import DynamoDbSubscriptions
from eventplane_client.errors import (
    AlreadySubscribedError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
)
from eventplane_client.signed_http import HttpAnswer
from parts.subscriptions_api import handler
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.http_api import send
from tests.parts.subscriptions_api.conftest import INBOXES

NEWS = {"exact": {"type": "org.eventplane.alarm.news.v1"}}


class NoNetwork:
    """Hands requests to the function as API Gateway does."""

    def request(self, method: str, path: str, document: object = None, **headers: str) -> HttpAnswer:
        body = None if document is None else json.dumps(document)
        if body is not None:
            headers = {"content_type": "application/json", **headers}
        answer = send(handler.handle, method, path, body=body, **headers)
        found = {name.lower(): value for name, value in answer.headers.items()}
        return HttpAnswer(answer.status, found, json.loads(answer.text) if answer.text else None)


@pytest.fixture
def table(fake_aws: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SubscriptionTable]:
    client = fake_aws.dynamodb
    create_table(client, "subscriptions", PARTITION, SORT)
    create_table(client, "contracts", KEY)
    create_table(client, "interest", PARTITION, interest_table.SORT)
    (tmp_path / "contract.json").write_bytes(load_contract().canonical)
    for name, value in {
        "EVENTPLANE_CONTRACTS_TABLE": "contracts",
        "EVENTPLANE_INTEREST_TABLE": "interest",
        "EVENTPLANE_CONTRACT_REFRESH_S": "30",
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": "subscriptions",
        "EVENTPLANE_INBOXES": written(INBOXES),
        "EVENTPLANE_WEBHOOK_ORIGIN": "eventplane-dev",
        "EVENTPLANE_WEBHOOK_SECRET": "webhook",
        "EVENTPLANE_SINKS": "internet",
    }.items():
        monkeypatch.setenv(name, value)
    handler.service.cache_clear()
    yield SubscriptionTable(DynamoDbTables(client, urandom), "subscriptions")
    handler.service.cache_clear()


def own(participant: str = "carers") -> ApiSubscriptions:
    http: Any = NoNetwork()
    return ApiSubscriptions(http, participant, INBOXES.get(participant, "arn"))


@pytest.mark.lost_answers
def test_the_same_again_is_the_same_and_another_filter_is_not(table: SubscriptionTable) -> None:
    carers = own()
    carers.subscribe("news", NEWS)
    carers.subscribe("news", NEWS)
    with pytest.raises(AlreadySubscribedError):
        carers.subscribe("news", {"exact": {"type": "other"}})
    (kept,) = table.all()
    assert (kept.route, json.loads(kept.filter)) == ("carers-subscribes-news", NEWS)
    carers.unsubscribe("news")
    with pytest.raises(NotSubscribedError):
        carers.unsubscribe("news")


def test_what_was_written_without_the_api_is_the_same_too(table: SubscriptionTable) -> None:
    table.write(new_subscription("carers", "news", NEWS, "2026-01-01T00:00:00Z"))
    own().subscribe("news", NEWS)
    own().unsubscribe("news")
    assert table.all() == frozenset()


def test_what_is_wrong_is_named(table: SubscriptionTable) -> None:
    for name, filter, path in (("news", {"sql": "type = ("}, "filter.sql"), ("No Name", NEWS, "name")):
        with pytest.raises(SubscriptionError) as wrong:
            own().subscribe(name, filter)
        assert [each.path for each in wrong.value.problems] == [path]


class Gateway:
    """Answers by itself; `paths` are what was asked."""

    def __init__(self, status: int, document: object) -> None:
        self.paths: list[str] = []
        self._answer = HttpAnswer(status, {}, document)

    def request(self, method: str, path: str, document: object = None, **headers: str) -> HttpAnswer:
        self.paths.append(path)
        return self._answer


@pytest.mark.parametrize("document", [{"message": "Invalid request body"}, None, ["?"]])
def test_what_the_gateway_refuses_by_itself_is_unavailable(document: object) -> None:
    gateway: Any = Gateway(400, document)
    with pytest.raises(UnavailableError, match="400"):
        ApiSubscriptions(gateway, "carers", "arn").subscribe("a/b", NEWS)
    assert gateway.paths == ["/participants/carers/subscriptions/a%2Fb"]


def test_the_quota_is_named(table: SubscriptionTable) -> None:
    for number in range(MAX_OWN):
        table.write(new_subscription("carers", f"n{number}", NEWS, "2026-01-01T00:00:00Z"))
    with pytest.raises(SubscriptionError, match="quota"):
        own().subscribe("news", NEWS)


def test_what_the_api_does_not_do_is_unavailable(table: SubscriptionTable) -> None:
    with pytest.raises(UnavailableError, match="404"):
        own("nobody").subscribe("news", NEWS)
    boto3.client("dynamodb").delete_table(TableName="subscriptions")
    for call in (lambda: own().subscribe("news", NEWS), lambda: own().unsubscribe("news")):
        with pytest.raises(UnavailableError, match="503"):
            call()


IN_FORCE = timedelta(seconds=IN_FORCE_S)


@pytest.fixture
def dynamodb(fake_aws: FakeAws) -> Any:
    client = fake_aws.dynamodb
    create_table(client, "subscriptions", PARTITION, SORT)
    return client


def test_what_it_writes_is_what_routers_read(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    own.subscribe("news", NEWS)
    own.subscribe("news", NEWS)  # the same again is the same
    with pytest.raises(AlreadySubscribedError):
        own.subscribe("news", {"exact": {"type": "other"}})
    (item,) = dynamodb.scan(TableName="subscriptions")["Items"]
    derived, refused = with_subscriptions(load_contract(), [SUBSCRIPTION.from_item(item)])
    assert refused == {}
    assert "family-app-subscribes-news" in {each.name for each in derived.routes}
    own.unsubscribe("news")
    with pytest.raises(NotSubscribedError):
        own.unsubscribe("news")


@pytest.mark.source("F3")
def test_it_says_from_when_on_it_is_in_force(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    before = datetime.now(UTC)
    promised = own.subscribe("news", NEWS)
    after = datetime.now(UTC)
    assert before + IN_FORCE <= promised <= after + IN_FORCE
    assert own.subscribe("news", NEWS) >= promised  # the same again, from when nobody knows better
    for created_at, expected in (("2026-01-01T00:00:00Z", True), ("nonsense", False)):
        old = new_subscription("family-app", "old", NEWS, created_at)
        dynamodb.put_item(TableName="subscriptions", Item=SUBSCRIPTION.to_item(old))
        assert (own.subscribe("old", NEWS) < before) is expected


def test_what_is_wrong_is_named_before_it_is_written(dynamodb: Any) -> None:
    own = DynamoDbSubscriptions(dynamodb, "subscriptions", "family-app")
    with pytest.raises(SubscriptionError) as wrong:
        own.subscribe("News", {"sql": "type = ("})
    assert {each.path for each in wrong.value.problems} == {"name", "filter.sql"}
    assert dynamodb.scan(TableName="subscriptions")["Items"] == []


def test_a_table_that_does_not_answer_is_named(dynamodb: Any) -> None:
    with pytest.raises(UnavailableError):
        DynamoDbSubscriptions(dynamodb, "elsewhere", "family-app").subscribe("news", NEWS)
