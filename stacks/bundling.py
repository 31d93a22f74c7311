"""Assets made on this machine, without Docker: sources copied as they are, locked wheels installed."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsii
from aws_cdk import BundlingOptions, DockerImage, ILocalBundling

from eventplane.errors import EventPlaneError
from parts.imports import closure

ROOT: Final = Path(__file__).parent.parent
"""The checkout."""

CACHE: Final = ROOT / "build" / "layers"
"""Installed dependencies by content hash, so that only the first synthesis downloads."""

OWN_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of this program's Python, as `3.11`."""

PLATFORMS: Final = {"arm64": "aarch64-manylinux2014", "x86_64": "x86_64-manylinux2014"}
"""What functions can run on, by Lambda's name for it, as uv calls it."""

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.md", "requirements.*")


class InstallError(EventPlaneError):
    """The locked dependencies could not be installed. `output` is what the installer wrote."""

    def __init__(self, lock: Path, output: str) -> None:
        super().__init__(f"{lock.name} could not be installed; check the network, or `make lock`\n{output}")
        self.lock = lock
        self.output = output


@jsii.implements(ILocalBundling)
class _Local:
    """Hands the output directory to a Python function."""

    def __init__(self, fill: Callable[[Path], None]) -> None:
        self._fill = fill

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        self._fill(Path(output_dir))
        return True


def local_bundling(fill: Callable[[Path], None], *contents: str) -> BundlingOptions:
    """Bundling options that let `fill` write the asset into the directory it is given.

    Of two assets from one folder the CDK bundles the first only, unless their `contents` differ.
    """
    # The CDK wants an image even if nothing ever starts one.
    image = DockerImage.from_registry("never-used")
    return BundlingOptions(image=image, local=_Local(fill), command=list(contents) or None)


def copy_packages(target: Path, *packages: str) -> None:
    """Copy `packages` (`eventplane`, `lambdas/router`, ...) from the checkout, to the same place in `target`.

    Of a package around them only its `__init__.py` comes along.
    """
    for package in packages:
        shutil.copytree(ROOT / package, target / package, ignore=_IGNORED)
        for parent in list(Path(package).parents)[:-1]:
            shutil.copy(ROOT / parent / "__init__.py", target / parent / "__init__.py")


def copy_modules(target: Path, programs: Sequence[str], python: str) -> None:
    """Copy the modules `programs`, what they import from the checkout, and the core to `target`.

    With them comes bytecode for the version `python` at Lambda's place for code.
    """
    compiled = _compiled(python)
    needed = {compiled / each.relative_to(ROOT) for each in closure([ROOT], *programs).files.values()}
    # Beside a module may be texts, which it names.
    texts = {
        each for source in needed for each in source.parent.glob("*.toml") if each.name in source.read_text()
    }
    for source in texts.union(needed, (compiled / "eventplane").rglob("*.py")):
        for each in (source, *(source.parent / "__pycache__").glob(f"{source.stem}.cpython-*")):
            copy = target / each.relative_to(compiled)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, copy)


@cache  # compiling takes longer than all copies
def _compiled(python: str) -> Path:
    """Return a folder with the packages that functions import, compiled for the version `python`."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    copy_packages(folder, "eventplane", "eventplane_aws", "eventplane_mqtt", "lambdas", "parts")
    compile_bytecode(folder, "/var/task", python)
    return folder


@cache  # each function's code asks for it
def interpreter(version: str) -> str:
    """Return the program of Python `version`, as `3.13`. Raises `EventPlaneError` where it is missing."""
    if version == OWN_PYTHON:
        return sys.executable
    program = ROOT / "build" / f"python-{version}" / "bin" / "python"
    asked = [str(program), "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
    # The program may be a link to one that is no longer there.
    if not program.exists() or subprocess.check_output(asked, text=True).strip() != version:
        raise EventPlaneError(f"functions need Python {version}: run lab/tools/setup.sh python-{version}")
    return str(program)


def compile_bytecode(directory: Path, place: str, python: str) -> None:
    """Add bytecode to the sources in `directory`, which will lie at `place` when `python` (`3.13`) runs them.

    Lambda's file system is read-only: without it every cold start compiles everything anew, and the router's
    imports and wiring take 0.9 s instead of 0.3 s.
    """
    options = ["--invalidation-mode", "unchecked-hash", "-s", str(directory), "-p", place]
    command = [interpreter(python), "-m", "compileall", "-q", *options, str(directory)]
    # Equal sources have to make equal bytes, or every synthesis would look like a change.
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


def installed(lock: Path, architecture: str, python: str) -> Path:
    """Return a directory with the wheels that the hash-locked file `lock` names, compiled.

    They are for `architecture` and for `python`, as `3.13`. Raises `InstallError`, and `EventPlaneError`
    where that Python is missing.
    """
    platform = PLATFORMS[architecture]
    key = hashlib.sha256(f"{python} {platform} compiled\n".encode() + lock.read_bytes()).hexdigest()[:32]
    directory = CACHE / key
    if not directory.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        # Installed beside and renamed: an interrupted run leaves nothing that looks finished.
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-") as unfinished:
            _install(lock, python, platform, Path(unfinished) / key)
            compile_bytecode(Path(unfinished) / key, "/opt/python", python)
            try:
                (Path(unfinished) / key).replace(directory)
            except OSError:
                # Another synthesis was faster: its directory is made from the same lock.
                if not directory.exists():
                    raise
    return directory


def _install(lock: Path, python: str, platform: str, target: Path) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(target)]
    command += ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", python, "--python-platform", platform, "--requirement", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode != 0:
        raise InstallError(lock, done.stdout + done.stderr)
