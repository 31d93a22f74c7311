"""`make up`: one plane at a time, what the control room sends and reads, and a home's spool."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.offers import offers
from contract.rollout import ROLLOUT, ContractRollout, RolloutPhase, StageLimits
from eventplane.contract.publication import CONTRACTS_TABLE, KEY, ContractTable, published
from eventplane.records import Records
from eventplane.resource_names import resource_name
from eventplane_aws.tables import DynamoDbTables
from lab.cloud import ENVIRONMENT, ROOT, CloudEndpoint
from lab.control_room.tally import Tally
from lab.home import Home
from lab.process import RunningError
from lab.up.__main__ import main
from lab.up.folder import MARK, NotUpError, PlaneFolder, Running, end_leftovers, stop
from lab.up.plane import LocalPlane, NoParticipantError, RolloutWatch, _Readers
from lab.up.run import commands_for
from tests.dynamodb import create_table
from tests.eventually import eventually
from tests.fake_plane import CONTRACT
from tests.fakes.dynamodb import FakeDynamoDb
from tests.small_contract import with_changes
from tests.unit.contract.small import small

HOLD = """
import sys, time
from pathlib import Path
from lab.process import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
Start = Callable[..., subprocess.Popen[bytes]]
CLOUD = CloudEndpoint("http://127.0.0.1:5", "us-east-1", "0", "127.0.0.1", 8883, "PEM", "key", "secret")


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process, which ends with the test at the latest."""
    processes = []

    def run(*command: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        return processes[-1]

    yield run
    for each in processes:
        each.kill()
        each.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> PlaneFolder:
    return PlaneFolder(tmp_path / "up")


def test_a_home_follows_a_roll_out() -> None:
    dynamodb = FakeDynamoDb()
    name = resource_name(ENVIRONMENT, CONTRACTS_TABLE)
    create_table(dynamodb, name, KEY)
    tables = DynamoDbTables(dynamodb, os.urandom)
    new = with_changes(CONTRACT, {"participants/device/description": "Another one."})
    for each in (CONTRACT, new):
        ContractTable(tables, name).contracts.force(published(each))
    followed: list[str] = []
    cloud: Any = SimpleNamespace(client=lambda _: dynamodb)
    watch = RolloutWatch(cloud, lambda each: followed.append(each.version))

    def look() -> RolloutPhase | None:
        watch._look()
        return None if watch.now is None else watch.now.phase

    assert look() is None
    rollout = ContractRollout(
        base="b", version=new.version, former=CONTRACT.version, judged_by="", stages=("100 %",),
        limits=StageLimits(), began_ms=1, stage_ms=1,
    )  # fmt: skip
    for phase, following, versions in (
        (RolloutPhase.WATCHING, 0, []),
        (RolloutPhase.WATCHING, 1, [new.version]),
        (RolloutPhase.UNPROVEN, 1, [new.version]),
        (RolloutPhase.GOING_BACK, 1, [new.version]),
        (RolloutPhase.WENT_BACK, 1, [new.version, CONTRACT.version]),
        (RolloutPhase.WATCHING, 0, [new.version, CONTRACT.version]),
        (RolloutPhase.DONE, 0, [new.version, CONTRACT.version, new.version]),
    ):
        Records(tables, name, ROLLOUT).force(replace(rollout, phase=phase, following=following))
        assert (look(), followed) == (phase, versions)


def test_others_get_no_signal(start: Start, folder: PlaneFolder) -> None:
    plane = start(sys.executable, "-c", HOLD, str(folder.lock))
    assert plane.stdout
    assert plane.stdout.readline() == b"held\n"
    other, its_own = start("sleep", "600"), start("sleep", "600", **{MARK: str(folder.path)})
    with pytest.raises(NotUpError), folder.process(other.pid):
        pytest.fail("it is another process")
    folder.lock.write_text("")  # it has the lock, and has not written its process there
    with pytest.raises(RunningError):
        stop(folder)
    assert its_own.poll() is None


def test_processes_of_a_killed_plane_are_ended_and_no_others(start: Start, folder: PlaneFolder) -> None:
    left = start("sleep", "600", **{MARK: str(folder.path)})
    others = [start("sleep", "600", **{MARK: f"{folder.path}-2"}), start("sleep", "600")]
    for each in (left, *others):
        # The kernel shows the variables a moment after the program has been started.
        assert eventually(Path(f"/proc/{each.pid}/environ").read_bytes)
    assert end_leftovers(folder) == 1
    assert left.wait(10) == -signal.SIGKILL
    assert [each.poll() for each in others] == [None, None]


def test_a_folder_that_cannot_be_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(sys, "argv", ["up", "start", "--folder", str(file / "up")])
    assert main() == 1
    assert f"{file / 'up'}: Not a directory; name a folder" in capsys.readouterr().out


def test_the_environment_leads_to_all_of_the_plane(folder: PlaneFolder) -> None:
    outputs = {"SubscriptionsApiUrl": "http://abc.execute-api.localhost:5/v1"}
    running = Running(1, CLOUD, outputs, "v", "home-1", 1883, "", "/my own/plane.yaml")
    folder.path.mkdir()
    folder.write(running)
    script = f"source {folder.environment}; env -0; eventplane --version >&2"
    shell = ["bash", "-euc", script]
    done = subprocess.run(shell, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True)
    found = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
    assert found.items() >= folder.variables(running).items()
    assert found["EVENTPLANE_CONTRACT"] == "/my own/plane.yaml"
    assert found["EVENTPLANE_SUBSCRIPTIONS_API"] == "http://127.0.0.1:5/_aws/execute-api/abc/v1"
    assert "EVENTPLANE_DISCOVERY_API" not in found
    assert Path(found["EVENTPLANE_DEVICE_CA"]).read_text() == "PEM"


def test_a_command_is_shown_only_where_it_works(folder: PlaneFolder) -> None:
    """A webhook's inbox has no queue that a command reads; nor is an event sent that has no payload."""
    folder.path.mkdir()
    contract = small({"participants/desk/inbox": {"webhook": {"timeout_s": 3}}})
    running = Running(1, CLOUD, {}, "v", "home-1", 1883, "")
    ring = next(each for each in offers(contract, "home-1") if each.sender == "bell")
    shown = commands_for(folder, running, contract, [replace(ring, problem="no example was found")])
    assert shown.keys().isdisjoint({"see an inbox", f"publish an event of {ring.type} at the home's broker"})
    assert f"publish an event of {ring.type} at the home's broker" in commands_for(
        folder, running, contract, [ring]
    )


