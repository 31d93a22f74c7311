"""Publishing: what is refused, and that two people cannot overwrite each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contract.publish import (
    ConflictError,
    Deployment,
    DestinationsNotDeployedError,
    NotDeployedError,
    Publisher,
    SourceMissingError,
    TooLargeError,
    find_deployment,
)
from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import KEY, cloud_destinations, contract_key, read_contract
from operations.cloud import Cloud
from operations.command_line import main
from tests.dynamodb import create_table
from tests.plane import shipped_contract

TABLE = "contracts"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return shipped_contract()


@pytest.fixture
def dynamodb(aws: None) -> Any:
    client = boto3.client("dynamodb")
    create_table(client, TABLE, KEY)
    return client


@pytest.fixture
def publisher(contract: Contract, dynamodb: Any) -> Publisher:
    queues = {each.address: f"https://queue/{each.participant}" for each in cloud_destinations(contract)}
    return Publisher(Deployment(contract.version, queues, TABLE), dynamodb)


def changed(contract: Contract, name: str, **participants: Any) -> Contract:
    document = json.loads(contract.canonical)
    document["participants"].update(participants)
    to = f"{next(iter(participants), 'family-app')}.inbox"
    document["routes"][name] = {"filter": {"exact": {"type": name}}, "to": to}
    return compile_contract(document, name)


def test_a_published_contract_is_in_force_and_names_the_one_before(
    publisher: Publisher, contract: Contract, dynamodb: Any
) -> None:
    assert publisher.in_force() is None
    one, two = changed(contract, "one"), changed(contract, "two")
    for each in (one, two, two):
        publisher.publish(each)
    head = publisher.in_force()
    assert head is not None
    assert (head.base, head.versions) == (contract.version, (two.version, one.version))
    item = dynamodb.get_item(TableName=TABLE, Key=contract_key(two.version))["Item"]
    assert read_contract(two.version, item) == two
    publisher.withdraw()
    assert publisher.in_force() is None


@pytest.mark.parametrize(
    "participants",
    [
        {"night-watch": {"kind": "cloud_service", "description": "Has no queue."}},
        {"family-app": {"kind": "cloud_service", "description": "d", "inbox": {"transport": "sqs_fifo"}}},
    ],
)
def test_a_destination_that_is_not_deployed_is_refused(
    publisher: Publisher, contract: Contract, participants: dict[str, Any]
) -> None:
    with pytest.raises(DestinationsNotDeployedError, match="needs a deployment") as caught:
        publisher.publish(changed(contract, "x", **participants))
    assert "x" in {route.name for route in caught.value.routes}
    assert publisher.in_force() is None


def test_a_participant_cannot_come_this_way_even_if_no_route_leads_to_it(
    publisher: Publisher, contract: Contract
) -> None:
    document = json.loads(contract.canonical)
    document["participants"]["night-watch"] = {"kind": "cloud_service", "description": "Has no queue."}
    with pytest.raises(DestinationsNotDeployedError, match=r"night-watch\.inbox") as caught:
        publisher.publish(compile_contract(document, "x"))
    assert (caught.value.inboxes, caught.value.routes) == (["night-watch.inbox"], [])
    assert publisher.in_force() is None


def test_a_contract_that_is_published_again_is_stored_again(
    publisher: Publisher, contract: Contract, dynamodb: Any
) -> None:
    new = changed(contract, "new")
    publisher.publish(new)
    before = publisher.in_force()
    dynamodb.delete_item(TableName=TABLE, Key=contract_key(new.version))
    publisher.publish(new)
    item = dynamodb.get_item(TableName=TABLE, Key=contract_key(new.version))["Item"]
    assert read_contract(new.version, item) == new
    assert publisher.in_force() == before


def test_a_participant_cannot_leave_this_way(publisher: Publisher, contract: Contract) -> None:
    document = json.loads(contract.canonical)
    del document["participants"]["family-app"]
    document["routes"] = {
        name: each for name, each in document["routes"].items() if each["to"] != "family-app.inbox"
    }
    with pytest.raises(SourceMissingError, match="family-app"):
        publisher.publish(compile_contract(document, "x"))


def test_one_that_no_item_can_hold_is_refused(
    publisher: Publisher, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contract.publish.MAX_ITEM_BYTES", 1_000)
    with pytest.raises(TooLargeError, match="deploy it with the code"):
        publisher.publish(changed(contract, "x"))


@pytest.mark.parametrize("first", [True, False])
def test_who_comes_second_has_to_look_again(
    publisher: Publisher, contract: Contract, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not first:
        publisher.publish(changed(contract, "zero"))
    seen = publisher.in_force()
    publisher.publish(changed(contract, "one"))
    monkeypatch.setattr(publisher, "in_force", lambda: seen)
    with pytest.raises(ConflictError):
        publisher.publish(changed(contract, "two"))
    monkeypatch.undo()
    head = publisher.in_force()
    assert head is not None
    assert head.version == changed(contract, "one").version


class Answers:
    """Clients of CloudFormation and Lambda that answer with what they are given, or refuse."""

    def __init__(self, outputs: dict[str, str] | None, variables: dict[str, str]) -> None:
        self._outputs = outputs
        self._variables = variables

    def __call__(self, service: str) -> Any:
        return self if service != "dynamodb" else boto3.Session().client(service)

    def describe_stacks(self, StackName: str) -> Any:  # noqa: N803
        if self._outputs is None:
            error = {"Code": "ValidationError", "Message": f"{StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        listed = [{"OutputKey": name, "OutputValue": value} for name, value in self._outputs.items()]
        return {"Stacks": [{"Outputs": listed}]}

    def get_function_configuration(self, FunctionName: str) -> Any:  # noqa: N803
        assert FunctionName == "router"
        return {"Environment": {"Variables": self._variables}}


OUTPUTS = {"ContractVersion": "c0ffee", "DeviceRouterFunction": "router"}


def test_a_deployment_is_found_by_the_variables_of_its_router() -> None:
    variables = {"EVENTPLANE_QUEUES": '{"a.inbox": "https://a"}', "EVENTPLANE_CONTRACTS_TABLE": TABLE}
    found = find_deployment("dev", Answers(OUTPUTS, variables))
    assert found == Deployment("c0ffee", {"a.inbox": "https://a"}, TABLE)


@pytest.mark.parametrize(
    ("outputs", "variables", "problem"),
    [
        (None, {}, "eventplane-nowhere-routing does not exist"),
        ({}, {}, "older version"),
        (OUTPUTS, {}, "older version"),
        (OUTPUTS, {"EVENTPLANE_QUEUES": "?"}, "older version"),
    ],
)
def test_a_plane_that_is_not_there_is_named(
    outputs: dict[str, str] | None, variables: dict[str, str], problem: str
) -> None:
    with pytest.raises(NotDeployedError, match=problem) as caught:
        find_deployment("nowhere", Answers(outputs, variables))
    assert caught.value.name == "nowhere"


def test_the_command_publishes_checks_and_withdraws(
    publisher: Publisher,
    contract: Contract,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues = dict.fromkeys(publisher._deployment.queues, "https://queue")
    variables = {"EVENTPLANE_QUEUES": json.dumps(queues), "EVENTPLANE_CONTRACTS_TABLE": TABLE}
    answers = Answers(OUTPUTS | {"ContractVersion": contract.version}, variables)
    monkeypatch.setattr(Cloud, "client", lambda _, service: answers(service))
    new = changed(contract, "new")
    (tmp_path / "new.json").write_bytes(new.canonical)
    command = ["publish", "--env", "dev", "--contract", str(tmp_path / "new.json")]

    assert main(["contract", *command, "--dry-run"]) == 0
    assert publisher.in_force() is None
    assert main(["contract", *command]) == 0
    head = publisher.in_force()
    assert head is not None
    assert head.version == new.version
    assert main(["contract", "publish", "--env", "dev", "--withdraw"]) == 0
    assert publisher.in_force() is None
    printed = capsys.readouterr().out
    assert [word in printed for word in ("can be published", "is in force;", "in force again")] == [True] * 3
    lost = Answers(None, {})
    monkeypatch.setattr(Cloud, "client", lambda _, service: lost(service))
    assert main(["contract", *command]) == 1
    assert "name one that is deployed" in capsys.readouterr().err


def test_a_broken_contract_does_not_come_so_far(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.yaml").write_text("format: 2\n")
    assert main(["contract", "publish", "--env", "nowhere", "--contract", str(tmp_path / "broken.yaml")]) == 1
    assert "broken.yaml: name: None is not a text" in capsys.readouterr().err


def test_what_takes_alarms_away_from_an_image_is_refused_with_the_remedy(
    contract: Contract, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(contract.canonical)
    del document["routes"]["alarms-to-call-service"]
    image, silent = tmp_path / "image.json", tmp_path / "silent.json"
    image.write_bytes(contract.canonical)
    silent.write_bytes(compile_contract(document, "silent").canonical)
    publish = ["publish", "--env", "nowhere", "--contract", str(silent), "--image", str(image)]
    for command in (publish, ["floor", str(image), "--contract", str(silent)]):
        assert main(["contract", *command]) == 1
        printed = capsys.readouterr().err
        assert "routes.alarms-to-call-service" in printed
        assert "devices need a new image" in printed
    assert main(["contract", "floor", str(silent), "--contract", str(image)]) == 0
