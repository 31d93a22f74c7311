"""Disks that are really full."""

import contextlib
import fcntl
import os
import resource
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

KIB = 1024
DISK_BYTES = 16 * KIB * KIB
CHUNK_BYTES = 4 * KIB


class SmallDisk(NamedTuple):
    """A spool's `path`. `enlarge` makes room where nothing else does."""

    path: Path
    events: int
    enlarge: Callable[[], None]


@contextlib.contextmanager
def small_disk_at(directory: Path) -> Iterator[SmallDisk]:
    """A disk of 16 MB in memory for root; for others, who may not mount one, files that cannot grow."""
    path = directory / "spool.db"
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", directory], check=True)
        yield SmallDisk(path, 12_000, lambda: None)
        subprocess.run(["umount", directory], check=True)
    else:
        with limited_files(2 * KIB * KIB) as enlarge:
            yield SmallDisk(path, 2_000, enlarge)


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[Callable[[], None]]:
    """No file may grow beyond `size` bytes, until the end or until what it gives is called."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield lift
    finally:
        lift()


@contextlib.contextmanager
def read_only_disk_at(directory: Path, prepare: Callable[[], None]) -> Iterator[None]:
    """A disk that is read-only once `prepare` has been called."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        prepare()
        subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
        yield
        subprocess.run(["umount", directory], check=True)
    else:
        prepare()
        directory.chmod(0o500)
        yield
        directory.chmod(0o700)


_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN (fs/ext4/ext4.h): from then on every access to the file system fails with EIO."""
_NO_LOG_FLUSH = 2


@contextlib.contextmanager
def breaking_disk_at(directory: Path, image: Path) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """An ext4 file system of its own for root: what breaks it, and what brings it back."""

    def run(*command: object) -> None:
        subprocess.run([str(each) for each in command], check=True)

    def mount() -> None:
        run("mount", "-o", "loop", image, directory)

    def shut_down() -> None:
        descriptor = os.open(directory, os.O_RDONLY)
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        os.close(descriptor)

    def bring_back() -> None:
        run("umount", "--lazy", directory)
        mount()

    with image.open("wb") as file:
        file.truncate(64 * KIB * KIB)
    run("mkfs.ext4", "-q", image)
    mount()
    try:
        yield shut_down, bring_back
    finally:
        run("umount", "--lazy", directory)


def fill_the_rest(other: Path) -> None:
    """Until there is no room, and never more than a small disk holds: this may be somebody's real one."""
    with other.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(DISK_BYTES // CHUNK_BYTES):
            file.write(b"x" * CHUNK_BYTES)
