"""What a run is billed for."""

import json

import pytest

from lab.benchmarks.cost.deployment import MONTH_MIN, PricedPlane, runs
from lab.benchmarks.cost.meter import Meter
from lab.benchmarks.cost.months import CANARY


@pytest.mark.source("B8")
def test_every_call_that_routers_make_has_its_unit() -> None:
    with Meter("http://127.0.0.1:1") as meter:
        read = json.dumps({"TableName": "subscriptions", "ConsistentRead": True}).encode()
        meter.count("DynamoDB_20120810.Scan", read, b'{"Items": []}')
        meter.count("DynamoDB_20120810.GetItem", read, b"{}")
        meter.count("AmazonSQS.SendMessageBatch", b"x" * 65_537, b"{}")
        meter.count("AmazonSQS.ReceiveMessage", b"{}", b"{}")  # found nothing
        meter.count("PUT", b"x", b"")
        meter.count("GET", b"", b"x")
        meter.count("POST", b"x", b"")  # a publish to an ingest rule
        assert meter.take() == {"dynamodb_read": 2, "sqs_request": 2, "s3_put": 1, "s3_get": 1}
        with pytest.raises(ValueError, match="DELETE has no price here"):
            meter.count("DELETE", b"", b"")


@pytest.fixture(scope="module")
def production() -> PricedPlane:
    return PricedPlane("prod")


def test_a_schedule_is_counted_by_the_month() -> None:
    assert runs("rate(1 minute)") == MONTH_MIN
    assert runs("rate(6 hours)") == 120
    assert runs("cron(30 2 * * ? *)") == 30
    assert runs("cron(10 1-23 * * ? *)") == 690
    assert runs("cron(40 * * * ? *)") == 720
    with pytest.raises(ValueError, match="every day"):
        runs("every day")


def test_production_is_read_from_its_templates(production: PricedPlane) -> None:
    by_queue = {each.queue: each for each in production.mappings}
    assert by_queue["ingest"].function == "router-device"
    assert by_queue["ingest-urgent"].function == "router-device-urgent"
    tap = production.environment.archive_writer
    assert (by_queue["tap"].batch_size, by_queue["tap"].window_s) == (tap.batch_size, tap.batch_window_s)
    assert {each.function for each in production.schedules} <= set(production.functions)
    assert CANARY in {each.key for each in production.schedules}
    assert {each.name for each in production.jobs if each.runs} == {
        "delivery-audit",
        "audit-today",
        "compaction",
    }
    assert production.alarm_metrics >= len(production.of("AWS::CloudWatch::Alarm"))
