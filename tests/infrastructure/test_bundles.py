"""The assets, bundled for real: what Lambda and Glue unpack has to start without this checkout."""

from __future__ import annotations

import json
import os
import platform
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import aws_cdk as cdk
import pytest

from contract import load_contract
from eventplane.contract import Contract, Place, compile_contract
from eventplane.names import SENDERS
from stacks import bundling
from stacks.application import build
from stacks.config import environment
from stacks.constructs import function_assets
from stacks.constructs.function_assets import LOCK
from stacks.settings import ProtocolSettings
from tests.infrastructure.templates import Resource

START = """
import importlib, json, sys
module, _, function = sys.argv[1].rpartition(".")
handler = importlib.import_module(module)
assert callable(getattr(handler, function))
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
refusal = PayloadCheck(contract).of_message()(event)
print(refusal.reason, refusal.detail)
"""

BUILT_ON = {"replay": {"router"}}
"""Functions that are made of others' code."""


@pytest.fixture(scope="module")
def contract() -> Contract:
    """The plane's own, with a webhook and interest, so that every function there is gets bundled.

    NATS carries an inbox, so that routers have to find the sender of a package.
    """
    document = json.loads(load_contract().canonical)
    document["participants"]["device"].setdefault("outbox", {})["forward"] = "wanted"
    document["participants"]["alarm-centre"]["inbox"] = {"webhook": {}}
    document["participants"]["care-analytics"]["inbox"] = {"transport": "nats"}
    return compile_contract({**document, "format": 7}, "test")


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory, contract: Contract) -> Path:
    """A cloud assembly with all assets."""
    directory = tmp_path_factory.mktemp("assembly")
    app = cdk.App(outdir=str(directory))
    urls = {"alarm-centre": "https://alarm-centre.example/"}
    nats = ProtocolSettings(package="plugins/nats", url="nats://nats.example:4222")
    build(app, replace(environment("dev"), webhook_urls=urls, protocols=(nats,)), contract)
    app.synth()
    return directory


def asset(assembly: Path, resource: Resource) -> Path:
    """Where the asset of a function or layer lies."""
    content = resource.find("Code") or resource.find("Content")
    return assembly / f"asset.{Path(content['S3Key']).stem}"


def resources(assembly: Path, stack: str, type: str) -> list[Resource]:
    document = json.loads((assembly / f"{stack}.template.json").read_text())
    return [
        Resource(stack, id, each["Type"], each["Properties"], each)
        for id, each in document["Resources"].items()
        if each["Type"] == type
    ]


