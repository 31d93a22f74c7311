"""The identity of this build of the forwarder, and its parts (`lab/tools/device_image.py --without PART`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from edge.errors import EdgeError, SettingProblem
from eventplane import __version__

_log = logging.getLogger(__name__)

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


def can_load(module: str) -> bool:
    """Return whether `module` is in memory, or can be loaded now; log why not.

    The file of the program may be unreadable by now, or be another version's: that must not end the loop.
    """
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001 - a damaged file raises whatever its bytes make of it
        remedy = "see that the disk of the program works, then restart the forwarder"
        _log.error("%s cannot be loaded: %s; %s", module, error, remedy)
        return False
    return True


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
