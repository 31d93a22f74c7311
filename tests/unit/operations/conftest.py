"""The plane's queues and archive, in memory, and the commands that look after them."""

import json
import time
from pathlib import Path

import pytest

from eventplane import resource_names
from eventplane.__main__ import main
from eventplane.contract import Contract, ParticipantKind
from eventplane.contract.publication import cloud_inboxes
from operations import reading
from tests.fakes.aws import FakeAws
from tests.unit.operations.support import ENVIRONMENT, Folder, Plane, Run, RunJson


@pytest.fixture(scope="session")
def deployed(contract: Contract, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the contract, compiled."""
    file = tmp_path_factory.mktemp("contract") / "deployed.json"
    file.write_bytes(contract.canonical)
    return file


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], deployed: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command, by default with what the plane knows and not what somebody added to the contract."""
    monkeypatch.setenv("EVENTPLANE_ENV", ENVIRONMENT)
    monkeypatch.setattr("operations.command.chosen_contract", lambda: deployed)

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(list(arguments))
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """Runs a command with --json; what it printed."""
    return lambda *arguments: json.loads(run(*arguments, "--json")[1])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty copy of the archive."""
    return Folder(tmp_path)


@pytest.fixture
def plane(contract: Contract, fake_aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> Plane:
    monkeypatch.setattr(reading, "_LONG_POLL_S", 0)
    fake_aws.clock.now_ms = time.time_ns() // 1_000_000  # the commands read the machine's clock
    plane = Plane(fake_aws.sqs, fake_aws.s3)
    outboxes = (service.outbox for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE))
    channels = [*cloud_inboxes(contract), *outboxes]
    for name in ["ingest", "tap", "ledger", *map(resource_names.channel_queue, channels)]:
        plane.create_pair(name)
    plane.s3.create_bucket(Bucket=plane.bucket)
    monkeypatch.setattr("operations.cloud.Cloud.sqs", property(lambda _: plane.client))
    return plane
