"""A participant leaves only after it was retired and its queues are empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
import pytest

from local.cloud import CloudEndpoint
from local.plane import Plane
from stacks.application import build
from stacks.config import environment
from stacks.deployment import Deployment, planned_stacks
from stacks.removal import RemovalError, check_removals
from tests.infrastructure.templates import NO_BUNDLING
from tests.integration.commands import run
from tests.integration.grown import HOOKED, left_contract

WAITS = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}'


@pytest.fixture
def deployment(plane: Plane) -> Deployment:
    return Deployment(plane.cloud.client("cloudformation"), plane.cloud.client("sqs"))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The assembly of the plane that the night watch has left."""
    local = replace(environment("local"), webhook_urls={HOOKED: "https://rescue.example/"})
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("left")), context=NO_BUNDLING)
    build(app, local, left_contract())
    return Path(app.synth().directory)


def test_what_is_deployed_again_as_it_is_removes_nothing(
    emulator: CloudEndpoint, plane_folder: Path, deployment: Deployment
) -> None:
    planned = planned_stacks(plane_folder / "cdk.out")
    check_removals(deployment, planned)
    messaging = next(each for each in planned if each.name.endswith("-messaging"))
    assert {each.rsplit("/", 1)[-1] for each in deployment.queue_urls(messaging.name)} == {*messaging.queues}
    done = run(emulator, str(plane_folder / "cdk.out"), "local", program=("-m", "stacks.preflight"))
    assert done.returncode == 0, done.stderr


def test_a_participant_that_was_never_retired_stays(
    emulator: CloudEndpoint, deployment: Deployment, left: Path
) -> None:
    with pytest.raises(RemovalError, match="with `retired: true` on its participant") as caught:
        check_removals(deployment, planned_stacks(left))
    assert [each.split(":")[0] for each in caught.value.problems] == [
        f"night-watch-{box}{dead}.fifo" for box in ("inbox", "outbox") for dead in ("-dlq", "")
    ]
    refused = run(emulator, str(left), "local", program=("-m", "stacks.preflight"))
    assert refused.returncode == 1
    assert "nothing was deployed, because 4 queue(s) would go" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_retired_one_leaves_when_its_queues_are_empty(
    emulator: CloudEndpoint, outputs: Mapping[str, str], left: Path
) -> None:
    sqs = emulator.client("sqs")
    inbox, planned = outputs["NightWatchInboxUrl"], planned_stacks(left)
    deployment = Retired(emulator.client("cloudformation"), sqs)
    sqs.send_message(QueueUrl=inbox, MessageBody=WAITS, MessageGroupId="g", MessageDeduplicationId="1")
    with pytest.raises(RemovalError) as caught:
        check_removals(deployment, planned)
    assert [*caught.value.problems] == [
        "night-watch-inbox.fifo: 1 message(s) are left; let them be read, or move them, first"
    ]
    # Somebody who reads it has not handled it yet.
    (message,) = sqs.receive_message(QueueUrl=inbox)["Messages"]
    with pytest.raises(RemovalError):
        check_removals(deployment, planned)
    sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
    check_removals(deployment, planned)


class Retired(Deployment):
    """As if the retirement had been deployed."""

    def retired(self, stack: str) -> list[str]:
        return ["night-watch"] if stack.endswith("-routing") else super().retired(stack)


def test_what_was_never_deployed_has_no_queues(deployment: Deployment) -> None:
    assert list(deployment.queue_urls("eventplane-never-messaging")) == []
    assert deployment.retired("eventplane-never-routing") == []
