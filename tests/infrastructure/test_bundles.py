"""The assets, bundled for real: what Lambda and Glue unpack has to start without this checkout."""

import json
import os
import platform
import runpy
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from eventplane.contract import load_compiled
from eventplane.errors import EventPlaneError
from eventplane.names import SENDERS
from stacks import bundling
from stacks.constructs import function_assets
from stacks.constructs.function_assets import LOCK
from tests.infrastructure.templates import FUNCTION, Resource, Templates, joined

START = """
import importlib, json, os, sys
drawn = []
def draw(size, urandom=os.urandom):
    drawn.append(sys._getframe(1).f_globals["__name__"])
    return urandom(size)
os.urandom = draw
for word in sys.argv[1:]:
    module, _, function = word.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
# Libraries draw for each request. What a module keeps would be the same in all clones of a snapshot.
assert not [each for each in drawn if each.startswith(("eventplane", "lambdas", "parts"))], drawn
print(json.dumps([getattr(sys.modules[name], "__file__") for name in ("eventplane", "botocore")]))
"""

CHECK = """
from eventplane.contract import compile_contract
from eventplane.envelope import write_event
from lambdas.router.payload import PayloadCheck
contract = compile_contract({
    "format": 2, "name": "small",
    "participants": {"d": {"kind": "device", "description": "d"}},
    "event_types": {"t": {
        "description": "d", "schema_check": "known",
        "schemas": [{"$id": "https://a.example/1", "type": "integer"}],
    }},
    "routes": {"up": {"filter": {"exact": {"type": "t"}}, "to": "d.outbox"}},
}, "small")
event = write_event({"id": "1", "source": "/s", "type": "t"}, "x")
refusal = PayloadCheck(contract, float).of_message()(event)
print(refusal.reason, refusal.detail)
"""

PYTHON = "3.13"

BUILT_ON = {"lambdas/router": {"parts/tracing"}, "parts/replay": {"lambdas/router"}}
"""Functions that are made of others' code."""


def asset(full: Templates, resource: Resource) -> Path:
    """Where the asset of a function or layer lies."""
    content = resource.find("Code") or resource.find("Content")
    return full.directory / f"asset.{Path(content['S3Key']).stem}"


def layer(full: Templates, stack: str) -> Path:
    (found,) = full.of("AWS::Lambda::LayerVersion", stack=stack)
    return asset(full, found) / "python"


def code(full: Templates) -> dict[str, Path]:
    """Where the code of the routing stack's functions lies, by their package."""
    return {each.module: asset(full, each) for each in full.of(FUNCTION, stack="routing")}


def variables(functions: list[Resource]) -> dict[str, str]:
    """The variables of functions, with a queue's URL for what AWS fills in."""
    together = {name: each for one in functions for name, each in one.variables.items()}
    url = "https://queue"
    return {
        name: each if isinstance(each, str) else joined(each, url) if "Fn::Join" in each else url
        for name, each in together.items()
    }


