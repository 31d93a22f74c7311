"""What the commands of a plane that is up say and do, where one is up and where none is."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from rich.console import Console

from contract.publish import DestinationsNotDeployedError
from contract.scaffold import copy_contract, new_participant
from eventplane.contract import Contract, ParticipantKind, compile_contract
from local.cloud import CloudEndpoint
from local.deploy import COMMANDS, TOOLS
from local.plane import Plane
from local.process import RunningError, run_lock
from local.up import __main__ as command
from local.up import run as module
from local.up.folder import Folder, NotUpError, Running
from local.up.run import NotTakenError, WebhookUrlMissingError, commands_for, publish
from tests.plane import shipped_contract

CLOUD = CloudEndpoint("http://127.0.0.1:1", "us-east-1", "0" * 12, "127.0.0.1", 2, "ca", "test", "test")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "up")


@pytest.fixture
def running(folder: Folder) -> Iterator[Running]:
    """A plane that is up, with another contract than the checkout's."""
    with run_lock(folder.lock):
        running = Running(os.getpid(), CLOUD, {"old": "1"}, "before", "home-1", 1884, "http://127.0.0.1:3/")
        folder.write(running)
        yield running


class World:
    """Stands for AWS and the process that is up, and notes what happens; `problem` is raised by `publish`."""

    def __init__(self, folder: Folder) -> None:
        self.story: list[str] = []
        self.problem: Exception | None = None
        self.takes = True
        self.context: Mapping[str, str] = {}
        self._folder = folder

    def publish(self, contract: Contract) -> None:
        self.story.append("publish")
        if self.problem:
            raise self.problem

    def synthesise(self, *_: Any, context: Mapping[str, str]) -> None:
        self.context = context

    def deploy(self, *_: Any) -> Plane:
        self.story.append("deploy")
        return Plane(CLOUD, {"new": "2"}, shipped_contract())

    def wake(self, _: int, number: int) -> None:
        assert number == signal.SIGUSR1
        self.story.append("wake")
        if self.takes:
            version = json.loads(self._folder.contract.read_bytes()) and shipped_contract().version
            self._folder.write(replace(self._folder.read(), contract_version=version))


@pytest.fixture
def world(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(folder)
    monkeypatch.setattr(module, "find_deployment", lambda *_: None)
    monkeypatch.setattr(module, "Publisher", lambda *_: world)
    monkeypatch.setattr(module, "start_synthesis", world.synthesise)
    monkeypatch.setattr(module, "deploy_plane", world.deploy)
    monkeypatch.setattr(module, "warm_up", lambda _: world.story.append("warm"))
    monkeypatch.setattr(module.signal, "pidfd_send_signal", world.wake)
    return world


def console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80), text


def say(monkeypatch: pytest.MonkeyPatch, folder: Folder, capsys: Any, *words: str) -> tuple[int, str]:
    """Run the command, and return its exit status and what it printed."""
    monkeypatch.setattr("sys.argv", ["local.up", *words, "--folder", str(folder.path)])
    status = command.main()
    return status, capsys.readouterr().out


def test_a_contract_that_needs_no_queue_is_published(folder: Folder, running: Running, world: World) -> None:
    publish(folder, console()[0])
    assert world.story == ["publish", "wake"]
    assert folder.read().contract_version == shipped_contract().version
    assert (
        compile_contract(json.loads(folder.contract.read_bytes()), "test").version
        == shipped_contract().version
    )


def test_a_new_participant_is_deployed(folder: Folder, running: Running, world: World) -> None:
    world.problem = DestinationsNotDeployedError(["laundry-service.inbox"], [])
    shown, text = console()
    publish(folder, shown)
    assert world.story == ["publish", "deploy", "warm", "wake"]
    assert folder.read().outputs == {"new": "2"}
    assert "laundry-service.inbox" in text.getvalue()


def test_a_new_endpoint_is_deployed_and_kept(folder: Folder, running: Running, world: World) -> None:
    folder.write(replace(running, contract_version=shipped_contract().version, webhooks={"a": "http://a/"}))
    publish(folder, console()[0], {"b": "http://b/"})
    assert world.story == ["deploy", "warm", "wake"]
    assert folder.read().webhooks == {"a": "http://a/", "b": "http://b/"}
    assert json.loads(world.context["webhooks"]) == folder.read().webhooks
    assert world.context["contract"] == running.contract_file
    publish(folder, console()[0])
    assert world.story == ["deploy", "warm", "wake"]


