from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.edge.disks import SmallDisk, small_disk_at
from tests.unit.edge.fakes import Device


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    """A forwarder whose two brokers are connected."""
    it = Device(tmp_path / "spool.db")
    it.connect()
    yield it
    it.crash()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 16 MB or, without the right to mount one, files that cannot grow beyond 2 MB."""
    with small_disk_at(tmp_path) as disk:
        yield disk
