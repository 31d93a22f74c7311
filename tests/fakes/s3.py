"""S3 in memory: buckets of objects, written on condition and listed by pages."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from botocore.exceptions import ClientError
from botocore.response import StreamingBody

from glue_jobs.common.objects import BucketObjects
from tests.fakes.client import FakeClient
from tests.fakes.clock import FakeClock


@dataclass(frozen=True)
class FakeObject:
    body: bytes
    written_ms: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


class FakeS3(FakeClient):
    """A boto3 client of S3."""

    service = "s3"

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        super().__init__()
        self.clock = clock or FakeClock()
        self.buckets: dict[str, dict[str, FakeObject]] = {}

    def create_bucket(self, *, Bucket: str, **_: Any) -> Any:
        self.buckets.setdefault(Bucket, {})
        return {}

    def head_bucket(self, *, Bucket: str, **_: Any) -> Any:
        if Bucket not in self.buckets:
            raise self.refusal("404", "Not Found", "HeadBucket")
        return {}

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: Any = b"",
        IfNoneMatch: str = "",
        **_: Any,
    ) -> Any:
        objects = self._objects(Bucket, "PutObject")
        if IfNoneMatch == "*" and Key in objects:
            problem = "At least one of the pre-conditions you specified did not hold"
            raise self.refusal("PreconditionFailed", problem, "PutObject")
        body = Body.encode() if isinstance(Body, str) else Body if isinstance(Body, bytes) else Body.read()
        objects[Key] = FakeObject(bytes(body), self.clock())
        return {"ETag": objects[Key].etag}

    def get_object(self, *, Bucket: str, Key: str, **_: Any) -> Any:
        found = self._objects(Bucket, "GetObject").get(Key)
        if found is None:
            raise self._missing_key("GetObject")
        return {
            "Body": StreamingBody(io.BytesIO(found.body), len(found.body)),
            "ContentLength": len(found.body),
            "ETag": found.etag,
            "LastModified": datetime.fromtimestamp(found.written_ms / 1_000, UTC),
        }

    def head_object(self, *, Bucket: str, Key: str, **_: Any) -> Any:
        if Key not in self._objects(Bucket, "HeadObject"):
            raise self.refusal("404", "Not Found", "HeadObject")
        answer = self.get_object(Bucket=Bucket, Key=Key)
        del answer["Body"]
        return answer

    def delete_object(self, *, Bucket: str, Key: str, **_: Any) -> Any:
        self._objects(Bucket, "DeleteObject").pop(Key, None)
        return {}

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any], **_: Any) -> Any:
        for each in Delete["Objects"]:
            self._objects(Bucket, "DeleteObjects").pop(each["Key"], None)
        return (
            {} if Delete.get("Quiet") else {"Deleted": [{"Key": each["Key"]} for each in Delete["Objects"]]}
        )

    def list_objects_v2(
        self,
        *,
        Bucket: str,
        Prefix: str = "",
        Delimiter: str = "",
        MaxKeys: int = 1_000,
        ContinuationToken: str = "",
        StartAfter: str = "",
        **_: Any,
    ) -> Any:
        objects = self._objects(Bucket, "ListObjectsV2")
        names = sorted({_name(key, Prefix, Delimiter) for key in objects if key.startswith(Prefix)})
        left = [name for name in names if name > max(ContinuationToken, StartAfter)]
        page = left[:MaxKeys]
        answer: dict[str, Any] = {"KeyCount": len(page), "IsTruncated": len(page) < len(left)}
        if answer["IsTruncated"]:
            answer["NextContinuationToken"] = page[-1]
        if contents := [self._listed(name, objects[name]) for name in page if name in objects]:
            answer["Contents"] = contents
        if prefixes := [{"Prefix": name} for name in page if name not in objects]:
            answer["CommonPrefixes"] = prefixes
        return answer

    @staticmethod
    def _listed(key: str, found: FakeObject) -> dict[str, Any]:
        written = datetime.fromtimestamp(found.written_ms / 1_000, UTC)
        return {"Key": key, "Size": len(found.body), "ETag": found.etag, "LastModified": written}

    def _objects(self, bucket: str, operation: str) -> dict[str, FakeObject]:
        try:
            return self.buckets[bucket]
        except KeyError:
            problem = "The specified bucket does not exist"
            raise self.refusal("NoSuchBucket", problem, operation) from None

    def _missing_key(self, operation: str) -> ClientError:
        return self.refusal("NoSuchKey", "The specified key does not exist.", operation)


def _name(key: str, prefix: str, delimiter: str) -> str:
    """What a listing has for `key`: itself, or the folder behind `prefix` that it lies in."""
    head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
    return f"{prefix}{head}{found}" if found else key


class MemoryObjects(BucketObjects):
    """`Objects` in a fake bucket: `bodies` by name, written one after the other."""

    def __init__(self, bodies: Mapping[str, bytes] | None = None) -> None:
        s3 = FakeS3(count().__next__)
        s3.checks = False  # hundreds of requests an audit
        s3.create_bucket(Bucket="memory")
        super().__init__(s3, "memory")
        for name, body in (bodies or {}).items():
            self.write(name, body)