def test_a_webhook_without_its_url_is_said_before_anything_happens(
    folder: Folder, running: Running, world: World, tmp_path: Path
) -> None:
    contract = copy_contract(tmp_path / "contract")
    new_participant(contract, "night-nurse", ParticipantKind.CLOUD_SERVICE, webhook=True).write()
    folder.write(replace(running, contract_file=str(contract)))
    with pytest.raises(WebhookUrlMissingError, match="WEBHOOK=night-nurse=http://"):
        publish(folder, console()[0])
    assert world.story == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http://127.0.0.1:1/", "is no NAME=URL;"),
        ("nurse=ftp://host/", "the URL is neither https:// nor http://"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: Any, text: str, problem: str
) -> None:
    monkeypatch.setattr("sys.argv", ["local.up", "--webhook", text, "--folder", str(folder.path)])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "problem",
    [
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ClientError({"Error": {"Code": "InternalError", "Message": "[no] markup"}}, "PutItem"),
    ],
    ids=["gone", "refused"],
)
def test_a_cloud_that_fails_a_publish_is_one_line_with_a_remedy(
    folder: Folder,
    running: Running,
    world: World,
    problem: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    world.problem = problem
    status, printed = say(monkeypatch, folder, capsys, "publish")
    assert status == 1
    assert f"the local cloud refused: {problem}; look at the terminal of `make up`" in printed
    assert folder.read() == running


def test_another_plane_that_came_up_during_a_publish_is_left_alone(
    folder: Folder, running: Running, world: World
) -> None:
    gone = replace(running, pid=os.getppid())
    folder.write(gone)
    with pytest.raises(NotUpError):
        publish(folder, console()[0])
    assert world.story == ["publish"]
    assert folder.read() == gone


def test_of_two_publishes_one_is_refused(folder: Folder, running: Running, world: World) -> None:
    with run_lock(folder.path / "publish.lock"), pytest.raises(RunningError):
        publish(folder, console()[0])
    assert world.story == []


def test_a_publish_that_is_interrupted_does_not_report_the_plane_down(
    folder: Folder, running: Running, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "publish", interrupted)
    assert say(monkeypatch, folder, capsys, "publish") == (1, "stopped before the end; repeat the command\n")


def test_an_unchanged_contract_is_not_published(folder: Folder, running: Running, world: World) -> None:
    folder.write(replace(running, contract_version=shipped_contract().version))
    shown, text = console()
    publish(folder, shown)
    assert world.story == []
    assert "nothing has changed" in text.getvalue()


def test_a_shell_with_the_plane_s_variables_finds_the_plane_and_the_checkout_s_command(
    folder: Folder, running: Running
) -> None:
    file = folder.environment
    names = "$AWS_ENDPOINT_URL $EVENTPLANE_ENV $EVENTPLANE_BROKER $PATH"
    line = f". {file} && . {file} && command -v eventplane && echo {names}"
    shell = subprocess.run(
        ["bash", "-c", line], env={"PATH": os.defpath}, capture_output=True, text=True, check=True
    )
    found, rest = shell.stdout.splitlines()
    assert found == str(COMMANDS / "eventplane")
    assert rest == f"{CLOUD.url} local mqtt://127.0.0.1:1884 {COMMANDS}:{TOOLS}:{os.defpath}"


def test_a_plane_that_does_not_take_a_contract_is_reported(
    folder: Folder, running: Running, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.takes = False
    monkeypatch.setattr(module, "_TAKEN_S", 0.0)
    with pytest.raises(NotTakenError, match="is deployed, but the home did not get it"):
        publish(folder, console()[0])


def test_a_second_plane_says_where_the_first_is(
    folder: Folder, running: Running, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    status, text = say(monkeypatch, folder, capsys)
    assert status == 1
    assert "a plane is up already; `make down` ends it" in text
    assert all(line in text for line in commands_for(folder, running.broker_port).values())
    assert running.control_room in text


@pytest.mark.parametrize("verb", ["down", "publish", "status"])
def test_without_a_plane_the_commands_say_how_to_start_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: Any, verb: str
) -> None:
    status, text = say(monkeypatch, folder, capsys, verb)
    assert (status, text) == (1, f"{NotUpError()}\n")


def test_a_plane_that_is_starting_is_said_to_be(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with run_lock(folder.lock):
        status, text = say(monkeypatch, folder, capsys)
    assert status == 1
    assert "is starting already" in text
