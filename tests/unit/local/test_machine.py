"""A disk of a few megabytes that really is full when it is said to be."""

import os
from pathlib import Path

import pytest

from local.machine import small_disk


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
