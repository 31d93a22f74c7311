"""The named errors of the device's side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from eventplane.errors import EventPlaneError


class EdgeError(EventPlaneError):
    """Base of the device's errors."""


class SettingProblem(NamedTuple):
    """One setting that cannot be used: its name, what is wrong, and what to do."""

    setting: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"setting {self.setting!r}: {self.problem}; {self.remedy}"


class DeviceSettingsError(EdgeError):
    """The device cannot run like this. `problems` are all that was found, so that one correction suffices."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("\n".join(str(each) for each in problems))
        self.problems = tuple(problems)


def missing_table(name: str) -> DeviceSettingsError:
    """Return the error that a command needs the optional table `name`."""
    problem = SettingProblem(name, "the table is missing", "add it, see docs/reference/device.md")
    return DeviceSettingsError([problem])


class SpoolError(EdgeError):
    """The durable store at `path` cannot do its work; nothing that it did not confirm is acknowledged."""

    path: Path
    problem: str
    remedy: str
    message = "spool {path}: {problem}; {remedy}"


class SpoolFullError(SpoolError):
    """The disk, its quota or the spool's capacity has no room: nothing changed, later commits may succeed."""


class SpoolUnavailableError(SpoolError):
    """The disk is missing, read-only or broken: nothing changed. A spool in memory replaces it."""


class SpoolCorruptError(SpoolError):
    """The file is damaged, `damage` says where. Opening the spool again recovers what is readable."""

    def __init__(self, path: Path, damage: str) -> None:
        super().__init__(path, f"is damaged: {damage}", "open it again, which sets it aside and recovers")
        self.damage = damage