@pytest.mark.parametrize("stack", ["Routing", "Fleet", "Subscriptions"])
def test_every_handler_starts_from_its_assets_alone(assembly: Path, contract: Contract, stack: str) -> None:
    (layer,) = resources(assembly, stack, "AWS::Lambda::LayerVersion")
    packages = asset(assembly, layer) / "python"
    functions = resources(assembly, stack, "AWS::Lambda::Function")
    inboxes = {route.destination: "https://queue" for route in contract.routes_at(Place.CLOUD)}
    inboxes["care-analytics.inbox"] = "nats://nats.example:4222/stream"
    lists = {
        "EVENTPLANE_QUEUES": json.dumps(inboxes),
        "EVENTPLANE_WAYS_IN": json.dumps(["https://queue"]),
        "EVENTPLANE_LETTERS_TO": json.dumps(["https://queue"]),
        "EVENTPLANE_INBOXES": json.dumps({"carers": "arn"}),
    }
    for handler, function in {each.find("Handler"): each for each in functions}.items():
        code = asset(assembly, function)
        if stack == "Fleet":
            assert not (code / "contract.json").exists()
        else:
            assert (code / "contract.json").read_bytes() == contract.canonical
        variables = function.find("Environment", "Variables")
        started = subprocess.run(
            # -S: without the site packages of this environment.
            [sys.executable, "-S", "-W", "error", "-c", START, handler],
            cwd=code,
            env={
                "PYTHONPATH": f"{code}{os.pathsep}{packages}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "LAMBDA_TASK_ROOT": str(code),
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_LAMBDA_FUNCTION_NAME": "function",  # by which it wires itself when it is imported
                # What AWS fills in is a queue's URL.
                **{
                    name: each if isinstance(each, str) else "https://queue"
                    for name, each in variables.items()
                },
                **{name: each for name, each in lists.items() if name in variables},
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert started.returncode == 0, started.stderr
        eventplane_file, botocore_file = json.loads(started.stdout.splitlines()[-1])
        assert Path(eventplane_file).is_relative_to(code)
        assert Path(botocore_file).is_relative_to(packages)


def test_a_function_has_its_own_code_and_nobody_elses(assembly: Path) -> None:
    for function in resources(assembly, "Routing", "AWS::Lambda::Function"):
        code = asset(assembly, function)
        own = function.find("Handler").split(".")[1]
        assert {each.name for each in code.iterdir()} >= {"contract.json", "eventplane", "lambdas"}
        folders = {each.name for each in (code / "lambdas").iterdir() if each.is_dir()} - {"__pycache__"}
        assert folders == {"common", own} | BUILT_ON.get(own, set())


@pytest.mark.source("P13")
def test_the_bundles_keep_the_entry_points_of_senders_and_nothing_else_has_a_protocol(assembly: Path) -> None:
    (layer,) = resources(assembly, "Routing", "AWS::Lambda::LayerVersion")
    packages = asset(assembly, layer) / "python"
    code = {
        each.find("Handler").split(".")[1]: asset(assembly, each)
        for each in resources(assembly, "Routing", "AWS::Lambda::Function")
    }
    for folder in ("router", "replay"):
        path = [str(code[folder]), str(packages)]
        found = {
            (each.name, each.value)
            for distribution in distributions(path=path)
            for each in distribution.entry_points.select(group=SENDERS)
        }
        assert found == {
            ("http", "lambdas.common.sqs:open_sender"),
            ("https", "lambdas.common.sqs:open_sender"),
            ("nats", "eventplane_nats.sender:open_sender"),
        }
    assert not list(code["archive"].glob("*.dist-info"))
    (other,) = resources(assembly, "Fleet", "AWS::Lambda::LayerVersion")
    assert not (asset(assembly, other) / "python" / "eventplane_nats").exists()


def test_every_source_comes_with_its_bytecode(assembly: Path) -> None:
    for function in resources(assembly, "Routing", "AWS::Lambda::Function"):
        code = asset(assembly, function)
        sources = {each.relative_to(code) for each in code.rglob("*.py")}
        compiled = {
            each.relative_to(code).parent.parent / f"{each.name.split('.')[0]}.py"
            for each in code.rglob("*.pyc")
        }
        assert sources == compiled


def test_the_layer_is_small_and_its_machine_code_is_for_the_functions(assembly: Path) -> None:
    (layer,) = resources(assembly, "Routing", "AWS::Lambda::LayerVersion")
    files = [each for each in asset(assembly, layer).rglob("*") if each.is_file()]
    libraries = {each.name for each in files if each.suffix in {".so", ".dll", ".dylib"}}
    assert libraries == {f"{name}.cpython-311-aarch64-linux-gnu.so" for name in ("orjson", "rpds")}
    assert layer.find("CompatibleArchitectures") == ["arm64"]
    # Its share of what a function may have unpacked (250 MB) is also what a cold start has to load.
    assert sum(each.stat().st_size for each in files) < 30_000_000


def test_the_jobs_get_their_scripts_and_their_packages(assembly: Path) -> None:
    manifest = json.loads((assembly / "Audit.assets.json").read_text())
    sources = [assembly / each["source"]["path"] for each in manifest["files"].values()]
    (packages,) = (each for each in sources if each.is_dir())  # one for all jobs
    assert {each.name for each in packages.iterdir()} == {"eventplane", "glue_jobs"}
    assert (packages / "glue_jobs" / "delivery_audit" / "main.py").is_file()
    assert not list(packages.rglob("__pycache__"))
    assert [each.suffix for each in sources if each.is_file()].count(".py") == 3


def test_the_router_checks_payloads_with_the_layer_of_this_machine(tmp_path: Path) -> None:
    packages = bundling.installed(LOCK, "x86_64" if platform.machine() == "x86_64" else "arm64")
    started = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", CHECK],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{bundling.ROOT}{os.pathsep}{packages}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert started.stdout == "payload_invalid $: 'x' is not of type 'integer' (schema https://a.example/1)\n"


def test_dependencies_that_cannot_be_installed_are_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"nowhere==1.0 --hash=sha256:{64 * '0'}\n")
    monkeypatch.setattr(function_assets, "LOCK", lock)
    monkeypatch.setattr(bundling, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(bundling.ROOT / "app.py"))
    assert str(ended.value).startswith("requirements.txt could not be installed; check the network")


def test_two_syntheses_at_once_share_one_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("")

    def install(_lock: Path, _interpreter: str, _platform: str, target: Path) -> None:
        target.mkdir()
        faster = tmp_path / "cache" / target.name
        faster.mkdir()
        (faster / "package.py").write_text("")

    monkeypatch.setattr(bundling, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(bundling, "_install", install)
    assert [each.name for each in bundling.installed(lock, "arm64").iterdir()] == ["package.py"]
    assert len(list((tmp_path / "cache").iterdir())) == 1
