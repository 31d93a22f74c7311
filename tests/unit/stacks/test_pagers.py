"""Who is told of alarms: subscribers that have not confirmed are found before a deployment."""

import boto3
import pytest
from botocore.stub import Stubber

from stacks.deployment import PlannedStack
from stacks.preflight import pager_findings

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
