"""Models of the plane have what its stacks deploy: the bill, and the simulated plane."""

import json
from random import Random

import pytest

from eventplane.resource_names import URGENT_INGEST, queue_name
from lab.benchmarks.cost.deployment import MONTH_MIN, PricedPlane, runs
from lab.benchmarks.cost.metered import Meter
from lab.benchmarks.cost.months import CANARY
from lab.histories.cloud import ENVIRONMENT, PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import Wiring
from stacks.names import INGEST_ERRORS, LIFECYCLE, TIMERS, WORK
from tests.fakes.sqs import FakeQueue
from tests.infrastructure.conftest import plane
from tests.plane import shipped_contract


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


NAMES = {"urgent": URGENT_INGEST, "lifecycle": LIFECYCLE, "timers": TIMERS, "work": WORK}
NOT_SIMULATED = (INGEST_ERRORS, "-replies")


def name_of(queue: FakeQueue) -> str:
    name = queue.name.removeprefix(queue_name(ENVIRONMENT, "")).removesuffix(".fifo")
    stem = name.removesuffix("-dlq")
    return NAMES.get(stem, stem) + name.removeprefix(stem)


def test_the_simulated_queues_are_deployed() -> None:
    engine, deployed = Engine(), plane(PLANE.name)
    cloud = CloudModel(engine, shipped_contract(), CurrentFaults(engine, Random(0)), [])
    Wiring(cloud).start()
    queues = {name_of(each): each for each in cloud.sqs.queues.values()}
    for name, queue in deployed.queues.items():
        if name.removesuffix("-dlq").endswith(NOT_SIMULATED):
            continue
        simulated, attributes = queues[name], queues[name].attributes
        assert simulated.redrive.get("maxReceiveCount") == queue.find("RedrivePolicy", "maxReceiveCount"), (
            name
        )
        for each in ("VisibilityTimeout", "MessageRetentionPeriod", "DeduplicationScope", "FifoQueue"):
            assert attributes.get(each) == (str(found).lower() if (found := queue.find(each)) else None), (
                name,
                each,
            )
    readers = {name_of(cloud.sqs.queues[queue]): each for queue, each in cloud.sqs.readers.items()}
    assert readers.keys() == deployed.mappings.keys() - {*NOT_SIMULATED}
    for name, reader in readers.items():
        mapping, size = deployed.mappings[name], reader.size
        assert size.batch_size == mapping.find("BatchSize"), name
        assert size.batch_window_s == (mapping.find("MaximumBatchingWindowInSeconds") or 0), name
        assert size.max_concurrency == mapping.find("ScalingConfig", "MaximumConcurrency"), name
        function = deployed.function_behind(mapping, "FunctionName")
        assert size.timeout_s == function.find("Timeout"), name
        assert reader.may_recur == (function.find("RecursiveLoop") == "Allow"), name
