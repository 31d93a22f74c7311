"""What the jobs read of an archive: a copy of it is compacted and audited here, and every open is counted."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks.cost.life import Reads
from eventplane.archive_layout import COMPACTED, compacted_folders
from glue_jobs.common.session import local_session
from glue_jobs.compaction.main import main as compact
from glue_jobs.delivery_audit.main import main as audit

_RAW: Final = ".json.gz"
_OPENED: Final = 0x20
"""IN_OPEN (inotify(7))."""
_HEAD: Final = struct.Struct("iIII")


def measured(s3: Any, bucket: str, folder: Path) -> tuple[Reads, dict[str, Any]]:
    """Copy the archive in `bucket` to `folder` and let the jobs read it; also the audit's report."""
    _copy(s3, bucket, folder)
    raw = [each for name, _ in compacted_folders() for each in (folder / name.name).rglob(f"*{_RAW}")]
    raw_bytes = sum(each.stat().st_size for each in raw)
    spark = local_session(is_short=True)
    try:
        with opens(raw) as compacting:
            compact(["--INPUT", str(folder), "--DATE", "all"], datetime.now(UTC) + timedelta(hours=3))
        with opens(raw) as auditing:
            report = audit(["--INPUT", str(folder), "--OUTPUT", str(folder / "audit")])
    finally:
        spark.stop()
    compacted = sum(each.stat().st_size for each in (folder / COMPACTED).rglob("*.parquet"))
    found = Reads(
        compaction=sum(compacting.values()) / len(raw),
        audit=sum(auditing.values()) / len(raw),
        compacted_bytes=compacted / raw_bytes,
    )
    return found, report


@contextmanager
def opens(files: list[Path]) -> Iterator[Counter[str]]:
    """How often each of `files` is opened within the block, by any process, by name.

    The kernel may report openings of one file as one if nothing else is opened between them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init()
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init")
    for folder in {each.parent for each in files}:
        if libc.inotify_add_watch(descriptor, os.fsencode(folder), _OPENED) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
    names = {each.name for each in files}
    found: Counter[str] = Counter()
    ending = files[0].parent / ".end"
    thread = threading.Thread(target=_read, args=(descriptor, names, found, ending.name), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ending.touch()  # opens it: the reader has then seen all that came before
        thread.join()
        ending.unlink()
        os.close(descriptor)


def _read(descriptor: int, names: set[str], found: Counter[str], ending: str) -> None:
    while True:
        buffer = os.read(descriptor, 1 << 16)
        while buffer:
            _, _, _, size = _HEAD.unpack_from(buffer)
            name = buffer[_HEAD.size : _HEAD.size + size].rstrip(b"\0").decode()
            buffer = buffer[_HEAD.size + size :]
            if name in names:
                found[name] += 1
            elif name == ending:
                return


def _copy(s3: Any, bucket: str, folder: Path) -> None:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for each in page.get("Contents", []):
            path = folder / each["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read())
