"""What holds for every queue and everything that reads one."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from contract import load_contract
from eventplane.contract import Contract, ParticipantKind, compile_contract
from eventplane.limits import MAX_RECEIVES
from stacks.settings import VISIBILITY_FACTOR
from tests.infrastructure.templates import Resource, Templates, statements, words

QUEUE = "AWS::SQS::Queue"
MAPPING = "AWS::Lambda::EventSourceMapping"
DAY_S = 86_400


def queues(templates: Templates) -> dict[str, Resource]:
    return {each.find("QueueName"): each for each in templates.of(QUEUE)}


def dead_letter_queue(queue: Resource, templates: Templates) -> Resource:
    target = queue.find("RedrivePolicy", "deadLetterTargetArn")["Fn::GetAtt"][0]
    return next(each for each in templates.of(QUEUE) if (each.stack, each.id) == (queue.stack, target))


def test_every_queue_has_a_dead_letter_queue_or_is_one(templates: Templates) -> None:
    all_queues = queues(templates)
    for name, queue in all_queues.items():
        if name.endswith("-replies"):
            # What nobody waits for any more is worth nothing.
            assert queue.find("MessageRetentionPeriod") == 600
            assert queue.find("RedrivePolicy") is None
        elif "-dlq" in name:
            assert queue.find("MessageRetentionPeriod") == 14 * DAY_S
            assert queue.find("RedrivePolicy") is None
        else:
            letters = dead_letter_queue(queue, templates)
            assert letters.find("QueueName").startswith(f"{name.removesuffix('.fifo')}-dlq")
            assert letters.find("FifoQueue") == queue.find("FifoQueue")
            assert queue.find("RedrivePolicy", "maxReceiveCount") >= 5
    replies = {name for name in all_queues if name.endswith("-replies")}
    assert len(replies) == 1
    assert sum("-dlq" in name for name in all_queues) * 2 == len(all_queues) - len(replies)


def test_every_queue_is_encrypted(templates: Templates) -> None:
    assert all(queue.find("SqsManagedSseEnabled") is True for queue in templates.of(QUEUE))


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_every_queue_and_bucket_refuses_plain_http(name: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue(name)
    denied = set()
    for policy in templates.of("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy"):
        for statement in policy.find("PolicyDocument")["Statement"]:
            if statement["Effect"] == "Deny" and statement["Principal"] == {"AWS": "*"}:
                assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
                assert statement["Action"] in ("sqs:*", "s3:*")
                target = policy.find("Bucket") or policy.find("Queues")[0]
                denied.add(target["Ref"])
    assert denied == {each.id for each in templates.of(QUEUE, "AWS::S3::Bucket")}


def test_a_source_queue_hides_messages_for_six_timeouts_and_the_window_and_urgent_ones_for_two(
    templates: Templates,
) -> None:
    for mapping in templates.of(MAPPING):
        timeout = templates.function_behind(mapping, "FunctionName").find("Timeout")
        window = mapping.find("MaximumBatchingWindowInSeconds") or 0
        visibility = source(mapping, templates).find("VisibilityTimeout")
        queue = source(mapping, templates)
        is_urgent = queue.find("QueueName").endswith("-ingest-urgent")
        factor = 2 if is_urgent else VISIBILITY_FACTOR
        assert visibility >= factor * timeout + window, mapping
        if is_urgent:
            # So that receives which throttling spends are none that an outage needs.
            assert queue.find("RedrivePolicy", "maxReceiveCount") == MAX_RECEIVES
            assert visibility <= 30


def test_every_mapping_reports_failures_one_by_one_and_is_bounded(templates: Templates) -> None:
    for mapping in templates.of(MAPPING):
        assert mapping.find("FunctionResponseTypes") == ["ReportBatchItemFailures"], mapping
        assert mapping.find("ScalingConfig", "MaximumConcurrency") >= 2, mapping


@pytest.mark.source("P5")
def test_the_urgent_lane_has_executions_of_its_own_in_production(prod: Templates, dev: Templates) -> None:
    reserved = {
        each.find("FunctionName"): each.find("ReservedConcurrentExecutions")
        for each in prod.of("AWS::Lambda::Function")
    }
    urgent = reserved.pop("eventplane-prod-router-device-urgent")
    (mapping,) = [
        each
        for each in prod.of(MAPPING)
        if source(each, prod).find("QueueName") == "eventplane-prod-ingest-urgent"
    ]
    assert urgent == mapping.find("ScalingConfig", "MaximumConcurrency")
    assert not any(reserved.values())
    # A new account has ten executions, and Lambda lets nobody reserve the last hundred.
    assert not any(each.find("ReservedConcurrentExecutions") for each in dev.of("AWS::Lambda::Function"))


@pytest.mark.source("P5")
def test_every_source_queue_has_one_function_of_its_own(templates: Templates, contract: Contract) -> None:
    sources = [source(mapping, templates).find("QueueName") for mapping in templates.of(MAPPING)]
    functions = [str(templates.function_behind(each, "FunctionName")) for each in templates.of(MAPPING)]
    assert len(set(functions)) == len(functions) == len(set(sources))
    outboxes = [f"{each.name}-outbox" for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)]
    assert sorted(name.split("-", 2)[2] for name in sources) == sorted(
        [
            "connections",
            "device-inbox",
            "downlink-inbox",
            "downlink-work",
            "ingest",
            "ingest-errors",
            "ingest-urgent",
            "ledger",
            "tap",
            "presence",
            "presence-monitor-inbox",
            "presence-timers",
            "replay",
            "subscribers-inbox",
            *outboxes,
        ]
    )


@pytest.mark.source("N4")
def test_a_queue_keeps_what_its_channel_says(dev: Templates, contract: Contract) -> None:
    for participant in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        for channel in (participant.inbox, participant.outbox):
            queue = queues(dev)[f"eventplane-dev-{participant.name}-{channel.box}"]
            assert queue.find("MessageRetentionPeriod") == channel.retention_s
            assert queue.find("RedrivePolicy", "maxReceiveCount") == channel.max_receives


@pytest.fixture
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(load_contract().canonical)
    return loaded


@pytest.mark.source("P2")
def test_a_new_cloud_service_gets_all_it_needs_from_the_contract_alone(
    dev: Templates, document: dict[str, Any]
) -> None:
    document["participants"]["night-watch"] = {
        "kind": "cloud_service",
        "description": "Somebody is awake.",
        "inbox": {"transport": "sqs_fifo", "ordering": "source", "max_receives": 7, "retention_s": 3_600},
        "outbox": {"transport": "sqs_fifo", "ordering": "source"},
    }
    document["routes"]["to-night-watch"] = {"filter": {"exact": {"type": "x"}}, "to": "night-watch.inbox"}
    grown = Templates("dev", compile_contract(document, "test"))

    inbox = queues(grown)["eventplane-dev-night-watch-inbox.fifo"]
    assert inbox.find("MessageRetentionPeriod") == 3_600
    assert inbox.find("RedrivePolicy", "maxReceiveCount") == 7
    assert dead_letter_queue(inbox, grown).find("QueueName") == "eventplane-dev-night-watch-inbox-dlq.fifo"
    outbox = queues(grown)["eventplane-dev-night-watch-outbox.fifo"]
    (mapping,) = [each for each in grown.of(MAPPING) if source(each, grown) == outbox]
    # All that Lambda takes from a FIFO queue.
    assert mapping.find("BatchSize") <= 10
    assert mapping.find("MaximumBatchingWindowInSeconds") is None
    assert set(grown.outputs("messaging")) - set(dev.outputs("messaging")) == {
        "NightWatchInboxUrl",
        "NightWatchInboxDlqUrl",
        "NightWatchOutboxUrl",
        "NightWatchOutboxDlqUrl",
    }
    assert len(grown.of(MAPPING)) == len(dev.of(MAPPING)) + 1
    for box in (inbox, dead_letter_queue(inbox, grown)):
        assert box.find("FifoQueue") is True
        assert box.find("SqsManagedSseEnabled") is True
    assert inbox.find("FifoThroughputLimit") == "perMessageGroupId"
    assert inbox.find("DeduplicationScope") == "messageGroup"
    assert inbox.find("ContentBasedDeduplication") is None
    # Nothing that was there has moved.
    assert dev.ids() <= grown.ids()


def test_who_comes_goes_or_stands_elsewhere_changes_nobody_elses_ids(
    dev: Templates, document: dict[str, Any]
) -> None:
    document["participants"] = dict(reversed(document["participants"].items()))
    moved = Templates("dev", compile_contract(document, "test"))
    assert moved.ids() == dev.ids()

    del document["participants"]["family-app"]
    for route in ("daily-life-to-family", "notices-to-relatives"):
        del document["routes"][route]
    left = Templates("dev", compile_contract(document, "test"))
    gone = dev.ids() - left.ids()
    assert gone
    assert all("familyapp" in each.lower().replace("-", "") for each in gone), gone
    assert left.ids() <= dev.ids()


def test_a_retired_service_keeps_its_queues_and_nobody_may_write_its_inbox(
    dev: Templates, document: dict[str, Any]
) -> None:
    document["participants"]["family-app"]["retired"] = True
    for route in ("daily-life-to-family", "notices-to-relatives"):
        del document["routes"][route]
    retired = Templates("dev", compile_contract(document, "test"))
    assert set(queues(retired)) == set(queues(dev))
    assert "family-app-inbox" not in json.dumps(retired.documents["routing"])
    # What it has written already is still routed.
    assert "router-family-app" in json.dumps(retired.documents["routing"])
    assert retired.outputs("routing")["RetiredParticipants"] == "family-app"
    assert "RetiredParticipants" not in dev.outputs("routing")


def test_nobody_but_routers_replay_and_its_own_reader_writes_the_inbox_of_devices(
    templates: Templates,
) -> None:
    """Its reader sends itself the rest of an event for many: no participant can put such a message there."""
    writers = {
        each.id
        for each in templates.of("AWS::IAM::Role", "AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for statement in statements(each)
        if statement["Effect"] == "Allow"
        if any(fnmatchcase("sqs:SendMessage", action) for action in words(statement["Action"]))
        if any('-device-inbox"' in each or "*" in each for each in words(statement.get("Resource", "")))
    }
    routers = {each for each in writers if "RouterRole" in each}
    own = {each for each in writers if each.startswith(("DownlinkDesiredRole", "ReplayRole"))}
    assert routers
    assert {each.rstrip("0123456789ABCDEF") for each in own} == {"DownlinkDesiredRole", "ReplayRole"}
    assert writers == routers | own
    # Nor does the queue let anybody in by a policy of its own.
    policies = templates.of("AWS::SQS::QueuePolicy")
    inboxes = [each for each in policies if "DeviceInbox" in json.dumps(each.find("Queues"))]
    assert {statement["Effect"] for each in inboxes for statement in statements(each)} <= {"Deny"}


def test_with_a_retired_downlink_nobody_writes_the_inbox_of_devices(
    dev: Templates, document: dict[str, Any]
) -> None:
    document["participants"]["downlink"]["retired"] = True
    for name in [name for name, each in document["routes"].items() if "device.inbox" in each["to"]]:
        del document["routes"][name]
    del document["routes"]["answers-to-downlink"]
    retired = Templates("dev", compile_contract(document, "test"))
    assert set(queues(retired)) == set(queues(dev))
    writers = {
        each.id
        for each in retired.of("AWS::IAM::Role", "AWS::IAM::Policy")
        for statement in statements(each)
        if "sqs:SendMessage" in words(statement["Action"])
        and any(':eventplane-dev-device-inbox"' in each for each in words(statement["Resource"]))
    }
    # Its own reader, which sends itself the rest of what is for all devices.
    assert [each.startswith("DownlinkDesiredRole") for each in writers] == [True]
    # What lies there is still brought down.
    assert "eventplane-dev-device-inbox" in {
        source(each, retired).find("QueueName") for each in retired.of(MAPPING)
    }
    assert retired.outputs("routing")["RetiredParticipants"] == "device,downlink"


def test_a_participant_can_leave_because_no_stack_imports_from_another(templates: Templates) -> None:
    for stack, document in templates.documents.items():
        assert "Fn::ImportValue" not in json.dumps(document), stack
        assert not any("Export" in output for output in document.get("Outputs", {}).values()), stack


def source(mapping: Resource, templates: Templates) -> Resource:
    """The queue of a mapping, which names it by an ARN."""
    name = json.dumps(mapping.find("EventSourceArn")).rsplit(":", 1)[-1].strip('"]} ')
    return queues(templates)[name]
