"""The grown plane, deployed once for all tests here."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from local.cloud import CloudEndpoint
from local.deploy import deploy
from local.process import Supervisor
from tests.integration.deployed.grown import APP


@pytest.fixture(scope="session")
def outputs(
    cloud_supervisor: Supervisor, emulator: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """What the grown plane's stacks hand out, by name."""
    with Supervisor(tmp_path_factory.mktemp("grown")) as supervisor:
        stacks = deploy(supervisor, emulator, app=APP)
    return {name: value for stack in stacks.values() for name, value in stack.items()}
