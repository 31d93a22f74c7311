"""What fails in the deployed plane reaches the one who is told; its canary takes the way of an alarm; the
archive's tables and jobs are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from eventplane.archive_layout import FOLDERS
from local.cloud import CloudEndpoint


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

    (message,) = sqs.receive_message(QueueUrl=pager, WaitTimeSeconds=20)["Messages"]
    told = json.loads(json.loads(message["Body"])["Message"])
    assert (told["AlarmName"], told["NewStateValue"]) == (name, "ALARM")


def invoke(cloud: CloudEndpoint, what: str) -> dict[str, Any]:
    """Have the canary do something; what it returns."""
    answer = cloud.client("lambda").invoke(
        FunctionName="eventplane-local-canary", Payload=json.dumps({"do": what}).encode()
    )
    assert "FunctionError" not in answer, answer["Payload"].read()
    found: dict[str, Any] = json.loads(answer["Payload"].read())
    return found


@pytest.mark.usefixtures("outputs")
def test_the_canarys_alarm_goes_through_iot_core_to_its_inbox(emulator: CloudEndpoint) -> None:
    """With IAM enforced: the role may connect under its client id, publish to one rule, read its inbox."""
    report = invoke(emulator, "alarm")
    assert report["problem"] is None
    assert report["delay_ms"] is not None
    assert 0 <= report["delay_ms"] < 60_000


def test_the_canary_counts_dead_letters_of_every_queue(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    sqs = emulator.client("sqs")
    before = invoke(emulator, "queues")["dead_letters"]
    sqs.send_message(QueueUrl=outputs["CarersInboxDlqUrl"], MessageBody="{}")
    after = invoke(emulator, "queues")["dead_letters"]
    sqs.purge_queue(QueueUrl=outputs["CarersInboxDlqUrl"])
    name = "eventplane-local-carers-inbox-dlq"
    assert after == {**before, name: before.get(name, 0) + 1}


def test_the_archives_tables_and_jobs_are_deployed(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    glue = emulator.client("glue")
    tables = glue.get_tables(DatabaseName=outputs["CatalogDatabase"])["TableList"]
    assert {each.name for each in FOLDERS if each.compaction} <= {each["Name"] for each in tables}
    jobs = {each["Name"] for each in glue.get_jobs()["Jobs"]}
    assert {outputs[name] for name in ("DeliveryAuditJob", "CompactionJob", "ErasureJob")} <= jobs
