"""The real parts that integration tests share: one cloud and one deployed plane for the session, brokers for
a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from local.cloud import CloudEndpoint
from local.demo.plane import Plane, deploy_plane
from local.emulator import start_emulator
from local.mosquitto import Broker, start_mosquitto
from local.process import Supervisor


@pytest.fixture(scope="session")
def cloud_supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """Owns what lasts for the whole session."""
    with Supervisor(tmp_path_factory.mktemp("cloud")) as supervisor:
        yield supervisor


@pytest.fixture(scope="session")
def emulator(cloud_supervisor: Supervisor) -> CloudEndpoint:
    """A running cloud with IAM enforced. It is shared: use names of your own, and leave others' alone."""
    return start_emulator(cloud_supervisor)


@pytest.fixture(scope="session")
def plane(emulator: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Plane:
    """The plane's own stacks, deployed once. It is shared: others' events lie in its inboxes."""
    with Supervisor(tmp_path_factory.mktemp("plane")) as supervisor:
        return deploy_plane(supervisor, emulator)


@pytest.fixture(scope="session")
def outputs(plane: Plane) -> Mapping[str, str]:
    """What the plane's stacks hand out, by name."""
    return plane.outputs


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Owns what lasts for one test."""
    with Supervisor(tmp_path / "run") as it:
        yield it


@pytest.fixture
def mosquitto(supervisor: Supervisor, tmp_path: Path) -> Callable[[str], Broker]:
    """Starts a home's broker by name; it ends with the test."""
    return lambda name: start_mosquitto(supervisor, name, tmp_path / name)
