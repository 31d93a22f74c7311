"""The share of a core that Lambda gives a function by its memory, enforced on a process of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VCPU_MIB: Final = 1_769
"""MiB at which a function has one vCPU (AWS Lambda guide, "Configure Lambda function memory")."""

_PERIOD_US: Final = 20_000
_ROOT: Final = Path("/sys/fs/cgroup")
_NAME: Final = "eventplane-bench"


def share_of(memory_mib: int) -> float:
    """vCPUs of a function with `memory_mib`."""
    return memory_mib / VCPU_MIB


@contextmanager
def cpu_share(share: float) -> Iterator[Path | None]:
    """Yield the file that takes the ids of processes that get no more than `share` of a core together.

    It is of a control group that is gone at the end, as its processes have to be. None where this process
    cannot make one (root can): what is measured then has to be divided by `share`.
    """
    folder, limits = _group(share)
    try:
        folder.mkdir()
        for name, value in limits.items():
            (folder / name).write_text(value)
    except OSError:
        if folder.is_dir():
            folder.rmdir()
        yield None
        return
    try:
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def _group(share: float) -> tuple[Path, dict[str, str]]:
    """The folder of a new control group, and its settings, by the version of control groups."""
    quota = str(round(share * _PERIOD_US))
    name = f"{_NAME}-{os.getpid()}"
    if (_ROOT / "cpu").is_dir():
        settings = {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota}
        return _ROOT / "cpu" / name, settings
    return _ROOT / name, {"cpu.max": f"{quota} {_PERIOD_US}"}
