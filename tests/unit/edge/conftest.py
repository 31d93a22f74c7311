from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.scratch import SCRATCH
from tests.unit.edge.disks import SmallDisk, small_disk_at
from tests.unit.edge.fakes import Device, MakeDevice


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder where a sync costs nothing."""
    with TemporaryDirectory(dir=SCRATCH) as folder:
        yield Path(folder)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeDevice]:
    """Make forwarders that end with the test."""
    with ExitStack() as ends:

        def one(*, connected: bool = True, **options: Any) -> Device:
            it = Device(tmp_path / "spool.db", **options)
            ends.callback(lambda: it.crash())  # of the spool that it has then
            if connected:
                it.connect()
            return it

        yield one


@pytest.fixture
def device(make: MakeDevice) -> Device:
    """A forwarder whose two brokers are connected."""
    return make()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 16 MB or, without the right to mount one, files that cannot grow beyond 2 MB."""
    with small_disk_at(tmp_path) as disk:
        yield disk
