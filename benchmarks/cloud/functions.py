"""What the functions used: by the REPORT lines in their logs, and by their processes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.edge.processes import peak_rss_mib
from local.cloud import CloudEndpoint

PREFIX: Final = "eventplane-local-"
_REPORT: Final = re.compile(r"REPORT .*?\tDuration: ([\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Invocations:
    """Of one function: how often it ran, and for how many milliseconds in all."""

    number: int
    total_ms: float

    def since(self, earlier: Invocations) -> Invocations:
        """Without the `earlier` ones."""
        return Invocations(self.number - earlier.number, self.total_ms - earlier.total_ms)


def invocations(cloud: CloudEndpoint) -> dict[str, Invocations]:
    """All so far, by function without the environment's prefix."""
    logs = cloud.client("logs")
    found = {}
    for group in logs.describe_log_groups(logGroupNamePrefix=f"/aws/lambda/{PREFIX}")["logGroups"]:
        name = group["logGroupName"]
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=name, filterPattern="REPORT")
        lines = (_REPORT.search(each["message"]) for page in pages for each in page["events"])
        times = [float(line[1]) for line in lines if line]
        found[name.rpartition(PREFIX)[2]] = Invocations(len(times), sum(times))
    return found


def peak_memory_mib(cloud: CloudEndpoint) -> dict[str, float]:
    """The most resident memory of any process of each function that runs in this `cloud`."""
    peaks: dict[str, float] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = dict(each.partition("=")[::2] for each in _environment(process))
            function = variables.get("AWS_LAMBDA_FUNCTION_NAME", "")
            if function.startswith(PREFIX) and variables.get("AWS_ENDPOINT_URL") == cloud.url:
                name = function.removeprefix(PREFIX)
                peaks[name] = max(peaks.get(name, 0.0), peak_rss_mib(int(process.name)))
        except (OSError, StopIteration):
            continue  # it has ended meanwhile
    return peaks


def _environment(process: Path) -> list[str]:
    return (process / "environ").read_bytes().decode(errors="replace").split("\0")
