"""Publishing: what is refused, and that two people cannot overwrite each other."""

import json
from dataclasses import replace
from os import urandom
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from contract.publish import (
    Baseline,
    CandidateError,
    ContractPublisher,
    DestinationsNotDeployedError,
    NoCandidateError,
    NotDeployedError,
    OvertakenError,
    SourceMissingError,
    TooLargeError,
    find_deployment,
)
from eventplane.contract import Contract
from eventplane.contract.publication import (
    HEAD,
    KEY,
    ContractTable,
    Head,
    cloud_destinations,
    contract_id,
)
from eventplane.resource_names import RECEIPTS_OUTPUT, RETIRED_OUTPUT
from eventplane.settings import written
from eventplane_aws.rules import DYNAMODB_ITEM
from eventplane_aws.tables import DynamoDbTables
from operations import system
from operations.cloud import Cloud
from operations.command_line import main
from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.fakes.client import ScriptedClient
from tests.plane import shipped_contract
from tests.small_contract import with_changes
from tests.unit.contract.small import small

TABLE = "eventplane-dev-contracts"
ASKS = {"participants/desk/asks": ["org.example.*"]}
DEPLOYED = small(ASKS)
QUEUES = {each.address: f"https://queue/{each.participant}" for each in cloud_destinations(DEPLOYED)}


@pytest.fixture
def dynamodb(fake_aws: FakeAws) -> Any:
    client = fake_aws.dynamodb
    create_table(client, TABLE, KEY)
    return client


@pytest.fixture
def publisher(dynamodb: Any) -> ContractPublisher:
    return ContractPublisher(
        Baseline(DEPLOYED.version, QUEUES, TABLE), DynamoDbTables(dynamodb, urandom), system.now
    )


def changed(name: str, to: str = "desk.inbox", **participants: Any) -> Contract:
    """The deployed contract with a route called `name`, and other settings of participants."""
    route = {"filter": {"exact": {"type": name}}, "to": to}
    changes = {f"participants/{each.replace('_', '-')}": settings for each, settings in participants.items()}
    return small({**ASKS, **changes, f"routes/{name}": route})


def head_of(publisher: ContractPublisher) -> Head:
    head = publisher.in_force()
    assert head is not None
    return head


@pytest.mark.lost_answers
def test_a_published_contract_is_in_force(publisher: ContractPublisher, dynamodb: Any) -> None:
    assert publisher.in_force() is None
    one, two = changed("one"), changed("two")
    for each in (one, two, two):
        publisher.publish(each)
    head = head_of(publisher)
    assert (head.base, head.versions) == (DEPLOYED.version, (two.version, one.version))
    table = ContractTable(DynamoDbTables(dynamodb, urandom), TABLE)
    assert table.contract(two.version) == two
    # What was lost is stored again.
    table.contracts.discard(contract_id(two.version))
    publisher.publish(two)
    assert table.contract(two.version) == two
    assert head_of(publisher) == head
    publisher.withdraw()
    assert publisher.in_force() is None


SERVICE = {"kind": "cloud_service", "description": "d"}


@pytest.mark.parametrize(
    ("new", "inboxes", "routes"),
    [
        (changed("x", "night-watch.inbox", night_watch=SERVICE), ["night-watch.inbox"], ["x"]),
        # Though no route leads to it.
        (changed("x", night_watch=SERVICE), ["night-watch.inbox"], []),
        # Another transport needs another queue.
        (
            changed("x", desk={**SERVICE, "inbox": {"transport": "sqs_fifo"}}),
            ["desk.inbox"],
            ["to-desk", "x"],
        ),
        # Where readers would lose their receipts.
        (changed("x", desk={**SERVICE, "inbox": {"receipts": True}}), ["desk-receipts"], []),
    ],
)
def test_undeployed(
    publisher: ContractPublisher, new: Contract, inboxes: list[str], routes: list[str]
) -> None:
    with pytest.raises(DestinationsNotDeployedError, match="needs a deployment") as caught:
        publisher.publish(new)
    assert (caught.value.inboxes, sorted(each.name for each in caught.value.routes)) == (inboxes, routes)
    assert publisher.in_force() is None


