"""The parts of wheels that come from the checkout: version, links, and modules under names of their own."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from parts import PARTS, has, place  # noqa: E402 - after the path it needs
from parts.imports import closure  # noqa: E402

_OTHERS = "contract|edge|operations|parts"
"""The packages of the checkout that a wheel calls otherwise."""

_OF_PARTS = {
    "eventplane": ("build", "broker", "command", "dns_sd"),
    "eventplane-client": ("client",),
    "eventplane-forwarder": ("device",),
}
"""The modules of parts that programs with a wheel load; what these import comes with them."""

_READ = ("*.j2", "weathers/*.toml")
"""What programs of parts read in their folders."""

_SEVERAL = '\n__path__ = __import__("pkgutil").extend_path(__path__, __name__)\n'
"""What a package of parts ends with: several wheels have modules in it, perhaps in folders of their own."""


class Metadata(MetadataHookInterface):
    """Add the core in the package's own version, and its links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Complete `metadata`, the table `project` of a package."""
        metadata["dependencies"] = [f"eventplane=={metadata['version']}"]
        metadata["urls"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


class OwnNames(BuildHookInterface):
    """Put the checkout's `packages` into a wheel, `edge` as `eventplane_edge`: its name may be taken."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (the interface's)
        """Copy the modules, and include the copies."""
        self._folder = Path(tempfile.mkdtemp())
        for package in self.config["packages"]:
            copy = self._folder / package
            shutil.copytree(ROOT / package, copy, ignore=shutil.ignore_patterns("__pycache__"))
            if package == "parts":
                kept = {copy / each for each in _of_parts(self.metadata.name)}
                for each in {*copy.rglob("*.*")} - kept:
                    each.unlink()
            for module in copy.rglob("*.py"):
                several = _SEVERAL if package == "parts" and module.name == "__init__.py" else ""
                module.write_text(renamed(module.read_text("utf-8")) + several, "utf-8")
            own = package if package.startswith("eventplane") else f"eventplane_{package}"
            build_data["force_include"][str(copy)] = own

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:  # noqa: ARG002
        """Delete the copies."""
        shutil.rmtree(self._folder)


def _of_parts(wheel: str) -> set[Path]:
    """Return the files of parts that `wheel` has, seen from their folder: none that its core brings."""
    programs = [place(part, name) for part in PARTS for name in _OF_PARTS[wheel] if has(part, name)]
    folder = ROOT / "parts"
    files = {*closure([ROOT], "parts", *programs).files.values(), folder / "py.typed"}
    # Beside modules lie what they read: templates, and files that people take as a beginning.
    beside = {each.parent for each in files if each.is_relative_to(folder)}
    files |= {each for place in beside for kind in _READ for each in place.glob(kind)}
    own = {each.relative_to(folder) for each in files if each.is_relative_to(folder)}
    return own if wheel == "eventplane" else own - _of_parts("eventplane")


def renamed(source: str) -> str:
    """Return a module's `source` with its imports, and the texts that name a module, as a wheel has them."""

    def named(quoted: re.Match[str]) -> str:
        path = ROOT / quoted[1].replace(".", "/")
        is_module = path.is_dir() or path.with_suffix(".py").is_file()
        return f'"eventplane_{quoted[1]}"' if is_module else quoted[0]

    source = re.sub(rf"(?m)^(\s*)import ({_OTHERS})$", r"\1import eventplane_\2 as \2", source)
    source = re.sub(rf"(?m)^(\s*from )({_OTHERS})(?=[ .])", r"\1eventplane_\2", source)
    return re.sub(rf'"((?:{_OTHERS})(?:\.\w+)+)"', named, source)
