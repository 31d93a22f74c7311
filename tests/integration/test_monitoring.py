"""Deployed alarms notify their topics, and the canary's alarm goes the way of an alarm."""

from __future__ import annotations

import json
from collections.abc import Mapping

from local.cloud import CloudEndpoint
from local.plane import Plane, invoke
from tests.eventually import eventually
from tests.integration.cloud import SECONDS


def test_every_alarm_is_deployed_and_tells_a_topic(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    pages = (
        emulator.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix="eventplane")
    )
    alarms = [each for page in pages for each in page["MetricAlarms"] if "-local-" in each["AlarmName"]]
    assert "eventplane-local-ingest-urgent-age" in {each["AlarmName"] for each in alarms}
    topics = {each["AlarmName"]: each["AlarmActions"] for each in alarms}
    assert topics["eventplane-local-ingest-urgent-age"] == [outputs["PageTopic"]]
    assert topics["eventplane-local-canary"] == [outputs["PageTopic"]]
    assert topics["eventplane-local-dead-letters"] == [outputs["TicketTopic"]]
    assert set(map(tuple, topics.values())) == {(outputs["PageTopic"],), (outputs["TicketTopic"],)}


def test_an_audit_that_found_something_is_told_to_who_subscribed(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    sqs = emulator.client("sqs")
    pager = sqs.create_queue(QueueName="pager")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=pager, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topic = outputs["TicketTopic"]
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=pager, Attributes={"Policy": policy})
    emulator.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    cloudwatch = emulator.client("cloudwatch")
    cloudwatch.put_metric_data(
        Namespace="eventplane/local/audit", MetricData=[{"MetricName": "findings", "Value": 2.0}]
    )
    name = "eventplane-local-audit-findings"
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert alarm["StateValue"] == "ALARM"

    def is_told() -> bool:
        """Other alarms change their states too."""
        found = sqs.receive_message(QueueUrl=pager, MaxNumberOfMessages=10).get("Messages", [])
        told = [json.loads(json.loads(each["Body"])["Message"]) for each in found]
        return (name, "ALARM") in [(each["AlarmName"], each["NewStateValue"]) for each in told]

    assert eventually(is_told, SECONDS)


def test_the_canarys_alarm_goes_through_iot_core_to_its_inbox(plane: Plane) -> None:
    """With IAM enforced: the role may connect under its client id, publish to one rule, read its inbox."""
    report = invoke(plane.cloud, "eventplane-local-canary", {"do": "alarm"})
    assert report["problem"] is None
    assert 0 <= report["delay_ms"] < 60_000
