"""The wheels of `make packages`: each one, installed into an empty environment, works outside the checkout.

What they depend on is of the versions in requirements.txt.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from eventplane import __version__
from lab.tools.packages import ROOT, build
from tests.packages import assert_size_is_stated

DOCS = ROOT / "docs"
IN_EACH = {
    "eventplane": {"eventplane", "eventplane_aws", "eventplane_mqtt", "contract", "operations", "parts"},
    "eventplane-client": {"eventplane_client", "parts"},
    "eventplane-forwarder": {"edge", "parts"},
}
"""Distribution -> packages of the checkout that it brings; each is called `eventplane*` there."""

PARTS = [
    f"eventplane_parts.{each}"
    for each in ("discovery", "discovery_api", "fleet", "probe", "replay", "simulate")
]
"""Those of the wheel `eventplane`."""

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    for each in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        importlib.import_module(each.name)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("packages"))


class Environment:
    """An environment of its own with `requirements`, and what its programs print."""

    def __init__(self, folder: Path, wheels: dict[str, Path], *requirements: str) -> None:
        self._bin = folder / "venv" / "bin"
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        uv(folder, "venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
        constraints = folder / "constraints.txt"
        # Without hashes: those of wheels that were just built are in no lock file.
        pins = re.findall(r"^[\w.-]+==[\w.]+", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
        constraints.write_text("\n".join(pins))
        found = ["--find-links", str(next(iter(wheels.values())).parent), "--constraint", str(constraints)]
        uv(folder, "pip", "install", "--quiet", "--python", str(self._bin / "python"), *found, *requirements)

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        """Return what `program` prints to either output, from a folder outside the checkout.

        There, and on the path of modules, others have packages of the names that the checkout uses.
        """
        for name in ("contract", "edge", "operations", "parts"):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "__init__.py").write_text(
                f"raise ImportError('this is the {name} of others')"
            )
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self.folder),
        }
        done = subprocess.run(
            [self._bin / program, *arguments], cwd=self.folder, env=environment, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def installed(self) -> set[str]:
        """Return the names of the distributions in it."""
        names = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
        return set(self.run("python", "-c", names).split())


def uv(folder: Path, *arguments: str) -> None:
    # Elsewhere, so that the project of the checkout does not count.
    subprocess.run([sys.executable, "-m", "uv", *arguments], cwd=folder, check=True)


Install = Callable[..., Environment]


@pytest.fixture
def install(tmp_path: Path, wheels: dict[str, Path]) -> Install:
    return lambda *requirements: Environment(tmp_path, wheels, *requirements)


def test_each_wheel_has_its_packages_with_their_types_and_nothing_else(wheels: dict[str, Path]) -> None:
    for name, wheel in wheels.items():
        assert wheel.name == f"{name.replace('-', '_')}-{__version__}-py3-none-any.whl"
        assert_size_is_stated(wheel, wheel.name.replace(__version__, "VERSION"))
        archive = zipfile.ZipFile(wheel)
        members = {each for each in archive.namelist() if ".dist-info/" not in each}
        packages = {
            each if each.startswith("eventplane") else f"eventplane_{each}": each for each in IN_EACH[name]
        }
        assert {f"{each}/py.typed" for each in packages.keys() - {"eventplane_parts"}} <= members
        sources = {
            f"{ours}/{file.relative_to(ROOT / package)}"
            for ours, package in packages.items()
            for file in (ROOT / package).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        of_parts = {each for each in sources if each.startswith("eventplane_parts/")}
        # Of a part it has what programs import; that it imports is shown below.
        assert sources - of_parts <= members <= sources
        entry = {"eventplane-forwarder": "/device.py", "eventplane-client": "/client.py"}.get(
            name, "/command.py"
        )
        names = ("/client.py", "/command.py", "/device.py", "/stack.py")
        entries = {each for each in of_parts if each.endswith(names)}
        assert members & entries == {each for each in entries if each.endswith(entry)}
        metadata = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        described = archive.read(metadata).decode()
        assert described.count("\nProject-URL: ") == 3
        assert not re.search(r"\]\((?!https://)", described)


def test_the_client_alone_runs_its_examples(install: Install, tmp_path: Path) -> None:
    environment = install("eventplane-client")
    assert environment.installed() == {"eventplane", "eventplane-client"}
    pages = [ROOT / "lab" / "packages" / "client" / "README.md", *DOCS.rglob("client.md")]
    examples = [
        each
        for page in pages
        for each in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        if "functions" not in each
    ]
    assert len(examples) >= 3
    for each in examples:
        script = tmp_path / "elsewhere" / "example.py"
        script.write_text(each)
        environment.run("python", str(script))
    environment.run("python", "-c", "import eventplane_client.mqtt")


@pytest.mark.parametrize(
    ("requirement", "packages"),
    [
        (
            "eventplane-client[aws,cloudevents,dns-sd,functions,otel]",
            ["eventplane", "eventplane_client", "eventplane_parts.tracing"],
        ),
        (
            "eventplane[aws,dns-sd,simulate]",
            ["eventplane", "eventplane_contract", "eventplane_operations", *PARTS],
        ),
    ],
)
def test_extras_name_all_that_is_imported(install: Install, requirement: str, packages: list[str]) -> None:
    install(requirement).run("python", "-c", IMPORT_ALL, *packages)


def test_wheels_in_folders_of_their_own_are_one(wheels: dict[str, Path], tmp_path: Path) -> None:
    for name, wheel in wheels.items():
        zipfile.ZipFile(wheel).extractall(tmp_path / name)
    path = os.pathsep.join(str(tmp_path / name) for name in reversed(wheels))
    look = "import eventplane_parts.tracing.spans, eventplane_parts.discovery.device"
    subprocess.run([sys.executable, "-S", "-c", look], env={"PYTHONPATH": path}, check=True)


def test_the_forwarder_needs_the_core_and_no_other_package(install: Install) -> None:
    environment = install("eventplane-forwarder")
    assert environment.installed() == {"eventplane", "eventplane-forwarder"}
    assert environment.run("eventplane-forwarder", "--version").startswith(
        f"eventplane-forwarder {__version__} "
    )
    assert "usage: eventplane-forwarder" in environment.run("eventplane-forwarder", "--help")
    assert "gone.toml" in environment.run(
        "eventplane-forwarder", "check", "--settings", "gone.toml", status=78
    )
    assert json.loads(environment.run("eventplane-forwarder", "manifest"))["version"] == __version__


def test_the_command_line_reads_contracts(install: Install) -> None:
    environment = install("eventplane[contract]")
    assert environment.run("eventplane", "--version") == f"eventplane {__version__}\n"
    examples = DOCS / "examples"
    arguments = [str(examples / "battery.json"), "--contract", str(examples / "doorbell.yaml")]
    explained = environment.run("eventplane", "contract", "explain", *arguments)
    assert "routes that match: everything-to-cloud" in explained
    environment.run("eventplane", "new", "contract")
    environment.run("eventplane", "new", "participant", "laundry-service", "--kind", "device-service")
    given = ("com.example.laundry.done.v1", "--sender", "laundry-service", "--receiver", "carers")
    assert "received by carers" in environment.run("eventplane", "new", "event-type", *given)


def test_a_new_project_passes_its_tests(install: Install) -> None:
    environment = install("eventplane[contract]", "eventplane-client[aws]", "pytest")
    environment.run("eventplane", "init", "care-bell")
    wanted = (environment.folder / "care-bell" / "requirements.txt").read_text()
    assert set(re.findall(r"^[\w-]+", wanted, re.MULTILINE)) <= environment.installed()
    assert "3 passed" in environment.run("pytest", "care-bell")
    environment.run("eventplane", "contract", "check", "--contract", "care-bell/contract/event_plane.yaml")


def test_a_contract_is_simulated(install: Install, tmp_path: Path) -> None:
    environment = install("eventplane[simulate]")
    assert "boto3" not in environment.installed()
    traffic = tmp_path / "elsewhere" / "traffic.toml"
    traffic.write_text('[types."org.eventplane.alarm.keyword.v1"]\nper_hour = 60\n')
    words = "contract", "simulate", "--traffic", "traffic.toml", "--homes", "2", "--days", "0.05"
    told = environment.run("eventplane", *words, "--jobs", "2", "--weather", "storm")
    assert "alarm-centre.inbox" in told
    assert "The way of one alarm" in (tmp_path / "elsewhere" / "build" / "simulation.html").read_text()


def test_a_missing_package_is_reported_with_the_extra_that_brings_it(install: Install) -> None:
    environment = install("eventplane")
    assert environment.installed() == {"eventplane"}
    missing = environment.run("eventplane", "contract", "explain", "event.json", status=1)
    assert "pip install 'eventplane[" in missing
    assert missing.count("\n") == 1
