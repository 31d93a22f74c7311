"""One plane on this machine for all tests that need one: it takes a minute to come up."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.scaffold import copy_contract
from lab.cloud import ROOT
from lab.up.folder import NotUpError, PlaneFolder, Running
from tests.eventually import eventually
from tests.listeners import only_the_loopback_interface  # noqa: F401 - a fixture for every test here

SECONDS = 480.0
"""How long the plane may take to come up on a busy machine."""


class Desk:
    """A plane of `make up` with a `contract`, or else a copy of the shipped one in `project`, to change."""

    def __init__(self, path: Path, contract: Path | None = None) -> None:
        self.project = path / "project"
        self.folder = PlaneFolder(path / "up")
        self._output = path / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self.project.mkdir()
        self._contract = contract or copy_contract(self.project / "contract")

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
        line = [sys.executable, "-m", "lab.up", "--contract", str(self._contract)]
        line += ["--folder", str(self.folder.path)]
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


def asked(running: Running, method: str, path: str, body: str | None = None) -> Any:
    """Return what the control room answers to its page."""
    origin = running.control_room.rsplit("/", 2)[0]
    data = None if body is None else body.encode()
    request = urllib.request.Request(  # noqa: S310 - our own
        running.control_room + path, data, {"Origin": origin}, method=method
    )
    with urllib.request.urlopen(request, timeout=180) as answer:  # noqa: S310
        return json.load(answer)


def state(running: Running) -> dict[str, Any]:
    """Return what the control room shows."""
    found: dict[str, Any] = asked(running, "GET", "state")
    return found


@contextmanager
def own_desk(path: Path, contract: Path | None = None) -> Iterator[Desk]:
    """A plane in the folder `path` for tests that leave events behind; nothing is left of it."""
    desk = Desk(path, contract)
    yield desk
    desk.kill()
    desk.command("down")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A plane on this machine. It may have a changed contract: make names of your own."""
    with own_desk(tmp_path_factory.mktemp("desk")) as desk:
        yield desk
