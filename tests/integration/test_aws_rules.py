"""The emulated cloud refuses what AWS refuses by its size or number, with AWS's error codes."""

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eventplane_aws import rules
from eventplane_aws.rules import Rule
from lab.cloud import CloudEndpoint
from lab.emulator import PROGRAM, PYTHON, start_emulator
from lab.process import Supervisor, kill_by_environment
from lab.things import Thing, provision
from tests.aws_rules import CASES, FUNCTION, QUEUE, answer, make_resources
from tests.eventually import eventually
from tests.integration.mqtt import TestClient

ANYTHING = {"Effect": "Allow", "Action": "iot:*", "Resource": "*"}
LAMBDA = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}


def policy(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def make_role(cloud: CloudEndpoint, name: str) -> str:
    """Create a role of functions that may use all queues, and return its ARN."""
    iam = cloud.client("iam")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy(LAMBDA))
    queues = policy({**ANYTHING, "Action": "sqs:*"})
    iam.put_role_policy(RoleName=name, PolicyName="queues", PolicyDocument=queues)
    return str(role["Role"]["Arn"])


def make_function(cloud: CloudEndpoint) -> None:
    """Create the function of the cases; it returns at once, or when somebody writes to the pipe `until`."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr(
            "code.py", "def handle(event, _):\n    open(event['until']) if 'until' in event else 0"
        )
    cloud.client("lambda").create_function(
        FunctionName=FUNCTION,
        Runtime="python3.11",
        Role=make_role(cloud, "rules"),
        Handler="code.handle",
        Code={"ZipFile": code.getvalue()},
        Timeout=900,
    )


@pytest.fixture(scope="module")
def cloud(emulator: CloudEndpoint) -> CloudEndpoint:
    """A cloud with what the requests are about."""
    make_resources(emulator.client)
    make_function(emulator)
    logs = emulator.client("logs")
    logs.create_log_group(logGroupName="rules")
    logs.create_log_stream(logGroupName="rules", logStreamName="rules")
    return emulator


@pytest.fixture(scope="module")
def thing(cloud: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Thing:
    cloud.client("iot").create_policy(policyName="rules", policyDocument=policy(ANYTHING))
    return provision(cloud, "device-of-rules", policy="rules", directory=tmp_path_factory.mktemp("thing"))


@pytest.mark.parametrize("rule", CASES, ids=lambda rule: rule.name)
def test_a_request_that_breaks_a_rule_is_answered_as_aws_documents(cloud: CloudEndpoint, rule: Rule) -> None:
    assert "emulated cloud" in rule.enforced
    assert [answer(cloud.client, CASES[rule](most)) for most in (rule.most, rule.most + 1)] == ["", rule.code]


@pytest.mark.parametrize(
    "rule", [rules.IOT_MESSAGE, rules.IOT_TOPIC, rules.IOT_LEVELS], ids=lambda rule: rule.name
)
def test_a_publish_over_mqtt_that_breaks_a_rule_ends_the_connection(thing: Thing, rule: Rule) -> None:
    for most, is_taken in ((rule.most, True), (rule.most + 1, False)):
        _, _, request = CASES[rule](most)
        with TestClient.of_thing(thing) as device:
            assert device.publish(request["topic"], request["payload"]) is is_taken
            assert device.disconnected.is_set() is not is_taken


def test_an_entry_of_a_batch_that_breaks_a_rule_fails_alone(cloud: CloudEndpoint) -> None:
    delays = (rules.SQS_DELAY.most, rules.SQS_DELAY.most + 1)
    entries: Any = [{"Id": str(each), "MessageBody": "x", "DelaySeconds": each} for each in delays]
    sent = cloud.client("sqs").send_message_batch(QueueUrl=QUEUE, Entries=entries)
    assert [each["Id"] for each in sent["Successful"]] == ["900"]
    assert [(each["Id"], each["Code"]) for each in sent["Failed"]] == [("901", rules.SQS_DELAY.code)]


LONGEST = 3 * rules.LAMBDA_CHAIN.most
COUNTS = f"""
import os, botocore.session
sqs = botocore.session.get_session().create_client("sqs")
def handle(event, _):
    for each in event["Records"]:
        number = int(each["body"]) + 1
        queue = "LETTERS" if number == {LONGEST} else "QUEUE"
        sqs.send_message(QueueUrl=os.environ[queue], MessageBody=str(number))
