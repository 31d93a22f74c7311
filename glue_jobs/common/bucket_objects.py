"""An archive in a versioned S3 bucket."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane.archive_layout import RELEASED
from glue_jobs.common.errors import ArchiveNotFoundError
from glue_jobs.common.objects import Stored

_PARALLEL: Final = 16
"""Requests at a time: each mostly waits for S3."""

_MOST: Final = 1_000
"""Keys that one request may delete (Amazon S3 API)."""


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
        tags = "&".join(f"{key}={value}" for key, value in self._tags(name).items())
        # Who may not tag may still write what has no tags.
        more = {"Tagging": tags} if tags else {}
        self._s3.put_object(Bucket=self._bucket, Key=name, Body=body, **more)

    def move(self, name: str, target: str) -> None:
        # The managed copy also takes objects beyond the 5 GB of one request.
        self._s3.copy({"Bucket": self._bucket, "Key": name}, self._bucket, target)
        self.delete([name])

    def delete(self, names: Iterable[str]) -> None:
        self._delete([{"Key": name} for name in names])

    def release(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(_PARALLEL) as workers:
            # To the end, so that the first refusal is raised here.
            for _ in workers.map(self._release, names):
                pass

    def delete_old_versions(self, prefix: str) -> int:
        pages = self._s3.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
        old = [
            {"Key": each["Key"], "VersionId": each["VersionId"]}
            for page in pages
            for each in page.get("Versions", [])
            if not each["IsLatest"]
        ]
        self._delete(old)
        return len(old)

    def _release(self, name: str) -> None:
        tags = self._tags(name)
        if tags.get(RELEASED) != "true":
            tags[RELEASED] = "true"
            tag_set = [{"Key": key, "Value": value} for key, value in tags.items()]
            self._s3.put_object_tagging(Bucket=self._bucket, Key=name, Tagging={"TagSet": tag_set})

    def _tags(self, name: str) -> dict[str, str]:
        try:
            found = self._s3.get_object_tagging(Bucket=self._bucket, Key=name)
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return {}
            raise
        return {each["Key"]: each["Value"] for each in found["TagSet"]}

    def _delete(self, keys: list[dict[str, str]]) -> None:
        for start in range(0, len(keys), _MOST):
            answer = self._s3.delete_objects(
                Bucket=self._bucket, Delete={"Objects": keys[start : start + _MOST], "Quiet": True}
            )
            if answer.get("Errors"):
                raise RefusedDeletionError({"Error": answer["Errors"][0]}, "DeleteObjects")


def _prefix(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))
