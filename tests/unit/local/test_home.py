"""What a home of a local run consists of: a spool that may be unreadable, a disk that is really full."""

import os
from pathlib import Path
from typing import Any

import pytest

from local.home import Home
from local.machine import small_disk


@pytest.fixture
def home(tmp_path: Path) -> Home:
    nothing: Any = None
    return Home("home-1", nothing, nothing, nothing, tmp_path / "spool.db", tmp_path / "c.json", None, None)


def test_a_spool_that_is_not_made_yet_has_nothing(home: Home) -> None:
    assert (home.backlog, home.unreported) == (0, 0)


def test_a_spool_that_cannot_be_read_is_not_taken_for_an_empty_one(home: Home) -> None:
    home.spool.write_bytes(b"no database at all" * 1_000)
    assert home.backlog > 0
    assert home.unreported > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_takes_not_one_block_more_until_it_is_emptied(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        if disk is None:
            pytest.skip("this machine forbids mounts")
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (disk.path / "more").write_bytes(b"x")
        disk.empty()
        disk.empty()
        (disk.path / "more").write_bytes(b"x")
    assert not (tmp_path / "disk").is_mount()
