"""The processes in which the emulated cloud runs functions."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from eventplane.resource_names import resource_name
from local.cloud import CloudEndpoint

_END_S = 5.0
"""How long a process may take to end after SIGKILL, before we go on without it."""


def kill_functions(cloud: CloudEndpoint, *names: str) -> int:
    """End every process of the functions `names` with SIGKILL, in the midst of their work; how many.

    It returns when they have ended: an event that is sent while a process is about to end would go to it,
    and come again only after the visibility timeout of its queue.
    """
    ending = []
    for process in list(_processes(cloud, {resource_name("local", name) for name in names})):
        try:
            ending.append(os.pidfd_open(process))
        except ProcessLookupError:
            continue  # it has ended meanwhile
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(ending[-1], signal.SIGKILL)
    for handle in ending:
        select.select([handle], [], [], _END_S)
        os.close(handle)
    return len(ending)


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
