"""The archive's objects: folder and bucket behave alike, and a bucket besides has versions."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from glue_jobs.common.objects import (
    ArchiveNotFoundError,
    BucketObjects,
    FolderObjects,
    Objects,
    OldVersions,
    RefusedDeletionError,
)

BUCKET = "archive"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield client


@pytest.fixture
def bucket(s3: Any) -> BucketObjects:
    return BucketObjects(s3, BUCKET)


@pytest.fixture(params=["folder", "bucket"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(tmp_path)
    return request.getfixturevalue("bucket")


@pytest.mark.lost_answers
def test_what_is_written_is_read_and_listed(objects: Objects) -> None:
    objects.write("tap/date=1/b", b"22")
    objects.write("tap/date=1/a", b"1")
    objects.write("tap/date=2/c", b"333")
    objects.write("tapes/x", b"")
    assert [(each.name, each.size) for each in objects.beneath("tap")] == [
        ("tap/date=1/a", 1),
        ("tap/date=1/b", 2),
        ("tap/date=2/c", 3),
    ]
    assert objects.folders("tap") == ["date=1", "date=2"]
    assert objects.folders("") == ["tap", "tapes"]
    assert len(objects.beneath("")) == 4
    assert objects.read("tap/date=1/b") == b"22"
    assert objects.read("tap/none") is None
    assert objects.beneath("none") == []
    assert objects.folders("none") == []


@pytest.mark.lost_answers
def test_a_mark_changes_with_the_content(objects: Objects) -> None:
    objects.write("a/b", b"1")
    (first,) = objects.beneath("a")
    assert objects.beneath("a") == [first]
    objects.write("a/b", b"2")
    assert objects.beneath("a") != [first]
    objects.write("a/new", b"new")
    objects.move("a/new", "a/b")
    assert [each.name for each in objects.beneath("a")] == ["a/b"]
    assert objects.read("a/b") == b"new"
    objects.delete(["a/b"])
    objects.delete(["a/b", "a/c"])
    assert objects.beneath("a") == []


def test_there_has_to_be_an_archive(s3: Any, tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotFoundError, match="--INPUT"):
        FolderObjects(tmp_path / "none")
    with pytest.raises(ArchiveNotFoundError, match="s3://none"):
        BucketObjects(s3, "none")


@pytest.mark.lost_answers
def test_old_versions_are_deleted_for_good_and_present_ones_stay(bucket: BucketObjects, s3: Any) -> None:
    for name in ("tap/date=1/a", "tap/date=1/gone", "tap/date=2/other"):
        bucket.write(name, b"before")
        bucket.write(name, b"after")
    bucket.delete(["tap/date=1/gone"])
    old = bucket.delete_old_versions("tap/date=1/")
    assert (old.deleted in (3, 4), old.locked) == (True, 0), "a write that was repeated is one version more"
    versions = s3.list_object_versions(Bucket=BUCKET)["Versions"]
    assert {(each["Key"], each["IsLatest"]) for each in versions} == {
        ("tap/date=1/a", True),
        ("tap/date=2/other", True),
        ("tap/date=2/other", False),
    }
    assert bucket.read("tap/date=1/a") == b"after"
    assert bucket.delete_old_versions("tap/date=1/") == OldVersions(0, 0)


def test_more_than_one_request_s_keys_are_deleted(bucket: BucketObjects, s3: Any) -> None:
    for number in (0, 1_000):  # what is not there can be deleted as well
        s3.put_object(Bucket=BUCKET, Key=f"a/{number}", Body=b"")
    bucket.delete([f"a/{number}" for number in range(1_001)])
    assert bucket.beneath("a") == []


class NamingVersions:
    """S3 names the version of a refused deletion; moto names the key only."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def delete_objects(self, **request: Any) -> Any:
        asked = {each["Key"]: each.get("VersionId") for each in request["Delete"]["Objects"]}
        answer = self._s3.delete_objects(**request)
        for error in answer.get("Errors", []):
            error["VersionId"] = asked[error["Key"]]
        return answer


@pytest.fixture
def lock(s3: Any) -> Callable[[str], BucketObjects]:
    """Make a bucket whose objects are locked in a mode, as stacks/constructs/archive.py does."""

    def make(mode: str) -> BucketObjects:
        s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": mode, "Days": 7}}
        s3.put_object_lock_configuration(
            Bucket="locked", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )
        return BucketObjects(NamingVersions(s3), "locked")

    return make


def test_locked_versions_go_by_the_bypass_where_there_is_one(lock: Callable[[str], BucketObjects]) -> None:
    locked = lock("GOVERNANCE")
    for data in (b"before", b"after"):
        locked.write("tap/a", data)
    assert locked.delete_old_versions("tap/") == OldVersions(deleted=1, locked=0)
    assert locked.read("tap/a") == b"after"


def test_versions_that_nobody_may_delete_are_counted(lock: Callable[[str], BucketObjects], s3: Any) -> None:
    locked = lock("COMPLIANCE")
    for data in (b"before", b"after"):
        locked.write("tap/a", data)
    assert locked.delete_old_versions("tap/") == OldVersions(deleted=0, locked=1)
    assert len(s3.list_object_versions(Bucket="locked")["Versions"]) == 2
    # The rest of the archive's life goes on: objects are replaced and deleted.
    locked.delete(["tap/a"])
    assert locked.beneath("tap") == []


def test_a_missing_permission_is_no_lock(bucket: BucketObjects, s3: Any) -> None:
    for data in (b"before", b"after"):
        bucket.write("tap/a", data)
    denied = {"Code": "AccessDenied", "Message": "Access Denied", "Key": "tap/a", "VersionId": "1"}

    class Denying(NamingVersions):
        def delete_objects(self, **request: Any) -> Any:
            return {"Errors": [denied]}

    with pytest.raises(RefusedDeletionError):
        BucketObjects(Denying(s3), BUCKET).delete_old_versions("tap/")


@pytest.mark.lost_answers
def test_what_is_there_is_not_created_again(objects: Objects) -> None:
    assert objects.create("reports/0.json", b"first")
    for body in (b"first", b"second"):
        assert not objects.create("reports/0.json", body)
    assert objects.read("reports/0.json") == b"first"
    assert [each.name for each in objects.beneath("reports")] == ["reports/0.json"]


@pytest.mark.lost_answers
def test_a_large_object_is_moved_in_parts(bucket: BucketObjects) -> None:
    bucket.write("a/large", bytes(9_000_000))
    bucket.move("a/large", "b/large")
    bucket.clear("c")
    assert [(each.name, each.size) for each in bucket.beneath("")] == [("b/large", 9_000_000)]


def test_equal_content_has_an_equal_digest(objects: Objects) -> None:
    for name, body in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        objects.write(f"tap/{name}", body)
    one, same, other = (objects.digest(each) for each in objects.beneath("tap"))
    assert one == same != other


def test_a_prefix_of_a_bucket_is_a_root_of_its_own(s3: Any, bucket: BucketObjects) -> None:
    beneath = BucketObjects(s3, BUCKET, "audits")
    beneath.write("reports/0.json", b"report")
    s3.put_object(Bucket=BUCKET, Key="audits/empty/", Body=b"")
    assert [each.name for each in beneath.beneath("")] == ["reports/0.json"]
    assert bucket.read("audits/reports/0.json") == beneath.read("reports/0.json") == b"report"
    assert (beneath.uri, beneath.folders("")) == (f"s3://{BUCKET}/audits", ["empty", "reports"])
    beneath.clear("reports")
    assert bucket.beneath("audits") == []
