"""Which queues may leave with a deployment."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pytest

from eventplane.resource_names import RETIRED_OUTPUT
from stacks.deployment import Deployment, PlannedStack, RegionMissingError, session_in
from stacks.preflight import LeavingQueue, RemovalError, check_removals, leaving_queues
from tests.fakes.aws import FakeAws
from tests.fakes.client import ScriptedClient

MESSAGING = "eventplane-dev-messaging"
PLANNED = [PlannedStack(each, None, frozenset()) for each in (MESSAGING, "eventplane-dev-routing")]


class Deployed(Deployment):
    """Queues of the messaging stack, by their names without the environment, with how much is in each."""

    def __init__(self, messages: dict[str, int], retired: Iterable[str] = ()) -> None:
        self._messages = messages
        self._retired = list(retired)

    def queue_urls(self, stack: str) -> Iterator[str]:
        if stack == MESSAGING:
            yield from (f"https://sqs/1/eventplane-dev-{name}" for name in self._messages)

    def retired(self, stack: str) -> list[str]:
        return self._retired if stack.endswith("-routing") else []

    def messages(self, queue_url: str) -> int:
        return self._messages[queue_url.removeprefix("https://sqs/1/eventplane-dev-")]


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_read_as_by_aws_s_own_tools(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    with pytest.raises(RegionMissingError, match="set AWS_REGION"):
        Deployment.of([PlannedStack(MESSAGING, None, frozenset())])
    monkeypatch.setenv(variable, "eu-west-3")
    assert session_in(None).region_name == "eu-west-3"
    assert session_in("eu-central-1").region_name == "eu-central-1"


@pytest.mark.parametrize("box", ["inbox", "inbox-dlq", "outbox.fifo", "outbox-dlq.fifo", "replies"])
def test_only_retired_boxes_leave(box: str) -> None:
    name = f"carers-{box}"
    assert list(leaving_queues(Deployed({name: 0}), PLANNED)) == [LeavingQueue(name, 0, is_written=True)]
    with pytest.raises(RemovalError, match=f"{name}: routers may still write to it; .* `retired: true`"):
        check_removals(Deployed({name: 0}), PLANNED)


@pytest.mark.parametrize("name", ["carers-inbox", "carers-replies", "device-inbox", "device-inbox-dlq"])
def test_a_box_of_a_retired_participant_leaves_when_it_is_empty(name: str) -> None:
    retired = ["carers", "device", "downlink"]
    check_removals(Deployed({name: 0}, retired), PLANNED)
    with pytest.raises(RemovalError, match=r"2 message\(s\) are left"):
        check_removals(Deployed({name: 2}, retired), PLANNED)


def test_the_planes_own_queues_leave_when_they_are_empty() -> None:
    check_removals(Deployed({"tap": 0, "downlink-work-dlq": 0}), PLANNED)


@pytest.mark.lost_answers
def test_a_stack_is_read_with_its_queues(fake_aws: FakeAws) -> None:
    url = fake_aws.sqs.create_queue(QueueName="carers-inbox")["QueueUrl"]
    fake_aws.sqs.send_message(QueueUrl=url, MessageBody="left")
    queue = {
        "ResourceType": "AWS::SQS::Queue",
        "ResourceStatus": "CREATE_COMPLETE",
        "PhysicalResourceId": url,
    }
    output = {"OutputKey": RETIRED_OUTPUT, "OutputValue": "carers"}
    script = SimpleNamespace(
        list_stack_resources=lambda **_: {"StackResourceSummaries": [queue]},
        describe_stacks=lambda **_: {"Stacks": [{"Outputs": [output]}]},
    )
    deployed = Deployment(ScriptedClient("cloudformation", script), fake_aws.sqs)
    assert list(deployed.queue_urls(MESSAGING)) == [url]
    assert (deployed.retired(MESSAGING), deployed.messages(url)) == (["carers"], 1)