def started(code: Path, packages: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with `code` and `packages` alone."""
    return subprocess.run(
        # -S: without the site packages of this environment.
        [bundling.interpreter(PYTHON), "-S", "-W", "error", "-c", *words],
        cwd=code,
        env={"PYTHONPATH": f"{code}{os.pathsep}{packages}", "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("stack", ["routing", "fleet", "subscriptions", "monitoring", "discovery"])
def test_every_handler_starts_from_its_assets_alone(full: Templates, stack: str) -> None:
    packages = layer(full, stack)
    functions: dict[Path, list[Resource]] = {}
    for each in full.of(FUNCTION, stack=stack):
        functions.setdefault(asset(full, each), []).append(each)
    assert functions
    for folder, those in functions.items():
        if stack in ("routing", "subscriptions"):
            contract = load_compiled((folder / "contract.json").read_bytes())
            assert contract.version == full.outputs("routing")["ContractVersion"]
        # A function wires itself when it is imported, by its name.
        regions = {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
        given = variables(those) | {"LAMBDA_TASK_ROOT": str(folder)} | regions
        handlers = {each.find("Handler") for each in those}
        ran = started(folder, packages, START, *handlers, **given, AWS_LAMBDA_FUNCTION_NAME="function")
        assert ran.returncode == 0, ran.stderr
        eventplane_file, botocore_file = json.loads(ran.stdout.splitlines()[-1])
        assert Path(eventplane_file).is_relative_to(folder)
        assert Path(botocore_file).is_relative_to(packages)


def test_a_function_has_its_own_code_with_bytecode_and_no_other(full: Templates) -> None:
    for own, folder in code(full).items():
        assert {each.name for each in folder.iterdir()} >= {"contract.json", "eventplane", "lambdas"}
        folders = {each.relative_to(folder).parent.as_posix() for each in folder.glob("*/*/*.py")}
        folders = {each for each in folders if each.startswith(("lambdas", "parts"))}
        assert folders == {"lambdas/common", own} | BUILT_ON.get(own, set())
        assert not [*folder.rglob("stack.py"), *folder.rglob("command.py")]
        # A change of what the plane's commands compute with deploys no function.
        assert {each.name for each in folder.rglob("*.toml")} <= {"texts.toml"}
        sources = {each.relative_to(folder) for each in folder.rglob("*.py")}
        compiled = [each.relative_to(folder) for each in folder.rglob("*.pyc")]
        assert sources == {
            each.parent.parent / each.name.replace(".cpython-313.pyc", ".py") for each in compiled
        }


@pytest.mark.source("P13")
def test_only_routers_have_protocol_senders(full: Templates) -> None:
    for folder in ("lambdas/router", "parts/replay"):
        path = [str(code(full)[folder]), str(layer(full, "routing"))]
        found = {
            (each.name, each.value)
            for distribution in distributions(path=path)
            for each in distribution.entry_points.select(group=SENDERS)
        }
        assert found == {("nats", "eventplane_nats.sender:open_sender")}
    assert not (layer(full, "fleet") / "eventplane_nats").exists()


def test_the_layer_is_small(full: Templates) -> None:
    files = [each for each in layer(full, "routing").rglob("*") if each.is_file()]
    libraries = {each.name for each in files if each.suffix in {".so", ".dll", ".dylib"}}
    assert libraries == {f"{name}.cpython-313-aarch64-linux-gnu.so" for name in ("orjson", "rpds")}
    (version,) = full.of("AWS::Lambda::LayerVersion", stack="routing")
    assert version.find("CompatibleArchitectures") == ["arm64"]
    # Its share of what a function may have unpacked (250 MB) is also what a cold start has to load.
    assert sum(each.stat().st_size for each in files) < 30_000_000


def test_the_jobs_get_their_scripts_and_their_packages(full: Templates) -> None:
    manifest = json.loads((full.directory / "Audit.assets.json").read_text())
    sources = [full.directory / each["source"]["path"] for each in manifest["files"].values()]
    (packages,) = (each for each in sources if each.is_dir())  # one for all jobs
    assert {each.name for each in packages.iterdir()} == {"eventplane", "glue_jobs"}
    assert (packages / "glue_jobs" / "delivery_audit" / "main.py").is_file()
    assert not list(packages.rglob("__pycache__"))
    assert [each.suffix for each in sources if each.is_file()].count(".py") == 3


def test_the_router_checks_payloads_with_the_layer_of_this_machine() -> None:
    packages = bundling.installed(LOCK, "x86_64" if platform.machine() == "x86_64" else "arm64", PYTHON)
    ran = started(bundling.ROOT, packages, CHECK)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "payload_invalid $: 'x' is not of type 'integer' (schema https://a.example/1)\n"


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lock file; what is installed by it comes into another cache."""
    monkeypatch.setattr(bundling, "CACHE", tmp_path / "cache")
    file = tmp_path / "requirements.txt"
    file.write_text("")
    return file


def test_a_failed_install_is_one_error(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.write_text(f"nowhere==1.0 --hash=sha256:{64 * '0'}\n")
    monkeypatch.setattr(function_assets, "LOCK", lock)
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bundling.ROOT / "app.py"))
    assert str(ended.value).startswith("requirements.txt could not be installed; check the network")


def test_a_python_that_is_missing_is_named_with_the_remedy() -> None:
    with pytest.raises(EventPlaneError, match=r"run lab/tools/setup\.sh python-3\.9"):
        bundling.interpreter("3.9")


def test_two_syntheses_at_once_share_one_installation(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(_lock: Path, _python: str, _platform: str, target: Path) -> None:
        target.mkdir()
        faster = bundling.CACHE / target.name
        faster.mkdir()
        (faster / "package.py").write_text("")

    monkeypatch.setattr(bundling, "_install", install)
    assert [each.name for each in bundling.installed(lock, "arm64", PYTHON).iterdir()] == ["package.py"]
    assert len(list(bundling.CACHE.iterdir())) == 1
