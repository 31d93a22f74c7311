"""What fails in the deployed plane reaches the one who is told."""

from __future__ import annotations

import json
from collections.abc import Mapping

from local.cloud import CloudEndpoint


def test_every_alarm_is_deployed_and_tells_the_topic(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    pages = (
        emulator.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix="eventplane")
    )
    alarms = [each for page in pages for each in page["MetricAlarms"] if "grown" in each["AlarmName"]]
    assert "eventplane-grown-ingest-urgent-age" in {each["AlarmName"] for each in alarms}
    assert all(each["AlarmActions"] == [outputs["AlarmTopic"]] for each in alarms)


def test_an_audit_that_found_something_is_told_to_who_subscribed(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    sqs = emulator.client("sqs")
    pager = sqs.create_queue(QueueName="grown-pager")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=pager, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topic = outputs["AlarmTopic"]
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
        Namespace="eventplane/grown/audit", MetricData=[{"MetricName": "findings", "Value": 2.0}]
    )
    name = "eventplane-grown-audit-findings"
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert alarm["StateValue"] == "ALARM"

    (message,) = sqs.receive_message(QueueUrl=pager, WaitTimeSeconds=20)["Messages"]
    told = json.loads(json.loads(message["Body"])["Message"])
    assert (told["AlarmName"], told["NewStateValue"]) == (name, "ALARM")
