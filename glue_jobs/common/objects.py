"""The archive as objects: listed, read, and replaced one at a time, each seen whole or not at all.

Spark reads and writes rows; what must be atomic, or is about versions, goes this way.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import boto3
from botocore.exceptions import ClientError

from eventplane.errors import EventPlaneError
from glue_jobs.common import system

_S3: Final = "s3://"

_WRITER: Final = "writer"
"""The metadata of a created object that names the call that created it."""

_MOST: Final = 1_000
"""Keys that one request may delete (Amazon S3 API)."""

_LOCKED: Final = "object lock"
"""In the message of the AccessDenied for a locked version; without it a permission is missing."""


class ArchiveNotFoundError(EventPlaneError):
    """There is no archive at `uri`."""

    uri: str
    message = "{uri}: no such folder; give --INPUT a folder or s3://bucket/"


class RefusedDeletionError(ClientError):
    """S3 answered a deletion and kept some of the keys; `Errors` of its answer are in the response."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its `name` from the root, `size` in bytes, `mark` changes when it is written.

    `changed_ms` is when it was written, Unix milliseconds.
    """

    name: str
    size: int
    mark: str
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class OldVersions:
    """The number of old versions `deleted`, and how many are `locked` until their retention ends."""

    deleted: int
    locked: int

    @classmethod
    def sum(cls, each: Iterable[OldVersions]) -> OldVersions:
        """Return all of `each` together."""
        found = list(each)
        return cls(sum(one.deleted for one in found), sum(one.locked for one in found))


class Objects(Protocol):
    """Objects beneath a root. Names are from the root."""

    @property
    def uri(self) -> str:
        """The URI of the root, without a slash at the end."""

    def beneath(self, folder: str) -> list[Stored]:
        """Return what is anywhere beneath `folder`, in the order of names."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders right beneath `folder` ('' for the root), in order."""

    def read(self, name: str) -> bytes | None:
        """Return an object's content; None when there is none."""

    def digest(self, stored: Stored) -> str:
        """Return a text that changes with the content: `etag:...` in a bucket, `sha256:...` in a folder."""

    def write(self, name: str, body: bytes) -> None:
        """Put `body` at `name`, in place of what was there."""

    def create(self, name: str, body: bytes) -> bool:
        """Put `body` at `name` if nothing is there, and return whether that was so."""

    def move(self, name: str, target: str) -> None:
        """Give an object another name, in place of what was there."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already are no error."""

    def clear(self, folder: str) -> None:
        """Delete everything beneath `folder`, and the folder."""

    def delete_old_versions(self, prefix: str) -> OldVersions:
        """Delete permanently what the objects whose names start with `prefix` were before."""


def open_archive(uri: str) -> Objects:
    """Return the objects at `uri`: a folder, a bucket, or a prefix of it. Raises `ArchiveNotFoundError`."""
    if uri.startswith(_S3):
        bucket, _, prefix = uri.removeprefix(_S3).partition("/")
        return BucketObjects(boto3.client("s3"), bucket, prefix.strip("/"))
    return FolderObjects(Path(uri))


def open_output(uri: str) -> Objects:
    """Return the objects at `uri`, as `open_archive` does; a folder is made if there is none."""
    if not uri.startswith(_S3):
        Path(uri).mkdir(parents=True, exist_ok=True)
    return open_archive(uri)


