"""Metadata that packages take from the checkout: the version of the core that they need, and entry points."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent.parent


class Metadata(MetadataHookInterface):
    """Add the core in the package's own version, and the entry points that the checkout declares for it."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Complete `metadata`, the table `project` of a package."""
        metadata["dependencies"] = [f"eventplane=={metadata['version']}"]
        module = metadata["name"].replace("-", "_")
        for file in ROOT.glob(f"{module}-0.dist-info/entry_points.txt"):
            declared = ConfigParser(delimiters="=")
            declared.read(file)
            metadata["entry-points"] = {group: dict(declared[group]) for group in declared.sections()}
