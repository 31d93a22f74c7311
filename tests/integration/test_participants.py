"""Participants come and leave: the tests still pass, and nobody leaves before its queues are empty."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
import pytest
from botocore.exceptions import WaiterError

from eventplane.resource_names import OWNER
from lab.plane import Plane
from stacks.application import build
from stacks.bundling import CACHE, ROOT
from stacks.config import environment
from stacks.deployment import Deployment, planned_stacks
from stacks.preflight import RemovalError, check_removals
from tests.infrastructure.templates import NO_BUNDLING
from tests.integration.cloud import HOOKED, grown_contract, lengths, output_of, run

TESTS = (
    "tests/unit/contract/test_catalogue.py",
    "tests/unit/contract/test_contract.py",
    "tests/unit/contract/test_schema_files.py",
    "tests/unit/lab/test_demo.py",
    "tests/unit/lambdas/test_dispatch.py",
    "tests/parts/replay/test_command.py",
    "tests/parts/discovery_api",
)
"""Those of the whole contract, and one of each folder whose tests know the plane by tests/plane.py."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that is in version control, and of what is about to be."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    copy = tmp_path_factory.mktemp("copy") / "checkout"
    for name in filter(None, names.split("\0")):
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name)
    return copy


def run_in(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=checkout, check=False, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def new(checkout: Path, *arguments: str) -> None:
    done = run_in(checkout, "-m", "eventplane", "new", *arguments)
    assert done.returncode == 0, done.stderr


def test_a_new_participant_breaks_no_test(checkout: Path) -> None:
    families = ("org.eventplane.alarm.*", "org.eventplane.health.reading.v1", "org.eventplane.activity.*")
    wanted = [each for family in families for each in ("--receives", family)]
    new(checkout, "participant", "laundry-service", "--kind", "device-service")
    new(checkout, "participant", "laundry-app", "--kind", "cloud-service", *wanted)
    sent = ("--sender", "laundry-service", "--receiver", "laundry-app", "--receiver", "carers")
    new(checkout, "event-type", "com.example.laundry.done.v1", *sent)
    tested = run_in(
        checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=fast", *TESTS
    )
    assert tested.returncode == 0, tested.stdout[-5_000:]


def test_a_webhook_without_a_url_is_reported_before_anything_is_bundled(checkout: Path) -> None:
    new(checkout, "participant", "hook", "--kind", "cloud-service", "--webhook")
    started = run_in(checkout, "app.py", CDK_CONTEXT_JSON=json.dumps({"env": "dev"}))
    assert started.returncode == 1
    assert started.stderr.strip() == (
        "webhook_urls of dev has no URL for hook, whose inbox is a webhook in the contract; "
        "correct it in stacks/environments.toml"
    )
    assert not (checkout / CACHE.relative_to(ROOT)).exists()


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
