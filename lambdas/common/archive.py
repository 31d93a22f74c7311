"""The archive bucket: objects of gzipped JSON lines, partitioned by the hour of writing."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.ledger import CONTRACTS
from eventplane.values import RandomBytes
from eventplane.written import LISTED, Extent, WriterList
from lambdas.common.aws import error_code
from lambdas.common.log import logger

# Level 1 takes a quarter of the time of the default 9 for objects a few percent larger.
_GZIP_LEVEL: Final = 1

_EXISTS: Final = "PreconditionFailed"


class Archiver:
    """Writes to `bucket` through a boto3 S3 client. What S3 refuses is raised as botocore raises it."""

    def __init__(self, client: Any, bucket: str, random_bytes: RandomBytes) -> None:
        self._client = client
        self._bucket = bucket
        self._filed: set[str] = set()
        self._random_bytes = random_bytes
        self._lists: defaultdict[str, list[WriterList]] = defaultdict(list)

    def put_lines(
        self,
        folder: str,
        name: str | Callable[[], str],
        written_at_ms: int,
        lines: Iterable[str],
        has_time: Callable[[], bool] = lambda: True,
    ) -> str | None:
        """Write `lines` as one object and return its key; None, and no object, when there are none.

        The partition is the UTC hour of `written_at_ms` (Unix milliseconds): events of any age may lie in it.
        A `name` that depends on the lines is called when they have all been read. Objects of some folders are
        listed (`eventplane.written`) with a second request, if the function `has_time`. Such an object is
        never replaced, so that its list stays true: an object of that name has the same messages.
        """
        extent = Extent()
        body = _compressed(lines, extent)
        if body is None:
            return None  # a device's empty batch only asks whether its line is alive
        moment = datetime.fromtimestamp(written_at_ms / 1_000, UTC)
        called = name if isinstance(name, str) else name()
        key = f"{folder}/date={moment:%Y-%m-%d}/hour={moment:%H}/{called}.json.gz"
        content: dict[str, Any] = {"Key": key, "Body": body, "ContentType": "application/x-ndjson"}
        if folder not in LISTED:
            self._client.put_object(Bucket=self._bucket, **content)
        elif (etag := self._create(**content) or self._own(key, body)) is not None and has_time():
            digest, mark = hashlib.sha256(body).hexdigest(), f"{etag}-{len(body)}"
            self._enter(folder, key, written_at_ms, extent, digest, mark)
        return key

    def put_messages(
        self, folder: str, held: Collection[str], written_at_ms: int, lines: Iterable[str]
    ) -> frozenset[str]:
        """Write `lines` as `put_lines` does, and return the ids of the messages that are safe by it.

        `held` are the ids when all lines are read. They name the object, so that a batch that comes again
        within the hour is not written twice. If S3 refuses, it is logged, and none is safe.
        """
        try:
            self.put_lines(folder, lambda: object_name(held), written_at_ms, lines)
        except (ClientError, BotoCoreError):
            logger.exception("the archive could not be written; these messages come again", folder=folder)
            return frozenset()
        return frozenset(held)

    def _enter(
        self, folder: str, key: str, written_at_ms: int, extent: Extent, digest: str, mark: str
    ) -> None:
        """List an object that is there. If S3 refuses, the object counts as one that no list names."""
        # Each call has a list of its own: a number counts once its entry is there, and no thread waits.
        lists = self._lists[folder]
        try:
            own = lists.pop()
        except IndexError:
            # Not at import: all clones of a snapshot would be one writer.
            own = WriterList(written_at_ms, self._random_bytes(8).hex())
        entry = own.next(key, extent, digest, mark)
        try:
            self._client.put_object(Bucket=self._bucket, Key=entry.name, Body=b"")
        except (ClientError, BotoCoreError):
            logger.exception("an object of the archive could not be listed", key=key)
        else:
            own.kept(entry)
        lists.append(own)

    def file_contract(self, version: str, compiled: bytes) -> None:
        """Keep a `compiled` contract under its `version`, once for the life of this object.

        Raises botocore's errors; after `ConditionalRequestConflict` nobody knows whether it lies there.
        """
        if version not in self._filed:
            # The version is the content's hash: an object of that name is this contract.
            self._create(Key=f"{CONTRACTS}/{version}.json", Body=compiled, ContentType="application/json")
            self._filed.add(version)

    def _own(self, key: str, body: bytes) -> str | None:
        """Return the ETag of the object at `key` if it has the bytes of `body`, else None.

        botocore repeats a write whose answer was lost, and then finds its own object.
        """
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=key)
            return _etag(found) if found["Body"].read() == body else None
        except (ClientError, BotoCoreError):
            logger.exception("an object of the archive could not be compared, and is not listed", key=key)
            return None

    def _create(self, **content: Any) -> str | None:
        """Write an object where none is; return its ETag, None where one was."""
        try:
            answer = self._client.put_object(Bucket=self._bucket, IfNoneMatch="*", **content)
        except ClientError as error:
            if error_code(error) != _EXISTS:
                raise
            return None
        return _etag(answer)


def _etag(answer: Mapping[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def object_name(message_ids: Iterable[str]) -> str:
    """Name an object by the messages in it, so that a batch that comes again has the same name."""
    return hashlib.sha256("\n".join(sorted(message_ids)).encode()).hexdigest()[:32]


def _compressed(lines: Iterable[str], extent: Extent) -> bytes | None:
    buffer = io.BytesIO()
    # Line by line, so that a hostile batch is never held decompressed; no time stamp, so that equal lines
    # make equal bytes.
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as file:
        for line in lines:
            extent.add(line)
            file.write(line.encode("utf-8"))
            file.write(b"\n")
    return buffer.getvalue() if extent.rows else None
