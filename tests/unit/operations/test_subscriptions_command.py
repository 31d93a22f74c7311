"""`eventplane subscriptions` and `eventplane interest`."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import urandom
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.stub import Stubber

from eventplane.contract import Contract, subscription_table
from eventplane.contract.subscription import new_subscription, subscribable, with_subscriptions
from eventplane.contract.subscription_table import SUBSCRIPTION
from eventplane.downlink import table as desired
from eventplane.downlink.addressing import addressed
from eventplane.envelope import parse_event
from eventplane.interest.table import PUBLISHED, PublishedFilters
from eventplane.interest.uplink import uplink_filters
from eventplane.reasons import Outcome
from eventplane.records import Records
from eventplane.resource_names import resource_name
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.signed_http import HttpAnswer
from operations import subscriptions_command
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.fakes.client import REGION
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.unit.operations.support import (
    DECIDED_MS,
    ENVIRONMENT,
    Folder,
    Plane,
    Run,
    RunJson,
    event,
    ledger_line,
)

NEWS = {"exact": {"type": "org.example.news.v1"}}
ROUTE = "carers-subscribes-news"
FOUND = {"id": "news", "filters": [NEWS], "sink": "arn", "protocol": "SQS"}


class Api:
    """Answers as it is told to, and keeps the requests."""

    def __init__(self, *answers: HttpAnswer) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, object]] = []

    def __call__(self, url: str) -> Api:
        assert url == "https://api.example"
        return self

    def request(self, method: str, path: str, document: object = None) -> HttpAnswer:
        self.requests.append((method, path, document))
        return self.answers.pop(0)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    def make(*answers: HttpAnswer) -> Api:
        api = Api(*answers)
        monkeypatch.setattr(subscriptions_command, "SignedHttp", api)
        monkeypatch.setenv(subscriptions_command.URL_VARIABLE, "https://api.example")
        return api

    return make


def ok(document: Any) -> HttpAnswer:
    return HttpAnswer(200, {}, document)


def test_subscriptions_are_put_shown_listed_and_deleted(api: Any, run: Run, tmp_path: Path) -> None:
    asked = api(ok(FOUND), ok(FOUND), ok(FOUND), ok({"keys": ["a2V5"]}), ok([FOUND]), ok([]))
    file = tmp_path / "news.json"
    file.write_text(json.dumps({"filters": [NEWS]}))
    assert run("subscriptions", "put", "carers", "news", str(file))[0] == 0
    assert json.loads(run("subscriptions", "show", "carers", "news")[1]) == FOUND
    assert run("subscriptions", "delete", "carers", "news")[0] == 0
    assert run("subscriptions", "key", "carers", "news")[1] == "a2V5\n"
    status, out, _ = run("subscriptions", "list", "carers")
    assert (status, '{"filters": [{"exact": {"type": "org.example.news.v1"}}]}' in out) == (0, True)
    assert run("subscriptions", "list", "carers")[0] == 1
    path = "/participants/carers/subscriptions"
    assert asked.requests == [
        ("PUT", f"{path}/news", {"filters": [NEWS]}),
        ("GET", f"{path}/news", None),
        ("DELETE", f"{path}/news", None),
        ("GET", f"{path}/news/signing-key", None),
        *(("GET", path, None),) * 2,
    ]


def test_what_the_api_refuses_is_reported_with_its_remedies(api: Any, run: Run, tmp_path: Path) -> None:
    problem = {"path": "sink", "message": "it is missing", "remedy": "write arn"}
    api(HttpAnswer(400, {}, {"detail": "not valid", "problems": [problem]}), HttpAnswer(403, {}, None))
    file = tmp_path / "news.json"
    file.write_text("{}")
    status, _, err = run("subscriptions", "put", "carers", "news", str(file))
    assert (status, err) == (1, "HTTP 400: not valid\n  sink: it is missing; write arn\n")
    assert run("subscriptions", "show", "carers", "news")[2].startswith("HTTP 403: no reason was given")
    file.write_text("{")
    assert "as a JSON object" in run("subscriptions", "put", "carers", "news", str(file))[2]


@pytest.mark.lost_answers
def test_an_environment_without_the_api_is_reported(plane: Plane, run: Run, fake_aws: FakeAws) -> None:
    cloudformation = botocore.session.get_session().create_client(
        "cloudformation", REGION, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    fake_aws.others["cloudformation"] = cloudformation
    with Stubber(cloudformation) as played:
        played.add_client_error(
            "describe_stacks", "ValidationError", "Stack with id eventplane-test-subscriptions does not exist"
        )
        status, _, err = run("subscriptions", "list", "carers")
    assert (status, "name the API with --url" in err) == (1, True)


def derived(filter: object) -> Contract:
    subscription = new_subscription("carers", "news", filter, "2026-01-01T00:00:00Z")
    return with_subscriptions(shipped_contract(), [subscription])[0]


def granted(filter: object) -> object:
    return {"all": [subscribable(shipped_contract(), "carers"), filter]}


def decision(contract: Contract, after_s: int, route: str | None) -> str:
    """A decision by `contract`, so many seconds after the first."""
    outcome = Outcome.DELIVERED if route else Outcome.UNROUTED
    taken = (route, "carers.inbox") if route else None
    line = ledger_line(event("1"), outcome, route=taken, contract_version=contract.version)
    return line.replace(str(DECIDED_MS), str(DECIDED_MS + after_s * 1_000))


def test_which_subscription_was_in_force_when(folder: Folder, run: Run) -> None:
    plain, first, second = shipped_contract(), derived(NEWS), derived({"sql": "TRUE"})
    gone = derived({"sql": "FALSE"})
    for each in (plain, first, second):
        folder.put(f"contracts/{each.version}.json", each.canonical)
    lines = [decision(plain, 0, None), decision(first, 1, None), decision(first, 2, ROUTE)]
    folder.write("ledger", [*lines, decision(second, 3, ROUTE), decision(plain, 4, None)], "2026-01-01")
    folder.write("ledger", [decision(gone, 0, ROUTE)], "2026-01-02")
    words = ("subscriptions", "history", "--from", "2026-01-01", *folder.named)
    status, out, err = run(*words, "--to", "2026-01-01", "--route", ROUTE, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [
        (each["filter"], each["first_ms"] - DECIDED_MS, each["last_ms"] - DECIDED_MS) for each in found
    ] == [(granted(NEWS), 1_000, 2_000), (granted({"sql": "TRUE"}), 3_000, 3_000)]
    assert [(each["delivered"], each["contract_version"]) for each in found] == [
        (1, first.version),
        (1, second.version),
    ]
    status, out, _ = run(*words, "--to", "2026-01-01")
    assert (status, out.count(ROUTE)) == (0, 2)
    assert run(*words, "--to", "2026-01-01", "--route", "carers-subscribes-other")[0] == 1
    # A contract that the archive does not have is named.
    status, _, err = run(*words, "--to", "2026-01-02")
    assert status == 1
    assert f"contract {gone.version} decided something and is not in the archive" in err


DESIRED = resource_name(ENVIRONMENT, desired.TABLE)
SUBSCRIPTIONS = resource_name(ENVIRONMENT, subscription_table.SUBSCRIPTIONS_TABLE)


@pytest.fixture
def dynamodb(plane: Plane) -> Any:
    client = boto3.client("dynamodb")
    create_table(client, SUBSCRIPTIONS, subscription_table.PARTITION, subscription_table.SORT)
    create_table(client, DESIRED, desired.PARTITION_KEY, desired.SORT_KEY)
    return client


def test_publishing_makes_the_plane_send_its_interest_again(
    plane: Plane, dynamodb: Any, run: Run, contract: Contract, tmp_path: Path
) -> None:
    Records(DynamoDbTables(dynamodb, urandom), DESIRED, PUBLISHED).write(PublishedFilters(1, ""))
    status, _, err = run("interest", "publish")
    assert (status, "forward: wanted" in err) == (1, True)
    assert dynamodb.scan(TableName=DESIRED)["Count"] == 1

    asking = tmp_path / "contract.json"
    asking.write_bytes(with_changes(contract, {"participants/device/outbox/forward": "wanted"}).canonical)
    status, out, _ = run("interest", "publish", "--contract", str(asking))
    assert (status, "within a minute" in out) == (0, True)
    assert dynamodb.scan(TableName=DESIRED)["Items"] == []
    assert plane.received("operations-outbox") == []


def test_interest_is_published_to_all_devices_only(run: Run) -> None:
    assert run("interest", "publish", "--device", "home-1")[0] == 2


@pytest.mark.lost_answers
def test_it_is_withdrawn_by_an_event_of_operations(plane: Plane, run: Run, contract: Contract) -> None:
    assert run("interest", "withdraw", "--device", "home-1")[0] == 0
    (sent,) = plane.received("operations-outbox")
    event = parse_event(sent["Body"])
    told = addressed(event, contract.downlink(event.type), 10**13)
    assert (told.message.is_deleted, told.target.thing) == (True, "home-1")


@pytest.mark.lost_answers
def test_it_is_withdrawn_through_an_outbox_in_order(
    plane: Plane, run: Run, contract: Contract, tmp_path: Path
) -> None:
    ordered = tmp_path / "contract.json"
    ordered.write_bytes(
        with_changes(contract, {"participants/operations/outbox/transport": "sqs_fifo"}).canonical
    )
    plane.create_pair("operations-outbox", is_fifo=True)
    assert run("interest", "withdraw", "--contract", str(ordered))[0] == 0
    assert len(plane.received("operations-outbox")) == 1


def test_what_routes_and_subscriptions_take_is_shown(
    dynamodb: Any, run_json: RunJson, contract: Contract
) -> None:
    assert run_json("interest", "show") == uplink_filters(contract)
    news = new_subscription("carers", "news", NEWS, "2026-01-01T00:00:00Z")
    dynamodb.put_item(TableName=SUBSCRIPTIONS, Item=SUBSCRIPTION.to_item(news))
    assert any(NEWS in each["all"] for each in run_json("interest", "show") if "all" in each)
