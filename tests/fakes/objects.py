"""The archive's objects in memory, in a bucket of their own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from glue_jobs.common.objects import BucketObjects
from tests.fakes.s3 import FakeS3


class MemoryObjects(BucketObjects):
    """`Objects` in a fake bucket: `bodies` by name, written one after the other."""

    def __init__(self, bodies: Mapping[str, bytes] | None = None) -> None:
        s3 = FakeS3(count().__next__)
        s3.checks = False  # hundreds of requests an audit
        s3.create_bucket(Bucket="memory")
        super().__init__(s3, "memory")
        for name, body in (bodies or {}).items():
            self.write(name, body)