"""


@pytest.mark.parametrize(("loop", "last"), [("Terminate", rules.LAMBDA_CHAIN.most), ("Allow", LONGEST)])
def test_a_chain_ends_as_a_dead_letter(cloud: CloudEndpoint, loop: str, last: int) -> None:
    name, sqs = f"chain-{loop}", cloud.client("sqs")
    letters = sqs.create_queue(QueueName=f"{name}-letters")["QueueUrl"]
    (arn,) = sqs.get_queue_attributes(QueueUrl=letters, AttributeNames=["QueueArn"])["Attributes"].values()
    redrive = {"deadLetterTargetArn": arn, "maxReceiveCount": 5}
    queue = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": json.dumps(redrive)})["QueueUrl"]
    function = {
        "FunctionName": name,
        "Runtime": "python3.11",
        "Role": make_role(cloud, name),
        "Handler": "index.handle",
        "Code": {"ZipFile": COUNTS},
        "RecursiveLoop": loop,
        "Environment": {"Variables": {"QUEUE": queue, "LETTERS": letters}},
    }
    mapping = {"FunctionName": {"Ref": "Function"}, "EventSourceArn": arn.removesuffix("-letters")}
    resources = {
        "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
        "Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": mapping},
    }
    cloud.client("cloudformation").create_stack(
        StackName=name, TemplateBody=json.dumps({"Resources": resources})
    )
    sqs.send_message(QueueUrl=queue, MessageBody="0")
    found: list[Any] = []

    def ended() -> bool:
        found.extend(sqs.receive_message(QueueUrl=letters, WaitTimeSeconds=1).get("Messages", ()))
        return bool(found)

    assert eventually(ended)
    assert [each["Body"] for each in found] == [str(last)]


FULL = """
import asyncio, importlib.util, sys, time
from ministack.services import sqs
spec = importlib.util.spec_from_file_location("front", sys.argv[1])
front = importlib.util.module_from_spec(spec)
spec.loader.exec_module(front)
most = front.SQS_IN_FLIGHT.most
def full(is_fifo):
    held = {"receive_count": 1, "visible_at": time.time() + 900}
    return {"is_fifo": is_fifo, "messages": [held] * most + [{"receive_count": 0, "visible_at": 0}]}
for is_fifo, wait in ((False, 0), (False, 1), (True, 0)):
    queue = full(is_fifo)
    sqs._get_q = lambda *_: queue
    async def receive(data, url):
        return {"Messages": front.receive(queue, 10, 30)}
    front._receive_message = receive
    try:
        print(asyncio.run(front.receive_message({"WaitTimeSeconds": wait}, "")))
    except sqs._Err as error:
        print(error.code)
batch = [{"body": "x" * 2**20, "visible_at": 9e9, "receive_count": 2} for _ in range(8)]
front._receive_for_function = lambda *_: batch
visible = lambda: [each["receive_count"] for each in batch if not each["visible_at"]]
print(len(front.receive_for_function("", 10)), visible())
"""


def test_a_queue_with_all_messages_in_flight_gives_no_more_and_a_batch_of_a_function_fits_a_call() -> None:
    done = subprocess.run([PYTHON, "-P", "-c", FULL, PROGRAM], capture_output=True, text=True, check=False)
    said = [rules.SQS_IN_FLIGHT.code, *["{'Messages': []}"] * 2, "6 [1, 1]"]
    assert done.stdout.splitlines() == said, done.stderr


def test_a_new_account_runs_so_many_functions_at_a_time(tmp_path: Path) -> None:
    pipe, rule = tmp_path / "until", rules.LAMBDA_CONCURRENCY
    os.mkfifo(pipe)
    with Supervisor(tmp_path / "run") as supervisor:
        cloud = start_emulator(supervisor, executions=rule.most)
        make_function(cloud)
        request = {"FunctionName": FUNCTION, "Payload": json.dumps({"until": str(pipe)})}
        for _ in range(rule.most):
            assert answer(cloud.client, ("lambda", "invoke", request | {"InvocationType": "Event"})) == ""
        assert eventually(
            lambda: answer(cloud.client, ("lambda", "invoke", {"FunctionName": FUNCTION})) == rule.code
        )
        assert kill_by_environment(lambda each: each.get("AWS_ENDPOINT_URL") == cloud.url) >= rule.most
