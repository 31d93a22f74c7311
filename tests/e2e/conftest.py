"""One plane on this machine for all tests that need one: it takes a minute to come up."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.scaffold import copy_contract
from lab.deploy import ROOT
from lab.up.folder import NotUpError, PlaneFolder, Running
from tests.eventually import eventually
from tests.listeners import only_the_loopback_interface  # noqa: F401 - a fixture for every test here

SECONDS = 480.0
"""How long the plane may take to come up on a busy machine."""


class Desk:
    """A plane of `make up` with a contract of its own, in a `project` folder that commands can change."""

    def __init__(self, path: Path) -> None:
        self.project = path / "project"
        self.folder = PlaneFolder(path / "up")
        self._output = path / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self.project.mkdir()
        copy_contract(self.project / "contract")

    @property
    def running(self) -> Running:
        """What is known of the plane, which is started where none is up."""
        try:
            return self.folder.read()
        except NotUpError:
            self._start()
        return self.folder.read()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m lab.up` for this plane, and return what came of it."""
        line = [sys.executable, "-m", "lab.up", *words, "--folder", str(self.folder.path)]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)

    def kill(self) -> None:
        """Kill the plane (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        file = self.project / "contract" / "event_plane.yaml"
        line = [sys.executable, "-m", "lab.up", "--contract", str(file), "--folder", str(self.folder.path)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(line, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        assert eventually(self._is_up, SECONDS, every_s=0.2), self._output.read_text()

    def _is_up(self) -> bool:
        assert self._process is None or self._process.poll() is None, self._output.read_text()
        try:
            self.folder.read()
        except NotUpError:
            return False
        return True


def state(running: Running) -> dict[str, Any]:
    """Return what the control room shows."""
    with urllib.request.urlopen(f"{running.control_room}state", timeout=30) as answer:  # noqa: S310 - our own
        return json.load(answer)


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A plane on this machine. It may have a changed contract: make names of your own."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    yield desk
    desk.kill()
    desk.command("down")
