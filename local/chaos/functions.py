"""The processes in which the emulated cloud runs functions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from eventplane.resource_names import resource_name
from local.cloud import CloudEndpoint


def kill_functions(cloud: CloudEndpoint, *names: str) -> int:
    """End every process of the functions `names` with SIGKILL, in the midst of their work; how many."""
    killed = 0
    for process in list(_processes(cloud, {resource_name("local", name) for name in names})):
        try:
            os.kill(process, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue  # it has ended meanwhile
    return killed


def _processes(cloud: CloudEndpoint, functions: set[str]) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        variables = dict(each.partition("=")[::2] for each in text.split("\0"))
        if (
            variables.get("AWS_LAMBDA_FUNCTION_NAME") in functions
            and variables.get("AWS_ENDPOINT_URL") == cloud.url
        ):
            yield int(folder.name)
