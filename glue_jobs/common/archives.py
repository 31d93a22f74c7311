"""Opening an archive wherever it lies."""

from __future__ import annotations

from pathlib import Path

import boto3

from glue_jobs.common.bucket_objects import BucketObjects
from glue_jobs.common.folder_objects import FolderObjects
from glue_jobs.common.objects import Objects

_S3 = "s3://"


def open_archive(uri: str) -> Objects:
    """The archive at `uri`: a folder, or the root of a bucket. Raises `ArchiveNotFoundError`."""
    if uri.startswith(_S3):
        return BucketObjects(boto3.client("s3"), uri.removeprefix(_S3).rstrip("/"))
    return FolderObjects(Path(uri))
