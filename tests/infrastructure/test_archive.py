"""How long the archive keeps what, and what Athena sees of it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from eventplane.archive_layout import FOLDERS, Form
from glue_jobs.compaction.main import read_arguments
from tests.infrastructure.templates import Resource, Templates, joined

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