def test_a_reader_goes_on_after_an_error() -> None:
    """A deployment interrupts the emulated cloud, and the button shows that the inbox is read."""
    calls: list[None] = []
    has_gone_on = threading.Event()

    def client() -> Any:
        calls.append(None)
        if len(calls) > 1:
            has_gone_on.set()
        raise ConnectionError

    with _Readers({"alarm-centre": "http://127.0.0.1:1/inbox"}, client, Tally(CONTRACT)):
        assert has_gone_on.wait(10)


def test_what_has_no_outbox_sends_nothing() -> None:
    """The plane's own services, for one."""
    plane: Any = object.__new__(LocalPlane)
    plane._plane = SimpleNamespace(contract=CONTRACT, outputs={"CarersOutboxUrl": "http://127.0.0.1:1/q"})
    with pytest.raises(NoParticipantError, match=r"choose one of: .*carers") as refused:
        plane.send("downlink", {"type": "a", "source": "/b"})
    assert "device," not in str(refused.value)


def test_a_spool_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    nothing: Any = None
    spool = tmp_path / "spool.db"
    home = Home("home-1", nothing, nothing, nothing, spool, tmp_path / "c.json", None, None)
    assert (home.backlog, home.unreported) == (0, 0)
    spool.write_bytes(b"no database at all" * 1_000)
    assert home.backlog > 0
    assert home.unreported > 0
