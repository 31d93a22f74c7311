"""`subscriptions`: a participant's own routes by the API, and which was in force when by the archive."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from eventplane.contract import Contract
from eventplane.contract.subscription import new_subscription, subscribable, with_subscriptions
from eventplane.ledger import LedgerRecord, to_line
from eventplane.reasons import Outcome
from eventplane_client.signed_http import HttpAnswer
from operations import subscriptions_command
from tests.plane import shipped_contract
from tests.unit.operations.support import DECIDED_MS, Plane

Run = Callable[..., tuple[int, str, str]]
NEWS = {"exact": {"type": "org.example.news.v1"}}
ROUTE = "carers-subscribes-news"
FOUND = {"id": "news", "filters": [NEWS], "sink": "arn", "protocol": "SQS"}


class Api:
    """Answers what it is told, and keeps what it was asked."""

    def __init__(self, *answers: HttpAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, object]] = []

    def __call__(self, url: str) -> Api:
        assert url == "https://api.example"
        return self

    def request(self, method: str, path: str, document: object = None) -> HttpAnswer:
        self.asked.append((method, path, document))
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


def test_all_of_a_participant(api: Any, run: Run) -> None:
    asked = api(ok([FOUND]), ok([]))
    status, out, _ = run("subscriptions", "list", "carers")
    assert (status, asked.asked) == (0, [("GET", "/participants/carers/subscriptions", None)])
    assert '{"filters": [{"exact": {"type": "org.example.news.v1"}}]}' in out
    assert run("subscriptions", "list", "carers")[0] == 1


def test_one_is_put_shown_and_deleted(api: Any, run: Run, tmp_path: Path) -> None:
    asked = api(ok(FOUND), ok(FOUND), ok(FOUND), ok({"keys": ["a2V5"]}))
    file = tmp_path / "news.json"
    file.write_text(json.dumps({"filters": [NEWS]}))
    assert run("subscriptions", "put", "carers", "news", str(file))[0] == 0
    assert json.loads(run("subscriptions", "show", "carers", "news")[1]) == FOUND
    assert run("subscriptions", "delete", "carers", "news")[0] == 0
    assert run("subscriptions", "key", "carers", "news")[1] == "a2V5\n"
    path = "/participants/carers/subscriptions/news"
    assert asked.asked == [
        ("PUT", path, {"filters": [NEWS]}),
        ("GET", path, None),
        ("DELETE", path, None),
        ("GET", f"{path}/signing-key", None),
    ]


def test_what_the_api_refuses_is_said_with_its_remedies(api: Any, run: Run, tmp_path: Path) -> None:
    problem = {"path": "sink", "message": "it is missing", "remedy": "write arn"}
    api(HttpAnswer(400, {}, {"detail": "not valid", "problems": [problem]}), HttpAnswer(403, {}, None))
    file = tmp_path / "news.json"
    file.write_text("{}")
    status, _, err = run("subscriptions", "put", "carers", "news", str(file))
    assert (status, err) == (1, "HTTP 400: not valid\n  sink: it is missing; write arn\n")
    assert run("subscriptions", "show", "carers", "news")[2].startswith("HTTP 403: no reason was given")
    file.write_text("{")
    assert "as a JSON object" in run("subscriptions", "put", "carers", "news", str(file))[2]


def test_an_environment_without_the_api_is_said(
    plane: Plane, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloudformation = boto3.client("cloudformation")
    monkeypatch.setattr("operations.cloud.Cloud.client", lambda *_: cloudformation)
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


def decision(contract: Contract, at_ms: int, route: str | None) -> str:
    record = LedgerRecord(
        decided_at_ms=at_ms,
        entered_at_ms=at_ms,
        entered_by="device.outbox",
        contract_version=contract.version,
        source="/s",
        id=str(at_ms),
        type="t",
        priority="normal",
        client_id=None,
        route=route,
        destination="carers.inbox" if route else None,
        outcome=Outcome.DELIVERED if route else Outcome.UNROUTED,
        reason=None,
        attempt=1,
        message_id="m",
    )
    return to_line(replace(record))


def test_which_was_in_force_when(plane: Plane, run: Run) -> None:
    plain, first, second = shipped_contract(), derived(NEWS), derived({"sql": "TRUE"})
    for each in (plain, first, second):
        plane.s3.put_object(Bucket=plane.bucket, Key=f"contracts/{each.version}.json", Body=each.canonical)
    at = DECIDED_MS
    plane.archive(
        "ledger",
        [
            decision(plain, at, None),
            decision(first, at + 1_000, None),
            decision(first, at + 2_000, ROUTE),
            decision(second, at + 3_000, ROUTE),
            decision(plain, at + 4_000, None),
        ],
    )
    status, out, err = run("subscriptions", "--json", "history", "--route", ROUTE)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [(each["filter"], each["first_ms"] - at, each["last_ms"] - at) for each in found] == [
        (granted(NEWS), 1_000, 2_000),
        (granted({"sql": "TRUE"}), 3_000, 3_000),
    ]
    assert [each["delivered"] for each in found] == [1, 1]
    assert [each["contract_version"] for each in found] == [first.version, second.version]
    status, out, _ = run("subscriptions", "history")
    assert status == 0
    assert out.count(ROUTE) == 2
    assert run("subscriptions", "history", "--route", "carers-subscribes-other")[0] == 1


def test_a_contract_that_the_archive_does_not_have_is_said(plane: Plane, run: Run) -> None:
    gone = derived(NEWS)
    plane.archive("ledger", [decision(gone, DECIDED_MS, ROUTE)])
    status, _, err = run("subscriptions", "history")
    assert status == 1
    assert f"contract {gone.version} decided something and is not in the archive" in err
