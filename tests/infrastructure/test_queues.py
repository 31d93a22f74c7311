"""Rules for every queue and for every reader of one."""

import json

import pytest

from eventplane.contract import Contract, ParticipantKind, Priority
from eventplane.contract.schedules import most_receives
from eventplane.function_settings import RouterSettings
from eventplane.limits import MAX_RECEIVES
from stacks.settings import VISIBILITY_FACTOR
from tests.infrastructure.templates import FUNCTION, MAPPING, QUEUE, Resource, Templates

DAY_S = 86_400


def dead_letter_queue(queue: Resource, templates: Templates) -> Resource:
    target = queue.find("RedrivePolicy", "deadLetterTargetArn")["Fn::GetAtt"][0]
    return next(each for each in templates.of(QUEUE, stack=queue.stack) if each.id == target)


def test_every_queue_has_a_dead_letter_queue_or_is_one(templates: Templates) -> None:
    queues = templates.queues
    for name, queue in queues.items():
        if name.endswith("-replies"):
            # A reply that nobody waits for any more is worth nothing.
            assert queue.find("MessageRetentionPeriod") == 600
            assert queue.find("RedrivePolicy") is None
        elif "-dlq" in name:
            assert queue.find("MessageRetentionPeriod") == 14 * DAY_S
            assert queue.find("RedrivePolicy") is None
        else:
            letters = dead_letter_queue(queue, templates)
            assert letters.name.removesuffix(".fifo") == f"{name}-dlq"
            assert letters.find("FifoQueue") == queue.find("FifoQueue")
            assert queue.find("RedrivePolicy", "maxReceiveCount") >= 5
    replies = [name for name in queues if name.endswith("-replies")]
    assert len(replies) == 1
    # What SNS cannot deliver has one as well, where somebody is notified.
    of_topics = {"pages-dlq", "tickets-dlq"} & queues.keys()
    assert sum("-dlq" in name for name in queues.keys() - of_topics) * 2 == len(queues.keys() - of_topics) - 1


def test_every_queue_is_encrypted(templates: Templates) -> None:
    assert all(queue.find("SqsManagedSseEnabled") is True for queue in templates.of(QUEUE))


def test_every_queue_and_bucket_refuses_plain_http(released: Templates) -> None:
    denied = list[str]()
    for policy in released.of("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy"):
        for statement in policy.find("PolicyDocument")["Statement"]:
            if statement["Effect"] == "Deny" and statement["Principal"] == {"AWS": "*"}:
                assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
                assert statement["Action"] in ("sqs:*", "s3:*")
                targets = policy.find("Queues") or [policy.find("Bucket")]
                denied += [each["Ref"] for each in targets]
    # Each has one policy: a second would replace the first.
    assert sorted(denied) == sorted(each.id for each in released.of(QUEUE, "AWS::S3::Bucket"))
    queues = [
        each["Ref"] for policy in released.of("AWS::SQS::QueuePolicy") for each in policy.find("Queues")
    ]
    assert len(queues) == len({*queues})


def test_a_source_queue_has_its_times(templates: Templates) -> None:
    for name, mapping in templates.mappings.items():
        queue = templates.queues[name]
        timeout = templates.function_behind(mapping, "FunctionName").find("Timeout")
        window = mapping.find("MaximumBatchingWindowInSeconds") or 0
        is_urgent = name == "ingest-urgent"
        factor = 2 if is_urgent else VISIBILITY_FACTOR
        assert queue.find("VisibilityTimeout") >= factor * timeout + window, name
        if is_urgent:
            # Throttling spends receives; so many that an outage still has enough.
            assert queue.find("RedrivePolicy", "maxReceiveCount") == MAX_RECEIVES
            assert queue.find("VisibilityTimeout") <= 30


def test_every_mapping_reports_failures_one_by_one_and_is_bounded(templates: Templates) -> None:
    for mapping in templates.of(MAPPING):
        assert mapping.find("FunctionResponseTypes") == ["ReportBatchItemFailures"], mapping
        assert mapping.find("ScalingConfig", "MaximumConcurrency") >= 2, mapping


@pytest.mark.source("P5")
def test_the_urgent_lane_has_executions_of_its_own_in_production(prod: Templates, dev: Templates) -> None:
    reserved = {name: each.find("ReservedConcurrentExecutions") for name, each in prod.functions.items()}
    urgent = reserved.pop("router-device-urgent")
    assert urgent == prod.mappings["ingest-urgent"].find("ScalingConfig", "MaximumConcurrency")
    assert not any(reserved.values())
    # A new account has ten executions, and Lambda lets nobody reserve the last hundred.
    assert not any(each.find("ReservedConcurrentExecutions") for each in dev.of(FUNCTION))


PLANES_OWN = (
    "connections device-inbox downlink-inbox downlink-work ingest ingest-errors ingest-urgent ledger tap "
    "presence presence-monitor-inbox presence-timers replay subscribers-inbox"
)


@pytest.mark.source("P5")
def test_mappings_are_bounded(templates: Templates, contract: Contract) -> None:
    outboxes = {f"{each.name}-outbox" for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)}
    assert len(templates.of(MAPPING)) == len(templates.mappings)
    receipts = {"alarm-centre-receipts", "carers-receipts"}
    assert templates.mappings.keys() == {*PLANES_OWN.split()} | outboxes | receipts
    readers = {
        name: templates.function_behind(each, "FunctionName").name
        for name, each in templates.mappings.items()
    }
    assert {readers.pop(each) for each in outboxes} == {"router-services"}
    assert {readers.pop(each) for each in receipts} == {"ledger-writer"}
    assert len({*readers.values()}) == len(readers)


def test_a_service_whose_outbox_is_urgent_has_a_router_of_its_own(guarded: Templates) -> None:
    """Its calls are short, and nothing of another service is in its way."""
    routers = {
        name: guarded.function_behind(guarded.mappings[f"{name}-outbox"], "FunctionName")
        for name in ("alarm-centre", "carers")
    }
    assert {name: each.name for name, each in routers.items()} == {
        "alarm-centre": "router-alarm-centre",
        "carers": "router-services",
    }
    assert routers["alarm-centre"].settings(RouterSettings).priority is Priority.URGENT
    assert "alarm-centre-outbox" not in guarded.may(routers["carers"])["sqs:ReceiveMessage"]


@pytest.mark.source("N4")
def test_a_queue_has_the_retention_of_its_channel(dev: Templates, contract: Contract) -> None:
    for participant in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        for channel in (participant.inbox, participant.outbox):
            queue = dev.queues[f"{participant.name}-{channel.box}"]
            assert queue.find("MessageRetentionPeriod") == channel.retention_s
            assert queue.find("RedrivePolicy", "maxReceiveCount") == most_receives(channel, channel.priority)


def test_no_stack_imports_from_another(templates: Templates) -> None:
    for stack, document in templates.documents.items():
        assert "Fn::ImportValue" not in json.dumps(document), stack
        assert not any("Export" in output for output in document.get("Outputs", {}).values()), stack
