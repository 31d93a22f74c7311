"""What the archive says of one run: the rows of tap and ledger that name it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from eventplane.ledger import LEDGER, TAP
from operations import system
from operations.archive import Record

_PARALLEL: Final = 8

_CLOCKS: Final = timedelta(minutes=5)
"""How far the clock of this machine may be off."""


class Evidence:
    """Reads what was written to `bucket` since `since`, each object once, and keeps the lines with `run`."""

    def __init__(self, s3: Any, bucket: str, run: str, since: datetime) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._run = run.encode()
        self._since = since - _CLOCKS
        self._seen: set[str] = set()
        self._rows: dict[str, list[Record]] = {TAP: [], LEDGER: []}

    def ledger(self) -> list[Record]:
        """Return the routers' decisions by now. Raises botocore's errors."""
        return self._read(LEDGER)

    def tap(self) -> list[Record]:
        """Return what IoT Core accepted and the archive has by now. Raises botocore's errors."""
        return self._read(TAP)

    def _read(self, folder: str) -> list[Record]:
        new = [key for key in self._written(folder) if key not in self._seen]
        with system.pool(_PARALLEL) as workers:
            for key, rows in zip(new, workers.map(self._rows_of, new), strict=True):
                self._seen.add(key)
                self._rows[folder] += rows
        return self._rows[folder]

    def _written(self, folder: str) -> Iterator[str]:
        """Yield the objects of the hours since then: an hour's folder is that of writing."""
        hour = self._since.replace(minute=0, second=0, microsecond=0)
        pages = self._s3.get_paginator("list_objects_v2")
        while hour <= system.now() + _CLOCKS:
            prefix = f"{folder}/date={hour:%Y-%m-%d}/hour={hour:%H}/"
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for each in page.get("Contents", []):
                    if each["LastModified"] >= self._since:
                        yield each["Key"]
            hour += timedelta(hours=1)

    def _rows_of(self, key: str) -> list[Record]:
        packed = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        try:
            lines = gzip.decompress(packed).splitlines()
        except (EOFError, OSError, zlib.error):
            return []  # damaged: the audit reports it, and what is missed here is reported as not seen
        return [json.loads(line) for line in lines if self._run in line]
