"""Rules for every queue and its readers, and for the archive."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventplane.archive_layout import FOLDERS, Form
from eventplane.contract import Contract, ParticipantKind, Priority
from eventplane.contract.schedules import most_receives
from eventplane.function_settings import RouterSettings
from eventplane.limits import MAX_RECEIVES
from glue_jobs.compaction.main import read_arguments
from stacks.settings import VISIBILITY_FACTOR
from tests.infrastructure.templates import FUNCTION, MAPPING, QUEUE, Resource, Templates, joined

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


KEPT_FOREVER = {"contracts/", "erasures/"}


def buckets(templates: Templates) -> tuple[Resource, Resource]:
    """The archive, and the bucket that jobs work in."""
    # A third one, between them by its name, records reads where that is wanted.
    archive, *_, work = sorted(
        templates.of("AWS::S3::Bucket"), key=lambda each: json.dumps(each.find("BucketName"))
    )
    return archive, work


def rules(templates: Templates) -> list[dict[str, Any]]:
    bucket, _ = buckets(templates)
    found: list[dict[str, Any]] = bucket.find("LifecycleConfiguration", "Rules")
    assert all(each["Status"] == "Enabled" for each in found)
    return found


def test_only_compaction_removes_raw_objects(templates: Templates) -> None:
    kept = templates.environment.retention
    assert kept.raw_days not in {each.get("ExpirationInDays") for each in rules(templates)}
    job = templates.one("AWS::Glue::Job", "compaction")
    given = {**job.find("DefaultArguments"), "--INPUT": "s3://archive/"}
    words = [word for name in ("--INPUT", "--DATE", "--RAW_DAYS") for word in (name, given[name])]
    arguments = read_arguments(words, datetime(2026, 3, 1, tzinfo=UTC))
    assert arguments.raw_age == timedelta(days=kept.raw_days)


def test_everything_about_events_leaves_and_nothing_else(templates: Templates) -> None:
    kept = templates.environment.retention
    ends = {each.get("Prefix"): each for each in rules(templates)}
    assert not [each for each in rules(templates) if "TagFilters" in each]  # a tag costs as much as a PUT
    folders = {f"{each.name.partition('/')[0]}/" for each in FOLDERS}
    leaving = {"compacted/", "published/", "compactions/"} | folders - KEPT_FOREVER
    assert set(ends) == {None, "athena/"} | leaving
    assert {ends[prefix]["ExpirationInDays"] for prefix in leaving} == {kept.compacted_days}
    assert ends[None]["NoncurrentVersionExpiration"]["NoncurrentDays"] == kept.replaced_days


def test_work_of_jobs_leaves_within_days(templates: Templates) -> None:
    archive, work = buckets(templates)
    assert archive.find("VersioningConfiguration", "Status") == "Enabled"
    assert work.find("VersioningConfiguration") is None
    lifecycle = work.find("LifecycleConfiguration", "Rules")
    ends = {each["Prefix"]: each["ExpirationInDays"] for each in lifecycle if "Prefix" in each}
    assert ends == {"work/": 1, "event-logs/": 14}
    for job in templates.of("AWS::Glue::Job"):
        name, given = job.find("Name"), job.find("DefaultArguments")
        # Only the audit keeps tables.
        assert ("--WORK" in given) == ("audit" in name)
        folders = {"event-logs": given["--spark-event-logs-path"]}
        folders |= {"work": given["--WORK"]} if "--WORK" in given else {}
        for folder, path in folders.items():
            assert "-work-" in joined(path)
            assert joined(path).endswith(f"/{folder}/{name}/")


def test_every_folder_of_rows_is_a_table_with_projected_partitions(templates: Templates) -> None:
    tables = {each.find("TableInput", "Name"): each for each in templates.of("AWS::Glue::Table")}
    expected = {f"{each.name}_raw" for each in FOLDERS if each.form is Form.LINES}
    expected |= {each.name for each in FOLDERS if each.compaction}
    expected |= {each.name.replace("/", "_") for each in FOLDERS if each.form is Form.PARQUET}
    expected -= {"audit_deliveries"}  # no environment here asks for it
    assert set(tables) == expected
    for name, table in tables.items():
        parameters = table.find("TableInput", "Parameters")
        assert parameters["projection.enabled"] == "true", name
        template = joined(parameters["storage.location.template"])
        for each in (each["Name"] for each in table.find("TableInput", "PartitionKeys")):
            assert f"projection.{each}.type" in parameters
            assert f"{each}=${{{each}}}/" in template
        assert parameters["projection.date.range"].endswith(",NOW")


def test_a_compacted_table_reads_what_is_published(dev: Templates) -> None:
    (tap,) = (each for each in dev.of("AWS::Glue::Table") if each.find("TableInput", "Name") == "tap")
    storage = tap.find("TableInput", "StorageDescriptor")
    assert storage["InputFormat"].endswith("SymlinkTextInputFormat")
    assert joined(storage["Location"]).endswith("/published/tap/")
    columns = {each["Name"]: each["Type"] for each in storage["Columns"]}
    assert columns["accepted_at_ms"] == "bigint"
    assert {"event", "source", "line_text", "archive_file"} <= set(columns)
