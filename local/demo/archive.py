"""The archive, fetched from the cloud for the audit on this machine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

_PARALLEL: Final = 8


def fetch(s3: Any, bucket: str, directory: Path, progress: Callable[[int, int], None]) -> int:
    """Copy every object of `bucket` to `directory`; returns how many. `progress` gets (done, of all)."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]

    def copy(key: str) -> None:
        target = directory / key
        target.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, key, str(target))

    with ThreadPoolExecutor(_PARALLEL) as workers:
        for done, _ in enumerate(workers.map(copy, keys), start=1):
            progress(done, len(keys))
    return len(keys)
