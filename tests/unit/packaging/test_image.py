"""The artifact: what is in it, that it runs alone, and that the same input makes the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eventplane.contract.canonical import FORMAT
from tools.device_image import ROOT

TOOL = ROOT / "tools" / "device_image.py"


def build(output: Path, **environment: str) -> Path:
    """The artifact, built by a process of its own with Python's hashes as random as anywhere."""
    subprocess.run(
        [sys.executable, str(TOOL), "--output", str(output), "--revision", "v9-test"],
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    return output


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("image") / "image.pyz")


def run(artifact: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The artifact under a Python that finds nothing else: no checkout, no installed packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(artifact), *arguments],
        cwd=artifact.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_input_makes_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again.pyz", PYTHONHASHSEED="77", TZ="Pacific/Auckland")
    assert again.read_bytes() == artifact.read_bytes()


@pytest.mark.parametrize("command", [(), ("run",), ("check",), ("provision",), ("discovery",), ("announce",)])
def test_its_commands_start_with_nothing_beside_them(artifact: Path, command: tuple[str, ...]) -> None:
    started = run(artifact, *command, "--settings", "absent.toml")
    assert started.returncode == os.EX_CONFIG
    assert "absent.toml: No such file" in started.stderr


def test_it_says_what_it_is(artifact: Path) -> None:
    manifest = json.loads(run(artifact, "manifest").stdout)
    assert manifest["version"] == (ROOT / "edge" / "packaging" / "VERSION").read_text().strip()
    assert (manifest["revision"], manifest["contract_format"]) == ("v9-test", FORMAT)
    assert run(artifact, "--version").stdout == f"eventplane-forwarder {manifest['version']} (v9-test)\n"


@pytest.mark.source("P7")
def test_it_holds_what_the_device_imports_and_nothing_else(artifact: Path) -> None:
    names = zipfile.ZipFile(artifact).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {"edge", "eventplane", "__main__.py", "manifest.json"} <= tops
    assert not tops & {"contract", "lambdas", "local", "stacks", "tests", "glue_jobs"}
    # For services and for the cloud, not for the forwarder.
    assert not {"edge/service.py", "eventplane/ingest.py", "eventplane/sqs_binding.py"} & set(names)


def test_every_module_is_there_as_bytecode_and_as_source(artifact: Path) -> None:
    names = set(zipfile.ZipFile(artifact).namelist())
    sources = {name for name in names if name.endswith(".py")} - {"__main__.py"}
    assert {name + "c" for name in sources} == {name for name in names if name.endswith(".pyc")}


def test_bytecode_is_used_when_it_fits(artifact: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import edge.forwarder; print(edge.forwarder.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(artifact)], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip().endswith("edge/forwarder.pyc")
