"""The code assets of functions, and the layer of dependencies that all of them share."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

from aws_cdk import App, AssetHashType, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from eventplane.contract import Contract
from stacks.bundling import (
    ROOT,
    compile_bytecode,
    copy_modules,
    installed,
    interpreter,
    local_bundling,
)
from stacks.environment import Environment
from stacks.plane_stack import environment_of
from stacks.settings import ProtocolSettings

CONTRACT_FILE: Final = "contract.json"
"""Where the functions expect the compiled contract, at the root of their code."""

_BUNDLED: Final = "aws:cdk:bundling-stacks"
"""By this the CDK's command line says which stacks need assets; none when it destroys."""

LOCK: Final = ROOT / "lambdas" / "requirements.txt"

_LAYER: Final = "Dependencies"

AWS_SERVICES: Final = frozenset({"dynamodb", "iot", "iot-data", "s3", "secretsmanager", "sqs"})
"""Services that the functions call. botocore brings models of 400, which are nine tenths of the layer."""


def install_dependencies(app: App, environment: Environment) -> None:
    """Have what the layer is made of, where `app` makes assets. Raises what `installed` does.

    From within the CDK it would come out as an error of the CDK's, its remedy between two tracebacks.
    """
    if app.node.try_get_context(_BUNDLED) != []:
        interpreter(python(environment))
        installed(LOCK, architecture(environment).name, python(environment))


def architecture(environment: Environment) -> lambda_.Architecture:
    """Return the architecture of functions and of the layer; an emulator has its own machine only."""
    if environment.is_emulated and platform.machine() == "x86_64":
        return lambda_.Architecture.X86_64
    return lambda_.Architecture.ARM_64


def runtime(environment: Environment) -> lambda_.Runtime:
    """Return the runtime of functions and of the layer; an emulator has this program's own Python only."""
    return lambda_.Runtime.PYTHON_3_11 if environment.is_emulated else lambda_.Runtime.PYTHON_3_13


def python(environment: Environment) -> str:
    """Return the version of Python that the functions of `environment` run on, as `3.13`."""
    return runtime(environment).name.removeprefix("python")


def function_code(modules: Sequence[str], python: str, contract: Contract | None = None) -> lambda_.Code:
    """Return the code asset of `modules`: them, what they import, and the core, which packages may use.

    It is compiled for the version `python`. With the contract for those that route: a new version of it
    should not deploy the others.
    """

    def fill(target: Path) -> None:
        copy_modules(target, modules, python)
        if contract is not None:
            (target / CONTRACT_FILE).write_bytes(contract.canonical)

    return lambda_.Code.from_asset(
        str(ROOT / "lambdas" / "common"),
        asset_hash_type=AssetHashType.OUTPUT,
        bundling=local_bundling(fill, *modules),
    )


def dependencies_layer(stack: Stack, protocols: Sequence[ProtocolSettings] = ()) -> lambda_.ILayerVersion:
    """Return the layer of `stack`: the locked third-party packages of all functions.

    It is made by the first call, with the `protocols` that the functions of this stack write to.
    """
    holder = stack.node.try_find_child(_LAYER) or Construct(stack, _LAYER)
    if isinstance(found := holder.node.try_find_child("Version"), lambda_.LayerVersion):
        return found
    environment = environment_of(stack)
    runs_on, version = architecture(environment), python(environment)
    return lambda_.LayerVersion(
        cast("Construct", holder),
        "Version",
        layer_version_name=environment.resource_name("dependencies"),
        code=lambda_.Code.from_asset(
            str(ROOT / "lambdas" / "common"),
            asset_hash_type=AssetHashType.OUTPUT,
            bundling=local_bundling(
                partial(_fill_layer, runs_on.name, version, protocols), *(each.package for each in protocols)
            ),
        ),
        compatible_runtimes=[runtime(environment)],
        compatible_architectures=[runs_on],
        removal_policy=environment.removal_policy,
    )


def _fill_layer(runs_on: str, python: str, protocols: Sequence[ProtocolSettings], target: Path) -> None:
    packages = installed(LOCK, runs_on, python)
    models = packages / "botocore" / "data"

    def unused(directory: str, names: list[str]) -> set[str]:
        if Path(directory) == packages:
            return {"bin"}
        if Path(directory) == models:
            return {name for name in names if (models / name).is_dir() and name not in AWS_SERVICES}
        return set()

    shutil.copytree(packages, target / "python", ignore=unused)
    for each in protocols:
        _add_protocol(ROOT / each.package, runs_on, python, target / "python")


def _add_protocol(folder: Path, runs_on: str, python: str, target: Path) -> None:
    """Add the package in `folder`, its metadata and what it needs."""
    wheels = installed(folder / LOCK.name, runs_on, python)
    shutil.copytree(wheels, target, dirs_exist_ok=True)
    shutil.rmtree(target / "bin", ignore_errors=True)
    with tempfile.TemporaryDirectory() as own:
        for each in folder.iterdir():
            if (each / "__init__.py").is_file() or each.suffix == ".dist-info":
                shutil.copytree(each, Path(own) / each.name, ignore=shutil.ignore_patterns("__pycache__"))
        compile_bytecode(Path(own), "/opt/python", python)
        shutil.copytree(own, target, dirs_exist_ok=True)
