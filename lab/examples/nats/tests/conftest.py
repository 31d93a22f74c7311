"""One real NATS server; each test has streams of its own."""

from collections.abc import Iterator

import pytest

from eventplane_nats.connection import NatsLink
from lab.examples.nats.tests.server import NatsServer, start_nats
from lab.process import Supervisor
from tests.conftest import own_state
from tests.listeners import only_the_loopback_interface
from tests.unit.conftest import fake_aws

__all__ = ["fake_aws", "only_the_loopback_interface", "own_state"]


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with Supervisor(tmp_path_factory.mktemp("nats")) as supervisor:
        yield start_nats(supervisor, "nats", supervisor.run_dir / "streams")


@pytest.fixture
def operator(nats_server: NatsServer) -> Iterator[NatsLink]:
    """A connection with every right."""
    connection = NatsLink(nats_server.url, "operator")
    yield connection
    connection.close()
