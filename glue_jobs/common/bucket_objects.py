"""An archive in a versioned S3 bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from botocore.exceptions import ClientError

from glue_jobs.common.errors import ArchiveNotFoundError
from glue_jobs.common.objects import OldVersions, Stored

_MOST: Final = 1_000
"""Keys that one request may delete (Amazon S3 API)."""


_LOCKED: Final = "object lock"
"""In the message of the AccessDenied for a locked version; without it a permission is missing."""


class RefusedDeletionError(ClientError):
    """S3 answered a deletion and kept some of the keys; `Errors` of its answer are in the response."""


class BucketObjects:
    """`Objects` in `bucket`, through a boto3 client. Raises what boto3 raises, and `ArchiveNotFoundError`."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        try:
            s3.head_bucket(Bucket=bucket)
        except ClientError as error:
            if _code(error) in ("404", "NoSuchBucket"):
                raise ArchiveNotFoundError(self.uri) from error
            raise

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}"

    def beneath(self, folder: str) -> list[Stored]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=_prefix(folder)
        )
        return [
            Stored(each["Key"], each["Size"], each["ETag"])
            for page in pages
            for each in page.get("Contents", [])
        ]

    def folders(self, folder: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=_prefix(folder), Delimiter="/"
        )
        found = (each["Prefix"] for page in pages for each in page.get("CommonPrefixes", []))
        return [each.rstrip("/").rpartition("/")[2] for each in found]

    def read(self, name: str) -> bytes | None:
        try:
            body: bytes = self._s3.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            raise
        return body

    def write(self, name: str, body: bytes) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=name, Body=body)

    def move(self, name: str, target: str) -> None:
        # The managed copy also takes objects beyond the 5 GB of one request.
        # Nothing here has tags; to copy them would need permission to read them.
        no_tags = {"TaggingDirective": "REPLACE"}
        self._s3.copy({"Bucket": self._bucket, "Key": name}, self._bucket, target, ExtraArgs=no_tags)
        self.delete([name])

    def delete(self, names: Iterable[str]) -> None:
        self._delete([{"Key": name} for name in names])

    def delete_old_versions(self, prefix: str) -> OldVersions:
        pages = self._s3.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
        old = [
            {"Key": each["Key"], "VersionId": each["VersionId"]}
            for page in pages
            for each in page.get("Versions", [])
            if not each["IsLatest"]
        ]
        # Only if a version is locked: S3 takes the bypass from nobody else.
        locked = self._refused(self._refused(old), BypassGovernanceRetention=True)
        return OldVersions(deleted=len(old) - len(locked), locked=len(locked))

    def _delete(self, keys: list[dict[str, str]]) -> None:
        for answer in self._delete_in_parts(keys):
            if answer.get("Errors"):
                raise RefusedDeletionError({"Error": answer["Errors"][0]}, "DeleteObjects")

    def _refused(self, versions: list[dict[str, str]], **options: Any) -> list[dict[str, str]]:
        """Delete `versions`, and return those that Object Lock keeps."""
        refused = []
        for answer in self._delete_in_parts(versions, **options):
            for error in answer.get("Errors", []):
                if _LOCKED not in error.get("Message", ""):
                    raise RefusedDeletionError({"Error": error}, "DeleteObjects")
                refused.append({"Key": error["Key"], "VersionId": error["VersionId"]})
        return refused

    def _delete_in_parts(self, keys: list[dict[str, str]], **options: Any) -> Iterator[dict[str, Any]]:
        for start in range(0, len(keys), _MOST):
            part = {"Objects": keys[start : start + _MOST], "Quiet": True}
            yield self._s3.delete_objects(Bucket=self._bucket, Delete=part, **options)


def _prefix(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))
