"""How long the archive keeps what, and what Athena sees of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from eventplane.archive_layout import FOLDERS, Form
from eventplane.contract import Contract
from glue_jobs.compaction.main import read_arguments
from stacks.config import environment
from stacks.settings import EnvironmentSettingError, ObjectLock
from tests.infrastructure.templates import Resource, Templates

KEPT_FOREVER = {"contracts/", "erasures/"}


def buckets(templates: Templates) -> tuple[Resource, Resource]:
    """The archive, and the bucket that jobs work in."""
    archive, work = sorted(
        templates.of("AWS::S3::Bucket"), key=lambda each: json.dumps(each.find("BucketName"))
    )
    return archive, work


def rules(templates: Templates) -> list[dict[str, Any]]:
    bucket, _ = buckets(templates)
    found: list[dict[str, Any]] = bucket.find("LifecycleConfiguration", "Rules")
    assert all(each["Status"] == "Enabled" for each in found)
    return found


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_raw_objects_leave_early_only_by_the_job_that_compacted_them(
    name: str, request: pytest.FixtureRequest
) -> None:
    templates: Templates = request.getfixturevalue(name)
    kept = environment(name).retention
    assert kept.raw_days not in {each.get("ExpirationInDays") for each in rules(templates)}
    (job,) = (each for each in templates.of("AWS::Glue::Job") if each.find("Name").endswith("compaction"))
    given = {**job.find("DefaultArguments"), "--INPUT": "s3://archive/"}
    words = [word for name in ("--INPUT", "--DATE", "--RAW_DAYS") for word in (name, given[name])]
    arguments = read_arguments(words, datetime(2026, 3, 1, tzinfo=UTC))
    assert arguments.raw_age == timedelta(days=kept.raw_days)


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_everything_about_events_leaves_and_nothing_else(name: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue(name)
    kept = environment(name).retention
    ends = {each.get("Prefix"): each for each in rules(templates)}
    assert not [each for each in rules(templates) if "TagFilters" in each]  # a tag costs as much as a PUT
    folders = {f"{each.name.partition('/')[0]}/" for each in FOLDERS}
    made = {"compacted/", "published/", "compactions/"}
    assert set(ends) == {None, "athena/"} | made | folders - KEPT_FOREVER
    for prefix in made | folders - KEPT_FOREVER:
        assert ends[prefix]["ExpirationInDays"] == kept.compacted_days
    assert ends[None]["NoncurrentVersionExpiration"]["NoncurrentDays"] == kept.replaced_days


def test_what_jobs_write_while_they_run_has_no_versions_and_leaves_within_days(templates: Templates) -> None:
    archive, work = buckets(templates)
    assert archive.find("VersioningConfiguration", "Status") == "Enabled"
    assert work.find("VersioningConfiguration") is None
    ends = {
        each["Prefix"]: each["ExpirationInDays"]
        for each in work.find("LifecycleConfiguration", "Rules")
        if "Prefix" in each
    }
    assert ends == {"work/": 1, "event-logs/": 14}
    for job in templates.of("AWS::Glue::Job"):
        name, given = job.find("Name"), job.find("DefaultArguments")
        assert text(given["--spark-event-logs-path"]).endswith(f"/event-logs/{name}/")
        assert "-work-" in text(given["--spark-event-logs-path"])
        # Only the audit keeps tables.
        assert ("--WORK" in given) == ("audit" in name)
        if "--WORK" in given:
            assert text(given["--WORK"]).endswith(f"/work/{name}/")
            assert "-work-" in text(given["--WORK"])


def text(value: dict[str, Any]) -> str:
    """What a name in a template is joined of, without references."""
    return "".join(each for each in value["Fn::Join"][1] if isinstance(each, str))


def test_every_folder_of_rows_is_a_table_with_projected_partitions(templates: Templates) -> None:
    tables = {each.find("TableInput", "Name"): each for each in templates.of("AWS::Glue::Table")}
    expected = {f"{each.name}_raw" for each in FOLDERS if each.form is Form.LINES}
    expected |= {each.name for each in FOLDERS if each.compaction}
    expected |= {each.name.replace("/", "_") for each in FOLDERS if each.form is Form.PARQUET}
    assert set(tables) == expected
    for name, table in tables.items():
        parameters = table.find("TableInput", "Parameters")
        assert parameters["projection.enabled"] == "true", name
        partitions = [each["Name"] for each in table.find("TableInput", "PartitionKeys")]
        template = parameters["storage.location.template"]["Fn::Join"][1][-1]
        for each in partitions:
            assert f"projection.{each}.type" in parameters
            assert f"{each}=${{{each}}}/" in template
        assert parameters["projection.date.range"].endswith(",NOW")


def test_a_compacted_table_reads_what_is_published(dev: Templates) -> None:
    (tap,) = (each for each in dev.of("AWS::Glue::Table") if each.find("TableInput", "Name") == "tap")
    storage = tap.find("TableInput", "StorageDescriptor")
    assert storage["InputFormat"].endswith("SymlinkTextInputFormat")
    assert storage["Location"]["Fn::Join"][1][-1] == "/published/tap/"
    columns = {each["Name"]: each["Type"] for each in storage["Columns"]}
    assert columns["accepted_at_ms"] == "bigint"
    assert columns["is_copy"] == "boolean"
    assert {"event", "source", "line_text", "archive_file"} <= set(columns)


@pytest.mark.parametrize("mode", ["governance", "compliance"])
def test_object_lock_is_a_setting_that_every_new_object_gets(
    mode: Literal["governance", "compliance"], contract: Contract, dev: Templates
) -> None:
    plain = environment("dev")
    retention = replace(plain.retention, lock=ObjectLock(mode=mode, days=14))
    locked = Templates(replace(plain, retention=retention), contract)
    bucket, _ = buckets(locked)
    assert bucket.find("ObjectLockEnabled") is True
    rule = bucket.find("ObjectLockConfiguration", "Rule", "DefaultRetention")
    assert rule == {"Mode": mode.upper(), "Days": 14}
    # The erasure may go by the bypass of governance mode; nobody else.
    holders = {
        role.id
        for role in locked.of("AWS::IAM::Role", "AWS::IAM::Policy")
        if "s3:BypassGovernanceRetention" in json.dumps(role.properties)
    }
    assert [each.startswith("Erasure") for each in holders] == [True]
    unlocked, _ = buckets(dev)
    assert unlocked.find("ObjectLockEnabled") is None
    assert "BypassGovernance" not in json.dumps(dev.documents)


def test_a_lock_leaves_room_for_the_right_to_erasure() -> None:
    kept = environment("prod").retention
    # Nobody can delete earlier in compliance mode: a person's events must be gone within a month.
    replace(kept, lock=ObjectLock(mode="compliance", days=30))
    with pytest.raises(EnvironmentSettingError, match=r"lock\.days is 31"):
        ObjectLock(mode="compliance", days=31)
    with pytest.raises(EnvironmentSettingError, match="replaced_days is 31"):
        replace(kept, replaced_days=31, lock=ObjectLock(mode="compliance", days=1))
    # In governance mode the erasure can.
    replace(kept, lock=ObjectLock(mode="governance", days=kept.compacted_days))
    with pytest.raises(EnvironmentSettingError, match="more than compacted_days"):
        replace(kept, lock=ObjectLock(mode="governance", days=kept.compacted_days + 1))
    with pytest.raises(EnvironmentSettingError, match=r"lock\.days is 0"):
        ObjectLock(mode="governance", days=0)
