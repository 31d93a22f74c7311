"""One deployed plane with a victim for all attacks, and the table and the result file of what became of them.

A test that asks for the fixture `attempt` is an attack. It says whether the attack was refused, by what the
victim saw, and whether it was reported, by what names its true sender. Both have to hold.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.benchmarks.results import Figure, write
from lab.emulator import start_emulator
from lab.plane import Plane, deploy_plane
from lab.process import Supervisor
from lab.things import Thing
from tests.adversary.world import (
    ALARM_CENTRE,
    THIEF,
    VICTIM,
    CompromisedProgram,
    HostileService,
    StolenDevice,
    World,
)
from tests.integration.access import start_guarded
from tests.integration.cloud import program_of
from tests.integration.downlink import running_home
from tests.integration.mqtt import TestClient

RESULTS = Path(__file__).parents[2] / "build" / "chaos"
COMMAND = "make attack"
LEAST = 30
"""Attacks that there have to be at least."""

ATTACKS = pytest.StashKey[list["Attempt"]]()


@dataclass
class Attempt:
    """One attack and what became of it; None where nothing was said yet."""

    by: str
    title: str
    is_refused: bool | None = None
    is_reported: bool | None = None
    untraceable: str = ""
    problems: list[str] = field(default_factory=list)

    def refused(self, holds: bool, otherwise: object) -> None:
        """Say whether the victim was spared, and what it saw `otherwise`."""
        self.is_refused = holds and self.is_refused is not False
        if not holds:
            self.problems.append(f"not refused: {otherwise}")

    def reported(self, holds: bool, otherwise: object) -> None:
        """Say whether a trace with the true sender is left, and what was found `otherwise`."""
        self.is_reported = holds and self.is_reported is not False
        if not holds:
            self.problems.append(f"not reported: {otherwise}")

    def untraced(self, why: str) -> None:
        """Say why nothing can be left of the attack, where a part that is not the plane's stops it."""
        self.untraceable = why

    def judge(self) -> None:
        """Fail the test where something does not hold, or was never looked at."""
        assert not self.problems, "\n".join(self.problems)
        assert self.is_refused is not None, "the test says nothing of what the victim saw"
        assert self.is_reported is not None or self.untraceable, "the test says nothing of a trace"


@pytest.fixture
def attempt(request: pytest.FixtureRequest) -> Attempt:
    """The attack that the test is. A test without parameters has its name in its docstring: `by: title`."""
    given = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if forgery := given.get("forgery"):
        it = Attempt(forgery.by, forgery.title)
    else:
        by, _, title = request.node.function.__doc__.partition("\n")[0].partition(": ")
        it = Attempt(by, title.rstrip(".") + "".join(f" ({each})" for each in given.values()))
    request.config.stash.setdefault(ATTACKS, []).append(it)
    return it


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    if made := pyfuncitem.funcargs.get("attempt"):
        made.judge()
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table of the attacks, and write the result file."""
    attacks = config.stash.get(ATTACKS, [])
    if not attacks:
        return
    terminalreporter.section("attacks")
    width = max(len(each.by) for each in attacks)
    words = {True: "yes", False: "NO", None: "-"}
    terminalreporter.line(f"{'by':{width}}  refused  reported  attack")
    for each in attacks:
        refused, reported = words[each.is_refused], words[each.is_reported]
        terminalreporter.line(f"{each.by:{width}}  {refused:7}  {reported:8}  {each.title}")
    if len(attacks) < LEAST:
        return  # a part of them, by somebody who looks at it
    tried = len(attacks)
    silent = sum(bool(each.untraceable) for each in attacks)
    note = f"{silent} more are stopped by a part that reports nothing: docs/explanation/security.md"
    reported = sum(each.is_reported is True for each in attacks)
    figures = [
        Figure("tried", tried, "attacks", aim=LEAST),
        Figure("refused", sum(each.is_refused is True for each in attacks), "attacks", aim=tried),
        Figure("reported", reported, "attacks", aim=tried - silent, note=note if silent else ""),
    ]
    write("attack", figures, COMMAND, clock="none: attacks are counted", folder=RESULTS)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The deployed plane with IAM and IoT policies enforced, the victim's home, and its attackers."""
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor(folder / "run"))
        cloud = start_emulator(supervisor)
        plane = deploy_plane(supervisor, cloud)
        guarded = start_guarded(supervisor, "mosquitto-victim", folder / "guarded")
        services = ("health-service", "voice-service", "call-service")
        home = stack.enter_context(
            running_home(plane, supervisor, folder / VICTIM, VICTIM, guarded=guarded, services=services)
        )
        thing = plane.provision(THIEF, folder / THIEF)
        line = stack.enter_context(TestClient.of_thing(thing))
        world = World(
            plane=plane,
            home=home,
            guarded=guarded,
            thief=StolenDevice(thing, line, plane.outputs["IngestRule"]),
            programs={name: _program(plane, name) for name in PROGRAMS},
            service=HostileService("climate-service", guarded),
            log=supervisor.run_dir / "emulator.log",
            folder=folder,
        )
        registered = world.operator("fleet", "register", VICTIM, THIEF)
        assert registered.returncode == 0, registered.stderr
        # It stops to listen before its client is closed.
        with (
            pytest.MonkeyPatch.context() as patch,
            world.enter_as(ALARM_CENTRE, patch) as alarm_centre,
            world.inboxes.listening(alarm_centre),
        ):
            patch.undo()
            yield world


PROGRAMS = ("alarm-centre", "care-analytics", "family-app", "operations", "carers")


def _program(plane: Plane, name: str) -> CompromisedProgram:
    outbox = "".join(part.capitalize() for part in name.split("-")) + "OutboxUrl"
    return CompromisedProgram(name, program_of(plane, name), plane.outputs[outbox])


@pytest.fixture
def intruder(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Thing:
    """A further device with a certificate of its own, for attacks that end its connection."""
    name = f"intruder-{abs(hash(request.node.name)) % 10**9}"
    return world.plane.provision(name, tmp_path / name)
