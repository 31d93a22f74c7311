"""An archive in a folder of this machine. It has no versions and no lifecycle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from glue_jobs.common.errors import ArchiveNotFoundError
from glue_jobs.common.objects import OldVersions, Stored


class FolderObjects:
    """`Objects` beneath `root`. Raises `ArchiveNotFoundError`."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ArchiveNotFoundError(str(root))
        self._root = root.resolve()

    @property
    def uri(self) -> str:
        return str(self._root)

    def beneath(self, folder: str) -> list[Stored]:
        found = []
        for path in sorted((self._root / folder).rglob("*")):
            # Hidden files are Hadoop's checksums and what is being written.
            if path.is_file() and not path.name.startswith("."):
                status = path.stat()
                name = path.relative_to(self._root).as_posix()
                found.append(Stored(name, status.st_size, f"{status.st_ino} {status.st_mtime_ns}"))
        return found

    def folders(self, folder: str) -> list[str]:
        place = self._root / folder
        return sorted(each.name for each in place.iterdir() if each.is_dir()) if place.is_dir() else []

    def read(self, name: str) -> bytes | None:
        path = self._root / name
        return path.read_bytes() if path.is_file() else None

    def write(self, name: str, body: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as unfinished:
            unfinished.write(body)
        Path(unfinished.name).replace(path)
        # Spark's local file system would hold the old checksum against the new content.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def move(self, name: str, target: str) -> None:
        path = self._root / target
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        (self._root / name).replace(path)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._root / name
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def delete_old_versions(self, prefix: str) -> OldVersions:  # noqa: ARG002 - as the protocol has it
        """None: there are no versions."""
        return OldVersions(0, 0)
