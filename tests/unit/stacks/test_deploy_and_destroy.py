"""What is deployed and destroyed is confirmed by name; policies are detached before their deletion.

Subscribers of alarms that have not confirmed are found before a deployment.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from eventplane.resource_names import OtherPlaneError
from lab.cloud import DEPLOY, ROOT
from stacks.deployment import NotApprovedError, PlannedStack
from stacks.detach import attachments, detach
from stacks.preflight import PROTECTED, LeftoverError, check_owner, drift, pager_findings, remove_leftovers
from tests.dynamodb import create_table
from tests.fakes.client import ScriptedClient
from tests.fakes.iot import FakeIot


@pytest.fixture
def iot() -> FakeIot:
    """Two devices of dev, one of prod."""
    fake = FakeIot()
    for name in ("eventplane-dev-device", "eventplane-dev-renewal", "eventplane-prod-device", "mine"):
        fake.create_policy(policyName=name, policyDocument="{}")
    for policies in (("dev-device", "dev-renewal"), ("dev-device",), ("prod-device",)):
        target = fake.create_keys_and_certificate(setAsActive=True)["certificateArn"]
        for each in policies:
            fake.attach_policy(policyName=f"eventplane-{each}", target=target)
    return fake


@pytest.mark.lost_answers
def test_only_the_named_environment_is_detached(iot: FakeIot) -> None:
    assert detach(iot, "dev", yes="dev") == 2
    assert list(attachments(iot, "dev")) == []
    assert len(list(attachments(iot, "prod"))) == 1
    assert detach(iot, "dev", lambda _: pytest.fail("nothing is attached")) == 0


def test_nothing_is_detached_without_a_confirmation(iot: FakeIot) -> None:
    def nobody(_: str) -> str:
        raise EOFError

    def closed(_: str) -> str:
        raise RuntimeError("input(): lost sys.stdin")

    for ask in (lambda _: "y", nobody, closed):
        with pytest.raises(NotApprovedError, match=r"'dev'.*YES=dev"):
            detach(iot, "dev", ask)
    with pytest.raises(NotApprovedError):
        detach(iot, "dev", yes="prod")
    assert len(list(attachments(iot, "dev"))) == 3


STACK, TABLE = "eventplane-prod-registry", "eventplane-prod-fleet"


class Formation:
    """CloudFormation with stacks in pages of one, each a status and tags; each has a table and a secret."""

    def __init__(self, **stacks: tuple[str, dict[str, str]]) -> None:
        self.stacks = {name.replace("_", "-"): each for name, each in stacks.items()}
        self.protected = set(self.stacks)

    def describe_stacks(self, **asked: str) -> Any:
        at, name = int(asked.get("NextToken", 0)), asked.get("StackName")
        if name and name not in self.stacks:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "does not exist"}}, "x")
        found = [
            {
                "StackName": name,
                "CreationTime": 0,
                "StackStatus": self.stacks[name][0],
                "Tags": [{"Key": key, "Value": value} for key, value in self.stacks[name][1].items()],
            }
            for name in ([name] if name else [*self.stacks][at : at + 1])
        ]
        is_last = name or at + 1 >= len(self.stacks)
        return {"Stacks": found, **({} if is_last else {"NextToken": str(at + 1)})}

    def list_stack_resources(self, **_: str) -> Any:
        resources = (PROTECTED, TABLE), (PROTECTED, "gone"), ("AWS::SecretsManager::Secret", "key"), ("x", "")
        found = [{"ResourceType": type, "PhysicalResourceId": name} for type, name in resources]
        return {"StackResourceSummaries": found}

    def detect_stack_drift(self, **asked: str) -> Any:
        """Refuse as CloudFormation does, for each stack here."""
        message = f"Stack [{asked['StackName']}] is in a status in which drift cannot be detected"
        raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "DetectStackDrift")

    def update_termination_protection(self, **asked: Any) -> Any:
        if not asked["EnableTerminationProtection"]:
            self.protected.discard(asked["StackName"])
        return {}

    def delete_stack(self, **asked: str) -> Any:
        assert asked["StackName"] not in self.protected
        self.stacks.pop(asked["StackName"], None)
        return {}

    def wait(self, **asked: str) -> None:
        """Stand for the waiter."""
        assert asked["StackName"] not in self.stacks


@pytest.fixture
def client(aws: None, request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """A protected table, a secret, and a stack in the status of the parameter."""
    make, formation = boto3.client, Formation(eventplane_prod_registry=(request.param, {}))
    create_table(make("dynamodb"), TABLE, "thing")
    make("dynamodb").update_table(TableName=TABLE, DeletionProtectionEnabled=True)
    make("secretsmanager").create_secret(Name="key", SecretString="x")
    cloudformation = ScriptedClient("cloudformation", formation)
    cloudformation.get_waiter = lambda _: formation  # type: ignore[attr-defined]
    return lambda service: cloudformation if service == "cloudformation" else make(service)


@pytest.mark.lost_answers
@pytest.mark.parametrize("client", ["CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"], indirect=True)
def test_a_failed_first_deploy_blocks_nothing(client: Callable[[str], Any]) -> None:
    said: list[str] = []
    assert list(drift(client("cloudformation"), [STACK])) == [], "the preflight comes as far as to remove it"
    for _ in range(2):  # then it is not there any more
        remove_leftovers(client, [STACK], said.append)
    assert (len(said), client("dynamodb").list_tables()["TableNames"]) == (1, [])
    assert client("secretsmanager").list_secrets()["SecretList"] == []
    assert client("cloudformation").describe_stacks()["Stacks"] == []


@pytest.mark.parametrize(
    ("client", "refusal"),
    [
        ("ROLLBACK_FAILED", pytest.raises(LeftoverError, match=TABLE)),
        ("CREATE_COMPLETE", nullcontext()),
        ("UPDATE_ROLLBACK_FAILED", nullcontext()),
    ],
    indirect=["client"],
)
def test_what_holds_items_or_was_in_service_stays(client: Callable[[str], Any], refusal: Any) -> None:
    client("dynamodb").put_item(TableName=TABLE, Item={"thing": {"S": "home-1"}})
    with refusal:
        remove_leftovers(client, [STACK], lambda _: None)
    assert client("dynamodb").describe_table(TableName=TABLE)["Table"]["DeletionProtectionEnabled"]


@pytest.mark.lost_answers
@pytest.mark.parametrize("owner", ["prod", "dev"])
def test_another_plane_in_the_account_is_refused(owner: str) -> None:
    plane = {"plane": f"eventplane-{owner}", "project": "eventplane", "environment": owner}
    formation = Formation(others=("", {"environment": "prod"}), eventplane_x_registry=("", plane))
    is_other = owner == "prod"
    with pytest.raises(OtherPlaneError, match="the plane 'prod'") if is_other else nullcontext():
        check_owner(ScriptedClient("cloudformation", formation), "dev")


def test_tests_deploy_with_the_words_of_make_deploy() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (words,) = (each.split() for each in makefile.splitlines() if each.startswith("\tcdk deploy "))
    assert words[1:] == [*DEPLOY[:2], "--app", "cdk.out", *DEPLOY[2:]]


TOPIC = "eventplane-prod-pages"
ARN = f"arn:aws:sns:eu-central-1:111122223333:{TOPIC}"
PAGER, PERSON, LEFT = "https://pager.example.org/key", "oncall@example.org", "former@example.org"


def subscription(endpoint: str) -> dict[str, object]:
    properties = {"TopicArn": {"Ref": "Topic"}, "Protocol": endpoint.split(":")[0], "Endpoint": endpoint}
    return {"Type": "AWS::SNS::Subscription", "Properties": properties}


PLANNED = PlannedStack(
    "eventplane-prod-monitoring",
    None,
    frozenset(),
    {
        "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": TOPIC}},
        **{each: subscription(each) for each in (PAGER, PERSON, LEFT)},
    },
)


@pytest.mark.lost_answers
@pytest.mark.parametrize("deployed", [True, False])
def test_unconfirmed_pagers_are_reported(deployed: bool) -> None:
    sns = boto3.client("sns", "eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    others = [{"TopicArn": f"{ARN}-of-somebody-else"}]
    with Stubber(sns) as stubbed:
        stubbed.add_response("list_topics", {"Topics": others, "NextToken": "more"}, {})
        stubbed.add_response(
            "list_topics", {"Topics": [{"TopicArn": ARN}] if deployed else []}, {"NextToken": "more"}
        )
        if deployed:
            subscribed = {PAGER: f"{ARN}:1", PERSON: "PendingConfirmation", "x@example.org": f"{ARN}:2"}
            listed = [{"Endpoint": name, "SubscriptionArn": arn} for name, arn in subscribed.items()]
            stubbed.add_response("list_subscriptions_by_topic", {"Subscriptions": listed}, {"TopicArn": ARN})
        found = list(pager_findings([PLANNED], sns))
        stubbed.assert_no_pending_responses()
    assert [each.refuses for each in found] == [False] * len(found)
    said = [each.text for each in found]
    assert len(said) == (2 if deployed else 0)
    if deployed:
        assert said[0].startswith(f"{TOPIC}: {PERSON} has not confirmed")
        assert said[1].startswith(f"{TOPIC}: {LEFT} is not subscribed")
        assert f"aws sns subscribe --topic-arn {ARN}" in said[1]


@pytest.mark.lost_answers
def test_unread_pagers_are_a_warning() -> None:
    sns = boto3.client("sns", "eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(sns) as stubbed:
        assert list(pager_findings([], sns)) == []
        stubbed.add_client_error("list_topics", "AuthorizationError")
        (found,) = pager_findings([PLANNED], sns)
    assert "need sns:ListTopics" in found.text
    assert not found.refuses