def test_a_participant_may_ask_no_more(publisher: ContractPublisher) -> None:
    silent = small()
    publisher.publish(silent)
    assert head_of(publisher).version == silent.version


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_participant_cannot_leave_this_way(dynamodb: Any, is_retired: bool) -> None:
    outputs = OUTPUTS
    if is_retired:
        queues = {address: url for address, url in QUEUES.items() if not address.startswith("desk.")}
        outputs = {**outputs, "Inboxes": written(queues), RETIRED_OUTPUT: "desk"}
    deployment = find_deployment("dev", Answers(outputs))
    publisher = ContractPublisher(deployment, DynamoDbTables(dynamodb, urandom), system.now)
    with pytest.raises(SourceMissingError, match="desk"):
        publisher.publish(small({"participants/desk": None, "routes/to-desk": None}))


def test_receipts_where_there_is_a_queue_for_them(dynamodb: Any) -> None:
    deployment = find_deployment("dev", Answers({**OUTPUTS, RECEIPTS_OUTPUT: "desk.inbox"}))
    publisher = ContractPublisher(deployment, DynamoDbTables(dynamodb, urandom), system.now)
    publisher.publish(changed("x", desk={**SERVICE, "inbox": {"receipts": True}}))
    assert publisher.in_force() is not None


def test_one_that_no_item_can_hold_is_refused(
    publisher: ContractPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contract.publish.DYNAMODB_ITEM", replace(DYNAMODB_ITEM, most=100))
    with pytest.raises(TooLargeError, match="deploy it instead"):
        publisher.publish(changed("x"))


@pytest.mark.parametrize("first", [True, False])
def test_the_second_looks_again(
    publisher: ContractPublisher, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not first:
        publisher.publish(changed("zero"))
    seen = publisher.in_force()
    publisher.publish(changed("one"))
    monkeypatch.setattr(publisher, "in_force", lambda: seen)
    with pytest.raises(OvertakenError):
        publisher.publish(changed("two"))
    monkeypatch.undo()
    assert head_of(publisher).version == changed("one").version


class Answers:
    """Clients of CloudFormation with given outputs of a stack; without them there is no such stack."""

    def __init__(self, outputs: dict[str, str] | None) -> None:
        self._outputs = outputs

    def __call__(self, service: str) -> Any:
        return ScriptedClient(service, self) if service == "cloudformation" else boto3.client(service)

    def describe_stacks(self, StackName: str) -> Any:  # noqa: N803
        if self._outputs is None:
            error = {"Code": "ValidationError", "Message": f"{StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        listed = [{"OutputKey": name, "OutputValue": value} for name, value in self._outputs.items()]
        return {"Stacks": [{"Outputs": listed}]}


OUTPUTS = {"ContractVersion": DEPLOYED.version, "Inboxes": written(QUEUES)}


@pytest.mark.lost_answers
def test_a_deployment_is_found_by_the_outputs_of_its_routers() -> None:
    found = find_deployment("dev", Answers(OUTPUTS))
    assert found == Baseline(DEPLOYED.version, QUEUES, TABLE)


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (None, "eventplane-nowhere-routing does not exist"),
        # As version 0.3.0 has it.
        ({"ContractVersion": DEPLOYED.version, "DeviceRouterFunction": "router"}, "older version"),
        ({**OUTPUTS, "Inboxes": json.dumps(QUEUES)}, "another version"),
    ],
)
def test_a_plane_that_is_not_there_is_named(outputs: dict[str, str] | None, problem: str) -> None:
    with pytest.raises(NotDeployedError, match=problem) as caught:
        find_deployment("nowhere", Answers(outputs))
    assert caught.value.name == "nowhere"


def test_the_command_publishes_checks_and_withdraws(
    publisher: ContractPublisher,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(answers: Answers) -> None:
        monkeypatch.setattr(Cloud, "client", lambda _, service: answers(service))

    answer(Answers(OUTPUTS))
    (tmp_path / "new.json").write_bytes(changed("new").canonical)
    command = ["contract", "publish", "--env", "dev", "--contract", str(tmp_path / "new.json")]
    for words, version, printed in (
        ([*command, "--dry-run"], None, "can be published"),
        (command, changed("new").version, "is in force;"),
        (["contract", "publish", "--env", "dev", "--withdraw"], None, "in force again"),
    ):
        assert main(words) == 0
        head = publisher.in_force()
        assert (head.version if head else None, printed in capsys.readouterr().out) == (version, True)
    answer(Answers(None))
    assert main(command) == 1
    assert "name one that is deployed" in capsys.readouterr().err


def test_no_contract_takes_alarms_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    without = with_changes(shipped_contract(), {"routes/alarms-to-call-service": None})
    image, silent = tmp_path / "image.json", tmp_path / "silent.json"
    image.write_bytes(shipped_contract().canonical)
    silent.write_bytes(without.canonical)
    publish = ["publish", "--env", "nowhere", "--contract", str(silent), "--image", str(image)]
    for command in (publish, ["floor", str(image), "--contract", str(silent)]):
        assert main(["contract", *command]) == 1
        printed = capsys.readouterr().err
        assert "routes.alarms-to-call-service" in printed
        assert "devices need a new image" in printed
    assert main(["contract", "floor", str(silent), "--contract", str(image)]) == 0


NEW = changed("new")


def test_a_candidate_is_in_force_beside_the_other(publisher: ContractPublisher, dynamodb: Any) -> None:
    head = publisher.offer(NEW)
    assert (head.version, head.candidate) == (DEPLOYED.version, NEW.version)
    assert ContractTable(DynamoDbTables(dynamodb, urandom), TABLE).contract(NEW.version) == NEW
    assert publisher.offer(NEW) == head_of(publisher) == head


@pytest.mark.parametrize("is_published", [False, True])
def test_a_roll_out_ends_in_one_version(publisher: ContractPublisher, is_published: bool) -> None:
    before = changed("before") if is_published else DEPLOYED
    if is_published:
        publisher.publish(before)
    for end, version in ((publisher.go_back, before.version), (publisher.finish, NEW.version)):
        publisher.offer(NEW)
        head = end(NEW.version)
        assert end(NEW.version) == head_of(publisher) == head
        assert (head.version, head.candidate) == (version, None)
    assert publisher.offer(NEW) == head
    with pytest.raises(NoCandidateError):
        publisher.go_back(NEW.version)
    assert head.versions == (NEW.version, before.version)


def test_during_a_roll_out_nothing_else_is_published(publisher: ContractPublisher) -> None:
    offered = publisher.offer(NEW)
    for refused in (
        lambda: publisher.publish(changed("other")),
        lambda: publisher.publish(NEW),
        lambda: publisher.offer(changed("other")),
        publisher.withdraw,
    ):
        with pytest.raises(CandidateError, match=NEW.version):
            refused()
    for end in (publisher.finish, publisher.go_back):
        with pytest.raises(NoCandidateError):
            end("another")
    assert head_of(publisher) == offered


def test_a_candidate_needs_no_deployment(publisher: ContractPublisher) -> None:
    with pytest.raises(DestinationsNotDeployedError):
        publisher.offer(changed("x", night_watch=SERVICE))
    assert publisher.in_force() is None


def test_one_of_two_roll_outs_is_overtaken(
    publisher: ContractPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "in_force", lambda: None)
    publisher.offer(NEW)
    with pytest.raises(OvertakenError):
        publisher.offer(changed("other"))


def test_a_head_of_0_3_0_has_no_candidate(publisher: ContractPublisher) -> None:
    item = HEAD.to_item(publisher.offer(NEW))
    # 0.3.0 writes the members that it knows.
    assert (
        HEAD.from_item({name: each for name, each in item.items() if name != "candidate"}).candidate is None
    )
