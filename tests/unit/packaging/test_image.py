"""The artifact: what is in it, that it runs alone, and that the same input makes the same bytes."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eventplane import __version__
from eventplane.contract.canonical import FORMAT
from lab.tools.device_image import PARTS, ROOT
from tests.artifacts import assert_size_is_stated
from tests.unit.edge.fakes import contract

pytestmark = pytest.mark.long

TOOL = ROOT / "lab" / "tools" / "device_image.py"


def build(output: Path, *options: str, **environment: str) -> Path:
    """The artifact, built by a process of its own with Python's hashes as random as anywhere."""
    subprocess.run(
        [sys.executable, str(TOOL), "--output", str(output), "--revision", "v9-test", *options],
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


def test_builds_are_reproducible(artifact: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again.pyz", PYTHONHASHSEED="77", TZ="Pacific/Auckland")
    assert again.read_bytes() == artifact.read_bytes()


@pytest.mark.parametrize(
    "command", [(), ("run",), ("check",), ("provision",), ("discovery",), ("announce",), ("telemetry",)]
)
def test_its_commands_start_with_nothing_beside_them(artifact: Path, command: tuple[str, ...]) -> None:
    started = run(artifact, *command, "--settings", "absent.toml")
    assert started.returncode == os.EX_CONFIG
    assert "absent.toml: No such file" in started.stderr


def test_it_says_what_it_is(artifact: Path) -> None:
    manifest = json.loads(run(artifact, "manifest").stdout)
    assert manifest["version"] == __version__
    assert_size_is_stated(artifact, "eventplane-forwarder.pyz")
    assert (manifest["revision"], manifest["contract_format"]) == ("v9-test", FORMAT)
    assert run(artifact, "--version").stdout == f"eventplane-forwarder {manifest['version']} (v9-test)\n"


@pytest.mark.source("P7")
def test_it_holds_what_the_device_imports_and_nothing_else(artifact: Path) -> None:
    names = zipfile.ZipFile(artifact).namelist()
    tops = {name.partition("/")[0] for name in names}
    # The client library is for services, which bring it themselves.
    assert tops == {"edge", "eventplane", "eventplane_mqtt", "parts", "__main__.py", "manifest.json"}
    assert not {"eventplane/ingest.py", "eventplane/sqs_binding.py"} & set(names)


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact without any part."""
    without = [f"--without={part}" for part in PARTS]
    return build(tmp_path_factory.mktemp("smallest") / "image.pyz", *without)


def write_settings(folder: Path, table: str) -> Path:
    """Write settings for a cloud without a broker, and `table`; return their file."""
    (folder / "contract.json").write_bytes(contract().canonical)
    file = folder / "forwarder.toml"
    file.write_text(
        'thing = "home-1"\ncontract = "contract.json"\nspool = "spool.db"\n'
        '[cloud]\nhost = "127.0.0.1"\nport = 1\ntls = false\nrule = "events"\n'
        f"[health]\nport = 0\n{table}"
    )
    return file


def test_a_part_can_be_left_out(artifact: Path, smallest: Path) -> None:
    assert (
        json.loads(run(artifact, "manifest").stdout)["parts"]
        == PARTS
        == ["provisioning", "discovery", "telemetry"]
    )
    assert json.loads(run(smallest, "manifest").stdout)["parts"] == []
    assert {f"parts/{each}/device.py" for each in PARTS} <= {*zipfile.ZipFile(artifact).namelist()}
    found = [each for each in zipfile.ZipFile(smallest).namelist() if each.startswith("parts/")]
    assert found == ["parts/__init__.py", "parts/__init__.pyc"]


def test_what_is_left_out_is_refused_by_name(smallest: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path, '[local]\nprofile = "mosquitto.conf"\n')
    for command, refusal in (
        ("provision", "leaves out the part 'provisioning'"),
        ("run", "setting 'local.profile': this build of the forwarder leaves out the part 'discovery'"),
    ):
        started = run(smallest, command, "--settings", str(settings))
        assert (started.returncode, refusal in started.stderr) == (os.EX_CONFIG, True)


def test_without_its_parts_it_starts(smallest: Path, tmp_path: Path) -> None:
    settings = write_settings(tmp_path, "[local]\nport = 1\n")
    checked = run(smallest, "check", "--settings", str(settings))
    assert (checked.returncode, checked.stderr) == (os.EX_OK, "")
    command = [sys.executable, "-I", "-S", str(smallest), "--settings", str(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as forwarder:
        assert forwarder.stderr is not None
        assert any("local broker: " in line for line in forwarder.stderr)  # it dials
        forwarder.terminate()
        rest = forwarder.stderr.read()
    assert (forwarder.returncode, "Traceback" in rest) == (os.EX_OK, False)


def test_every_module_is_there_as_bytecode_and_as_source(artifact: Path) -> None:
    names = set(zipfile.ZipFile(artifact).namelist())
    sources = {name for name in names if name.endswith(".py")} - {"__main__.py"}
    assert {name + "c" for name in sources} == {name for name in names if name.endswith(".pyc")}


def test_bytecode_is_used_when_it_fits(artifact: Path) -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
from edge import errors, system
from edge.counts import Counts
print(*errors.SpoolError._fields, *[*Counts.__dataclass_fields__][:2], *system.Uptime._fields)
print(errors.missing_table.__annotations__, system.__file__)
"""
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(artifact)], capture_output=True, text=True, check=True
    )
    fields, rest = found.stdout.splitlines()
    assert fields == "path problem remedy dead_letters downlink_outcomes boot ms"
    assert rest.startswith("{} ")
    assert rest.endswith("edge/system.pyc")
