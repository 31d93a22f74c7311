"""A disk of a few megabytes that really is full when it is said to be."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from local.chaos import machine
from local.chaos.disk import DISK, small_disk


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_what_was_on_it_can_be_looked_at_afterwards(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), small_disk(tmp_path / "disk", 1) as disk:
        if disk is None:
            pytest.skip("this machine forbids mounts")
        (disk.path / "spool.db").write_bytes(b"what is missing")
        disk.fill()
        raise KeyboardInterrupt
    assert (tmp_path / "spool.db").read_bytes() == b"what is missing"
    assert not (tmp_path / "ballast").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_the_disk_of_a_killed_run_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = tmp_path / "image.pyz"
    image.touch()
    (tmp_path / ".made-from").touch()
    monkeypatch.setattr(machine, "USERLAND", tmp_path)
    monkeypatch.setattr(machine, "IMAGE", image)
    folder = machine.ArmUserland().folder(tmp_path, "home-1")
    left = folder / DISK
    left.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(left)], check=False).returncode:
        pytest.skip("this machine forbids mounts")
    assert [each.name for each in machine.ArmUserland().folder(tmp_path, "home-1").iterdir()] == ["image.pyz"]
