"""The identity of this build of the forwarder, and its parts (`lab/tools/device_image.py --without PART`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final

from edge.errors import EdgeError, SettingProblem
from eventplane import __version__

PROGRAM: Final = "eventplane-forwarder"


@cache
def manifest() -> Mapping[str, object]:
    """Return what the build wrote about itself; of a checkout or a wheel only the version is known."""
    if archive := getattr(__loader__, "archive", None):  # type: ignore[name-defined]
        text = __loader__.get_data(f"{archive}/manifest.json")  # type: ignore[name-defined]
        return dict(json.loads(text))
    return {"name": PROGRAM, "version": __version__, "revision": "source"}


def build_version() -> str:
    """Return version and revision of this build, for people."""
    build = manifest()
    return f"{build['version']} ({build['revision']})"


class PartMissingError(EdgeError):
    """This build leaves out the `part` that is needed here."""

    part: str
    message = "this build of the forwarder leaves out the part {part!r}; install a build that has it"


def require_part(part: str) -> ModuleType:
    """Return the module of `part` for the device. Raises `PartMissingError` unless this build has it."""
    if not _has_part(part):
        raise PartMissingError(part)
    from parts import load

    return load(part, "device")


def _has_part(part: str) -> bool:
    from parts import has  # late: a device that uses no part need not hold their descriptions

    return has(part, "device")


def missing_parts(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[SettingProblem]:
    """Yield the settings in `tables` (`[local]` and the optional ones present) that lack their part."""
    needed = {"announcement": "discovery", "provisioning": "provisioning"}
    needed = {name: part for name, part in needed.items() if name in tables}
    if tables["local"]["profile"] is not None:
        needed["local.profile"] = "discovery"
    for setting, part in needed.items():
        if not _has_part(part):
            problem = f"this build of the forwarder leaves out the part {part!r}"
            yield SettingProblem(setting, problem, "install a build with it, or remove the setting")
