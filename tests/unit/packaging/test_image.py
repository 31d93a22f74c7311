"""The artifact: its content and bytes, that it runs alone, and the Yocto recipe without bitbake."""

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from eventplane import __version__
from eventplane.contract.canonical import FORMAT
from lab.tools.device_image import PACKAGING, PARTS, ROOT, VERSION, device_closure, units
from tests.packages import assert_size_is_stated
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


def test_the_same_input_makes_the_same_bytes(artifact: Path, tmp_path: Path) -> None:
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


LAYER = PACKAGING / "yocto"
RECIPE = LAYER / "recipes-eventplane" / "eventplane-forwarder" / f"eventplane-forwarder_{VERSION}.bb"

PACKAGES = {
    "core": "__future__ abc argparse array ast binascii bisect builtins collections collections.abc "
    "contextlib copy dataclasses enum errno functools getopt heapq importlib importlib.machinery "
    "importlib.util io itertools keyword math operator os pathlib platform pwd re select selectors shutil "
    "signal stat struct subprocess sys textwrap threading time traceback types typing urllib.parse warnings "
    "weakref zipimport zlib",
    "crypt": "hashlib",
    "datetime": "calendar datetime",
    "difflib": "difflib",
    "fcntl": "fcntl",
    "io": "socket ssl tempfile",
    "json": "json",
    "logging": "logging",
    "math": "random",
    "netclient": "base64 hmac http.client secrets urllib.request uuid",
    "resource": "resource",
    "sqlite3": "sqlite3",
    "stringold": "string",
    "threading": "queue",
    "tomllib": "tomllib",
}
"""Which of OpenEmbedded's Python packages holds a module (python3-manifest.json of openembedded-core)."""

_ASSIGNMENT = re.compile(r'^([A-Z_]+(?::\S+)?) \??\+?= "((?:[^"\\]|\\\n)*)"$', re.MULTILINE)
_TASK = re.compile(r"^(do_\w+)\(\) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)


def variables(text: str) -> dict[str, str]:
    return {name: " ".join(value.replace("\\\n", " ").split()) for name, value in _ASSIGNMENT.findall(text)}


@pytest.mark.source("P7")
def test_every_line_of_the_recipe_is_bitbake() -> None:
    text = RECIPE.read_text()
    rest = _TASK.sub("", _ASSIGNMENT.sub("", text))
    left = [line for line in rest.splitlines() if line and not re.match(r"#|inherit [a-z0-9 ]+$", line)]
    assert left == []
    assert [name for name, _ in _TASK.findall(text)] == ["do_compile", "do_install"]


def test_the_licence_is_the_projects_own() -> None:
    digest = hashlib.md5((ROOT / "LICENSE").read_bytes(), usedforsecurity=False).hexdigest()
    recipe = variables(RECIPE.read_text())
    assert (recipe["LICENSE"], recipe["LIC_FILES_CHKSUM"]) == ("Apache-2.0", f"file://LICENSE;md5={digest}")


@pytest.mark.source("P7")
def test_it_depends_on_what_is_imported() -> None:
    package_of = {module: package for package, modules in PACKAGES.items() for module in modules.split()}
    imported = device_closure().standard
    unknown = {each for each in imported if each not in package_of}
    assert not unknown, "look them up in openembedded-core's python3-manifest.json and add them to PACKAGES"
    needed = {f"python3-{package_of[each]}" for each in imported} | {"mosquitto"}
    assert set(variables(RECIPE.read_text())["RDEPENDS:${PN}"].split()) == needed


def test_it_installs_files_that_exist() -> None:
    text = RECIPE.read_text()
    place = variables(text)["EXTERNALSRC"].replace("${THISDIR}", str(RECIPE.parent))
    assert Path(place).resolve() == ROOT
    for file in re.findall(r"\$\{S\}/([\w./-]+)", text):
        assert (ROOT / file).exists(), file
    enabled, others = (
        variables(text)[name].split() for name in ("SYSTEMD_SERVICE:${PN}", "EVENTPLANE_OPTIONAL_UNITS")
    )
    assert enabled == ["eventplane-forwarder.service"]
    assert sorted([*enabled, *others]) == sorted(each.name for each in units())


@pytest.mark.source("P7")
def test_its_tasks_install_a_program_that_runs_and_the_units(tmp_path: Path) -> None:
    """In BitBake's place: its variables are replaced, then a shell runs the tasks."""
    text = RECIPE.read_text()
    name = "eventplane-forwarder"
    values = {key.replace("${PN}", name): value for key, value in variables(text).items()} | {
        "PN": name, "PV": VERSION, "PYTHON": sys.executable,
        "S": str(ROOT), "B": str(tmp_path / "build"), "D": str(tmp_path / "image"),
        "nonarch_libdir": "/usr/lib", "bindir": "/usr/bin", "datadir": "/usr/share",
        "systemd_system_unitdir": "/usr/lib/systemd/system",
    }  # fmt: skip
    for _, body in _TASK.findall(text):
        while used := re.findall(r"\$\{([^${}]+)\}", body):
            for each in used:
                body = body.replace(f"${{{each}}}", values[each])
        subprocess.run(["sh", "-e", "-u", "-c", body], check=True)
    image = tmp_path / "image"
    installed = sorted(each.name for each in (image / "usr/lib/systemd/system").iterdir())
    assert installed == sorted(each.name for each in units())
    assert sorted(each.name for each in (image / "usr/share/eventplane").iterdir()) == [
        "forwarder.schema.json",
        "forwarder.toml",
        "mosquitto-access.conf",
        "mosquitto.conf",
    ]
    program = image / "usr/bin/eventplane-forwarder"
    said = subprocess.run(
        [sys.executable, "-I", "-S", program, "manifest"], check=True, capture_output=True, text=True
    )
    assert json.loads(said.stdout)["revision"] == VERSION


def test_units_find_the_artifact_where_the_recipe_installs_it() -> None:
    installed = "${nonarch_libdir}/eventplane/eventplane-forwarder.pyz"
    assert installed in RECIPE.read_text()
    for unit in [each for each in units() if each.suffix == ".service"]:
        assert installed.replace("${nonarch_libdir}", "/usr/lib") in unit.read_text()
