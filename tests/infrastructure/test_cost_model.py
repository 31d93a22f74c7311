"""What a run is billed for."""

from __future__ import annotations

import json

import pytest

from benchmarks.cloud.plane import Invocations
from benchmarks.cost.deployment import MONTH_MIN, Deployment, runs
from benchmarks.cost.meter import Meter
from benchmarks.cost.metered import compute, way_in
from benchmarks.cost.months import CANARY, Reads, Usage, Written, idle, jobs, requests, storage
from benchmarks.cost.prices import Units


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
def production() -> Deployment:
    return Deployment("prod")


def test_a_schedule_is_counted_by_the_month() -> None:
    assert runs("rate(1 minute)") == MONTH_MIN
    assert runs("rate(6 hours)") == 120
    assert runs("cron(30 2 * * ? *)") == 30
    assert runs("cron(10 1-23 * * ? *)") == 690
    assert runs("cron(40 * * * ? *)") == 720
    with pytest.raises(ValueError, match="every day"):
        runs("every day")


def test_production_is_read_from_its_templates(production: Deployment) -> None:
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


def test_an_idle_month_has_what_the_templates_have(production: Deployment) -> None:
    series = frozenset({("EventPlane", "Messages", "service=x"), ("EventPlane", "Retried", "service=x")})
    calls = {each.key: Usage(Units({"lambda_request": 1}), series) for each in production.schedules}
    alarm = Usage(Units({"sqs_request": 7}), frozenset({("EventPlane", "Delivered", "service=x")}))
    found = idle(production, calls, alarm)
    number = sum(each.calls for each in production.schedules)
    assert found["polling"]["sqs_request"] == len(production.mappings) * 5 * 3 * MONTH_MIN
    assert found["schedules"]["lambda_request"] == found["schedules"]["scheduler_call"] == number
    assert found["canary"]["sqs_request"] == 7 * MONTH_MIN
    assert found["metrics"]["custom_metric"] == 3 + production.filtered_metrics
    assert jobs(production)["glue_flex_dpu_h"] > 0


def test_an_object_is_paid_for_until_it_is_deleted(production: Deployment) -> None:
    written = Written({"tap": 1.0, "ledger": 1.0}, {"tap": 1e9, "ledger": 0.0})
    reads = Reads(compaction=2, audit=1, compacted_bytes=0.5)
    found = requests(written, reads, production)
    # The tap is read by the audits of two days.
    tap = requests(Written({"tap": 1.0}, {}), reads, production)
    assert tap["s3_get"] > found["s3_get"] / 2
    assert found["s3_get"] > 2 * 2 * 2
    kept = production.environment.retention
    days = kept.raw_days + kept.replaced_days + kept.compacted_days / 2
    assert storage(written, reads, production)["s3_gb_month"] == pytest.approx(days / 30)


def test_a_publish_costs_its_rule_and_two_actions_and_a_run_its_memory(production: Deployment) -> None:
    assert way_in([b"x"]) == {"iot_rule": 1, "iot_action": 2, "sqs_request": 2}
    large = way_in([b"x" * 6_000])
    assert (large["iot_rule"], large["iot_action"]) == (2, 4)
    gb = production.functions["router-device"].memory_mib / 1024
    used = compute({"router-device": Invocations(3, 2_000)}, production.functions)
    assert used == {"lambda_request": 3, "lambda_gb_s": 2 * gb}
