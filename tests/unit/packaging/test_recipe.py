"""The Yocto recipe as far as it can be checked without bitbake: its words, its files, what it depends on."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.tools.device_image import PACKAGING, ROOT, VERSION, device_closure, units

pytestmark = pytest.mark.long

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
