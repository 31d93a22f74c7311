from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.edge.fakes import Device


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A forwarder whose two brokers are connected."""
    it = Device(tmp_path / "spool.db")
    it.connect()
    yield it
    it.crash()
