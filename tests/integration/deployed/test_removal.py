"""A participant leaves only after it was retired and its queues are empty."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import aws_cdk as cdk
import pytest

from eventplane.contract import Contract
from local.cloud import CloudEndpoint
from stacks.application import build
from stacks.deployment import Deployment, PlannedStack, planned_stacks
from stacks.removal import RemovalError, check_removals
from tests.infrastructure.templates import NO_BUNDLING
from tests.integration.deployed.grown import ENVIRONMENT, grown_contract, left_contract, retired_contract

Assemble = Callable[[Contract], Path]
Plan = Callable[[Contract], list[PlannedStack]]
WAITS = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}'


@pytest.fixture
def assemble(tmp_path: Path) -> Assemble:
    """Synthesises the grown environment with another contract; gives the directory."""

    def synthesise(contract: Contract) -> Path:
        app = cdk.App(outdir=str(tmp_path / contract.version), context=NO_BUNDLING)
        build(app, ENVIRONMENT, contract)
        return Path(app.synth().directory)

    return synthesise


@pytest.fixture
def plan(assemble: Assemble) -> Plan:
    return lambda contract: planned_stacks(assemble(contract))


def test_nothing_leaves_nothing_is_said(
    emulator: CloudEndpoint, outputs: Mapping[str, str], plan: Plan
) -> None:
    deployment = Deployment(emulator.client("cloudformation"), emulator.client("sqs"))
    check_removals(deployment, plan(grown_contract()))
    check_removals(deployment, plan(retired_contract()))
    assert len(list(deployment.queue_urls("eventplane-grown-messaging"))) == len(
        next(each for each in plan(grown_contract()) if each.name.endswith("-messaging")).queues
    )


def test_a_participant_that_was_never_retired_stays(
    emulator: CloudEndpoint, outputs: Mapping[str, str], plan: Plan
) -> None:
    deployment = Deployment(emulator.client("cloudformation"), emulator.client("sqs"))
    with pytest.raises(RemovalError, match="with `retired: true` on its participant") as caught:
        check_removals(deployment, plan(left_contract()))
    assert [each.split(":")[0] for each in caught.value.problems] == [
        f"night-watch-{box}{dead}.fifo" for box in ("inbox", "outbox") for dead in ("-dlq", "")
    ]


def test_a_retired_one_leaves_when_its_queues_are_empty(
    emulator: CloudEndpoint, outputs: Mapping[str, str], plan: Plan
) -> None:
    sqs = emulator.client("sqs")
    inbox = outputs["NightWatchInboxUrl"]
    deployment = Retired(emulator.client("cloudformation"), sqs)
    sqs.send_message(QueueUrl=inbox, MessageBody=WAITS, MessageGroupId="g", MessageDeduplicationId="1")
    with pytest.raises(RemovalError) as caught:
        check_removals(deployment, plan(left_contract()))
    assert [*caught.value.problems] == [
        "night-watch-inbox.fifo: 1 message(s) are left; let them be read, or move them, first"
    ]
    # Somebody who reads it has not handled it yet.
    (message,) = sqs.receive_message(QueueUrl=inbox)["Messages"]
    with pytest.raises(RemovalError):
        check_removals(deployment, plan(left_contract()))
    sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
    check_removals(deployment, plan(left_contract()))


class Retired(Deployment):
    """As if the retirement had been deployed."""

    def retired(self, stack: str) -> list[str]:
        return ["night-watch"] if stack.endswith("-routing") else super().retired(stack)


@pytest.mark.parametrize(("contract", "status"), [(grown_contract(), 0), (left_contract(), 1)])
def test_the_command_says_so_before_anything_is_deployed(
    emulator: CloudEndpoint, outputs: Mapping[str, str], assemble: Assemble, contract: Contract, status: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stacks.preflight", str(assemble(contract)), "local"],
        env=emulator.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert ("nothing was deployed, because 4 queue(s) would go" in done.stderr) is bool(status)
    assert "Traceback" not in done.stderr


def test_what_was_never_deployed_has_no_queues(emulator: CloudEndpoint) -> None:
    deployment = Deployment(emulator.client("cloudformation"), emulator.client("sqs"))
    assert list(deployment.queue_urls("eventplane-never-messaging")) == []
    assert deployment.retired("eventplane-never-routing") == []
