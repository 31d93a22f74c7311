"""The plane's archive, as tests read it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from local.plane import Plane

Row = dict[str, Any]


class Archive:
    """The archive's rows by folder. Each object is read once, and again when it was replaced."""

    def __init__(self, plane: Plane) -> None:
        self.s3 = plane.cloud.client("s3")
        self.bucket = plane.outputs["ArchiveBucket"]
        self._read: dict[tuple[str, str], list[Row]] = {}

    def body(self, key: str) -> bytes:
        found: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return found

    def keys(self, folder: str = "") -> list[str]:
        """The keys below `folder` (`ledger`), or all."""
        return [key for key, _ in self._listed(folder)]

    def objects(self, folder: str) -> Iterator[tuple[str, list[Row]]]:
        """The objects of a folder as of now, by key."""
        for key, tag in self._listed(folder):
            if (key, tag) not in self._read:
                lines = gzip.decompress(self.body(key)).splitlines()
                self._read[key, tag] = [json.loads(line) for line in lines]
            yield key, self._read[key, tag]

    def rows(self, folder: str) -> Iterator[Row]:
        """The rows of a folder as of now."""
        for _, rows in self.objects(folder):
            yield from rows

    def copy_to(self, folder: Path) -> None:
        """Copy the whole archive into a folder, as an auditor would."""
        for key in self.keys():
            file = folder / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.body(key))

    def _listed(self, folder: str) -> list[tuple[str, str]]:
        prefix = f"{folder}/" if folder else ""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [(each["Key"], each["ETag"]) for page in pages for each in page.get("Contents", [])]
