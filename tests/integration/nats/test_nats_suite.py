"""The contract suite of the client library over NATS JetStream: the tests are those of the other backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventplane_nats.connection import Connection
from local.nats import NatsServer
from tests.integration.nats.worlds import NatsWorld
from tests.unit.client.test_contract_suite import *  # noqa: F403

pytestmark = pytest.mark.source("P13", "N1")


@pytest.fixture
def world(nats_server: NatsServer, operator: Connection, tmp_path: Path) -> Iterator[NatsWorld]:
    it = NatsWorld(nats_server, operator, tmp_path)
    yield it
    it.close()
