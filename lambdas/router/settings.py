"""What the router function is told by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.common.settings import bundle_root, text, text_mapping


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """`source` is the address of the channel whose queue feeds the function; `queues` has a URL an inbox."""

    source: str
    queues: Mapping[str, str]
    archive_bucket: str
    root: Path


def read_settings(environment: Mapping[str, str]) -> RouterSettings:
    """The settings in `environment`. Raises `SettingsError`."""
    return RouterSettings(
        source=text(environment, "EVENTPLANE_SOURCE"),
        queues=text_mapping(environment, "EVENTPLANE_QUEUES"),
        archive_bucket=text(environment, "EVENTPLANE_ARCHIVE_BUCKET"),
        root=bundle_root(environment),
    )
