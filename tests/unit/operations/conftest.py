"""The plane's queues and archive, as moto plays them, and the commands that look after them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from eventplane import resource_names
from eventplane.__main__ import main
from eventplane.contract import Contract, ParticipantKind
from eventplane.contract.publication import cloud_inboxes
from operations import reading
from tests.plane import plane_contract
from tests.unit.operations.support import ENVIRONMENT, Plane


@pytest.fixture(scope="session")
def contract() -> Contract:
    return plane_contract()


@pytest.fixture
def plane(contract: Contract, aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plane:
    monkeypatch.setenv("EVENTPLANE_ENV", ENVIRONMENT)
    # The commands read what the fixture has, not what else somebody added to the shipped contract.
    deployed = tmp_path / "deployed.json"
    deployed.write_bytes(contract.canonical)
    monkeypatch.setattr("operations.command.project_contract", lambda _: deployed)
    monkeypatch.setattr(reading, "_LONG_POLL_S", 0)
    plane = Plane(boto3.client("sqs"), boto3.client("s3"))
    outboxes = (service.outbox for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    channels = [*cloud_inboxes(contract), *outboxes]
    for name in ["ingest", "tap", *map(resource_names.channel_queue, channels)]:
        plane.create_pair(name)
    plane.s3.create_bucket(Bucket=plane.bucket)
    monkeypatch.setattr("operations.cloud.Cloud.sqs", property(lambda _: plane.client))
    return plane


@pytest.fixture
def run(plane: Plane, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: its exit status, what it printed, and what it said to the person."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(list(arguments))
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def run_json(run: Callable[..., tuple[int, str, str]]) -> Callable[..., Any]:
    """Runs a command with --json; what it printed."""
    return lambda *arguments: json.loads(run(*arguments, "--json")[1])
