"""A participant leaves the deployed plane only after it was retired and its queues are empty."""

import json
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
import pytest
from botocore.exceptions import WaiterError

from eventplane.resource_names import OWNER
from lab.plane import Plane
from stacks.application import build
from stacks.config import environment
from stacks.deployment import Deployment, planned_stacks
from stacks.preflight import RemovalError, check_removals
from tests.infrastructure.templates import NO_BUNDLING
from tests.integration.cloud import HOOKED, grown_contract, lengths, output_of, run

PREFLIGHT = ("-m", "stacks.preflight")


class Retired(Deployment):
    """As if the retirement had been deployed."""

    def retired(self, stack: str) -> list[str]:
        return ["night-watch"] if stack.endswith("-routing") else super().retired(stack)


def test_what_is_deployed_again_as_it_is_removes_nothing(plane: Plane, plane_folder: Path) -> None:
    deployment = Deployment(plane.cloud.client("cloudformation"), plane.cloud.client("sqs"))
    planned = planned_stacks(plane_folder / "cdk.out")
    messaging = next(each for each in planned if each.name.endswith("-messaging"))
    assert {each.rsplit("/", 1)[-1] for each in deployment.queue_urls(messaging.name)} == {*messaging.queues}
    done = run(plane.cloud, str(plane_folder / "cdk.out"), "local", program=PREFLIGHT)
    assert done.returncode == 0, done.stderr
    for more, status in ((), 1), (("--yes", "dev"), 1), (("--yes", "local"), 0):
        asked = run(plane.cloud, str(plane_folder / "cdk.out"), "local", "--ask", *more, program=PREFLIGHT)
        assert asked.returncode == status, asked.stderr
        assert ("YES=local" in asked.stderr) is (status == 1)
    assert list(deployment.queue_urls("eventplane-never-messaging")) == []
    assert deployment.retired("eventplane-never-routing") == []


def test_a_second_plane_is_refused(plane: Plane, plane_folder: Path) -> None:
    cloud, thing = plane.cloud, "home-of-two-planes"
    plane.register(thing)
    for program, words in (
        (PREFLIGHT, (str(plane_folder / "cdk.out"), "dev")),
        (("-m", "eventplane"), ("fleet", "quarantine", thing, "--env", "dev")),
        (("-m", "eventplane"), ("desired", "reset", "threshold/home/pulse", "--all", "--env", "dev")),
    ):
        refused = run(cloud, *words, program=program)
        assert (refused.returncode, "the plane 'local'" in refused.stderr) == (1, True), refused.stderr
    assert json.loads(output_of(cloud, "fleet", "show", thing, "--json"))["state"] == "provisioned"
    formation, name = cloud.client("cloudformation"), "eventplane-dev-contract"
    owner = {"Name": OWNER, "Type": "String", "Value": "dev"}
    template = {"Resources": {"Owner": {"Type": "AWS::SSM::Parameter", "Properties": owner}}}
    formation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    with pytest.raises(WaiterError, match="ROLLBACK"):
        formation.get_waiter("stack_create_complete").wait(
            StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
    formation.delete_stack(StackName=name)
    assert cloud.client("ssm").get_parameter(Name=OWNER)["Parameter"]["Value"] == "local"


def test_a_retired_participant_leaves(plane: Plane, tmp_path: Path) -> None:
    local = replace(environment("local"), webhook_urls={HOOKED: "https://rescue.example/"})
    app = cdk.App(outdir=str(tmp_path), context=NO_BUNDLING)
    build(app, local, grown_contract(without_night_watch=True))
    assembly = Path(app.synth().directory)
    refused = run(plane.cloud, str(assembly), "local", program=PREFLIGHT)
    assert refused.returncode == 1
    assert "nothing was deployed, because 4 queue(s) would go" in refused.stderr
    assert "Traceback" not in refused.stderr
    for box in ("inbox", "inbox-dlq", "outbox", "outbox-dlq"):
        assert f"night-watch-{box}.fifo" in refused.stderr

    sqs, inbox = plane.cloud.client("sqs"), plane.outputs["NightWatchInboxUrl"]
    deployment = Retired(plane.cloud.client("cloudformation"), sqs)
    planned = planned_stacks(assembly)
    sqs.send_message(QueueUrl=inbox, MessageBody="{}", MessageGroupId="g", MessageDeduplicationId="1")
    with pytest.raises(RemovalError, match=r"night-watch-inbox.fifo: 1 message\(s\) are left"):
        check_removals(deployment, planned)
    (message,) = sqs.receive_message(QueueUrl=inbox)["Messages"]
    assert lengths(plane.cloud, inbox) == (0, 1)
    with pytest.raises(RemovalError):
        check_removals(deployment, planned)
    sqs.delete_message(QueueUrl=inbox, ReceiptHandle=message["ReceiptHandle"])
    check_removals(deployment, planned)