class FolderObjects:
    """`Objects` beneath `root`, a folder of this machine. It has no versions and no lifecycle.

    Raises `ArchiveNotFoundError`.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ArchiveNotFoundError(str(root))
        self._root = root.resolve()

    @property
    def uri(self) -> str:
        return str(self._root)

    def beneath(self, folder: str) -> list[Stored]:
        return sorted(_files(self._root / folder, folder), key=lambda each: each.name)

    def folders(self, folder: str) -> list[str]:
        place = self._root / folder
        return sorted(each.name for each in place.iterdir() if each.is_dir()) if place.is_dir() else []

    def read(self, name: str) -> bytes | None:
        path = self._root / name
        return path.read_bytes() if path.is_file() else None

    def digest(self, stored: Stored) -> str:
        with (self._root / stored.name).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    def write(self, name: str, body: bytes) -> None:
        path = self._root / name
        self._unfinished(path, body).replace(path)
        # Spark's local file system would hold the old checksum against the new content.
        _forget_checksum(path)

    def create(self, name: str, body: bytes) -> bool:
        path = self._root / name
        unfinished = self._unfinished(path, body)
        try:
            path.hardlink_to(unfinished)
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
        return True

    def move(self, name: str, target: str) -> None:
        path = self._root / target
        _forget_checksum(path)
        (self._root / name).replace(path)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._root / name
            path.unlink(missing_ok=True)
            _forget_checksum(path)

    def clear(self, folder: str) -> None:
        shutil.rmtree(self._root / folder, ignore_errors=True)

    def delete_old_versions(self, prefix: str) -> OldVersions:  # noqa: ARG002 - as the protocol has it
        """Delete nothing: there are no versions."""
        return OldVersions(0, 0)

    def _unfinished(self, path: Path, body: bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as unfinished:
            unfinished.write(body)
        return Path(unfinished.name)


def _files(place: Path, name: str) -> Iterator[Stored]:
    try:
        entries = list(os.scandir(place))
    except (FileNotFoundError, NotADirectoryError):
        return
    for each in entries:
        # Hidden files are Hadoop's checksums and what is being written.
        if not each.name.startswith("."):
            inside = f"{name}/{each.name}" if name else each.name
            if each.is_dir():
                yield from _files(Path(each.path), inside)
            else:
                status = each.stat()
                mark = f"{status.st_ino} {status.st_mtime_ns}"
                yield Stored(inside, status.st_size, mark, status.st_mtime_ns // 1_000_000)


def _forget_checksum(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


class BucketObjects:
    """`Objects` in a versioned S3 `bucket`, beneath `prefix`, through a boto3 client.

    Raises what boto3 raises, and `ArchiveNotFoundError`.
    """

    def __init__(self, s3: Any, bucket: str, prefix: str = "") -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        try:
            s3.head_bucket(Bucket=bucket)
        except ClientError as error:
            if _code(error) in ("404", "NoSuchBucket"):
                raise ArchiveNotFoundError(self.uri) from error
            raise

    @property
    def uri(self) -> str:
        return f"{_S3}{self._bucket}/{self._prefix}".rstrip("/")

    def beneath(self, folder: str) -> list[Stored]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._folder(folder)
        )
        return [
            Stored(
                each["Key"].removeprefix(self._prefix),
                each["Size"],
                each["ETag"],
                int(each["LastModified"].timestamp() * 1_000),
            )
            for page in pages
            for each in page.get("Contents", [])
            # A console's mark of an empty folder.
            if not each["Key"].endswith("/")
        ]

    def folders(self, folder: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._folder(folder), Delimiter="/"
        )
        found = (each["Prefix"] for page in pages for each in page.get("CommonPrefixes", []))
        return [each.rstrip("/").rpartition("/")[2] for each in found]

    def read(self, name: str) -> bytes | None:
        try:
            body: bytes = self._s3.get_object(**self._key(name))["Body"].read()
        except ClientError as error:
            if _code(error) == "NoSuchKey":
                return None
            raise
        return body

    def digest(self, stored: Stored) -> str:
        # With the size, as an ETag may be of a digest of digests (multipart uploads).
        return f"etag:{stored.mark.strip(chr(34))}-{stored.size}"

    def write(self, name: str, body: bytes) -> None:
        self._s3.put_object(**self._key(name), Body=body)

    def create(self, name: str, body: bytes) -> bool:
        # Two audits may write equal bytes, so the object names its writer.
        writer = {_WRITER: system.new_id()}
        while True:
            try:
                self._s3.put_object(**self._key(name), Body=body, Metadata=writer, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) == "PreconditionFailed":
                    # botocore repeats a request whose answer was lost, and the repeat meets its own object.
                    return bool(self._metadata(name) == writer)
                # Somebody else is writing it at this moment; S3 asks to try again.
                if _code(error) != "ConditionalRequestConflict":
                    raise
            else:
                return True

    def move(self, name: str, target: str) -> None:
        try:
            self._copy(name, target)
        except ClientError as error:
            # So S3 answers a repeated completion of a large copy that is done.
            if _code(error) != "NoSuchUpload":
                raise
            self._copy(name, target)
        self.delete([name])

    def delete(self, names: Iterable[str]) -> None:
        self._delete([{"Key": f"{self._prefix}{name}"} for name in names])

    def clear(self, folder: str) -> None:
        self.delete(each.name for each in self.beneath(folder))

    def delete_old_versions(self, prefix: str) -> OldVersions:
        pages = self._s3.get_paginator("list_object_versions").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{prefix}"
        )
        old = [
            {"Key": each["Key"], "VersionId": each["VersionId"]}
            for page in pages
            for each in page.get("Versions", [])
            if not each["IsLatest"]
        ]
        # Only if a version is locked: S3 takes the bypass from nobody else.
        locked = self._refused(self._refused(old), BypassGovernanceRetention=True)
        return OldVersions(deleted=len(old) - len(locked), locked=len(locked))

    def _copy(self, name: str, target: str) -> None:
        # The managed copy also takes objects beyond the 5 GB of one request.
        # Nothing here has tags; to copy them would need permission to read them.
        no_tags = {"TaggingDirective": "REPLACE"}
        self._s3.copy(self._key(name), **self._key(target), ExtraArgs=no_tags)

    def _metadata(self, name: str) -> Any:
        try:
            return self._s3.head_object(**self._key(name)).get("Metadata")
        except ClientError as error:
            if _code(error) == "404":
                return None
            raise

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{name}"}

    def _folder(self, folder: str) -> str:
        return f"{self._prefix}{folder}/" if folder else self._prefix

    def _delete(self, keys: list[dict[str, str]]) -> None:
        for answer in self._delete_in_parts(keys):
            if answer.get("Errors"):
                raise RefusedDeletionError({"Error": answer["Errors"][0]}, "DeleteObjects")

    def _refused(self, versions: list[dict[str, str]], **options: Any) -> list[dict[str, str]]:
        """Delete `versions`, and return those that Object Lock keeps."""
        refused = []
        for answer in self._delete_in_parts(versions, **options):
            for error in answer.get("Errors", []):
                if _LOCKED not in error.get("Message", ""):
                    raise RefusedDeletionError({"Error": error}, "DeleteObjects")
                refused.append({"Key": error["Key"], "VersionId": error["VersionId"]})
        return refused

    def _delete_in_parts(self, keys: list[dict[str, str]], **options: Any) -> Iterator[dict[str, Any]]:
        for start in range(0, len(keys), _MOST):
            part = {"Objects": keys[start : start + _MOST], "Quiet": True}
            yield self._s3.delete_objects(Bucket=self._bucket, Delete=part, **options)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))
