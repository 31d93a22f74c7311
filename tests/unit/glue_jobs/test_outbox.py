"""The audit's verdict on its way to the plane."""

from __future__ import annotations

import boto3
import pytest

from eventplane.envelope import parse_event
from glue_jobs.delivery_audit.errors import OutboxError
from glue_jobs.delivery_audit.outbox import tell
from glue_jobs.delivery_audit.verdict import verdict_event

DOCUMENT = {
    "verdict": "proven",
    "window": {"date": "2026-03-01"},
    "watermark": {"as_of_ms": 1_772_366_400_000},
    "totals": {"lost": 0},
    "revision": {"number": 0, "changed": {}},
}


def test_the_verdict_lies_in_the_outbox_as_any_event(aws: None) -> None:
    # Another region than the environment's: a job on Glue is told none but by the URL.
    sqs = boto3.client("sqs", region_name="eu-central-1")
    url = sqs.create_queue(QueueName="audit-outbox")["QueueUrl"]
    verdict = verdict_event(DOCUMENT)

    tell(url, verdict)

    (message,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert parse_event(message["Body"]) == verdict
    assert message["MessageAttributes"]["ce_type"]["StringValue"] == "org.eventplane.audit.verdict.v1"


def test_a_queue_that_does_not_take_it_is_named_with_the_remedy(aws: None) -> None:
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/nowhere"
    with pytest.raises(OutboxError, match="start it again") as failed:
        tell(url, verdict_event(DOCUMENT))
    assert failed.value.queue_url == url
