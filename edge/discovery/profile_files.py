"""Reads a profile from the disk, with what it includes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edge.discovery.errors import ProfileError
from edge.discovery.profile import Listener, read_profile

_MOST_BYTES = 1024 * 1024
"""A profile has a few KB; what is larger is some other file."""


def load_profile(file: Path) -> tuple[Listener, ...]:
    """The listeners of the profile `file`. Raises `ProfileError`."""
    return read_profile(_text(file), str(file), _included)


def _included(folder: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file, in the order in which Mosquitto reads them."""
    path = Path(folder)
    if not path.is_absolute():
        raise ProfileError(
            folder, "include_dir is relative, and only Mosquitto knows to what", "write the whole path"
        )
    try:
        names = [each.name for each in path.iterdir()]
    except (OSError, ValueError) as error:
        raise ProfileError(folder, str(error), "name a directory that can be read") from error
    for name in sorted(names, key=_order):
        if name.endswith(".conf") and name != ".conf":
            yield str(path / name), _text(path / name)


def _order(name: str) -> list[tuple[str, str]]:
    """By letters whatever their case, and of the same letter the capital first."""
    return [(each.upper(), each) for each in name]


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        remedy = "name Mosquitto's profile, a file that the forwarder's user may read"
        raise ProfileError(str(file), error.strerror or str(error), remedy) from error
    if len(content) > _MOST_BYTES:
        raise ProfileError(str(file), f"it has more than {_MOST_BYTES} bytes", "name Mosquitto's profile")
    return content.decode("utf-8", "replace")
