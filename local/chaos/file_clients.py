"""S3 and SQS over files, as far as the router and the archive writer call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from local.chaos.arrivals import ArrivalWriter


class FileS3:
    """Every bucket is a folder of `root`. An object is there whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **_: Any) -> None:  # noqa: N803 - boto3's names
        """Write one object; one that is there is replaced."""
        path = self._root / Bucket / Key
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.unfinished")
        unfinished.write_bytes(Body)
        unfinished.replace(path)


class FileSqs:
    """Every queue is the file of a service's arrivals, which its URL names."""

    def __init__(self, queues: Mapping[str, Path]) -> None:
        self._writers = {url: ArrivalWriter(path) for url, path in queues.items()}

    def send_message_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803 - boto3's names
        Entries: Sequence[Mapping[str, Any]],  # noqa: N803
    ) -> dict[str, Any]:
        """Note all entries as arrived."""
        self._writers[QueueUrl].write(entry["MessageBody"] for entry in Entries)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}
