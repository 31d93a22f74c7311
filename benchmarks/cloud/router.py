"""One router: what its start computes, and how fast it is at its share of a core.

It runs as a deployment bundles it, against an AWS of this machine that answers after 10 ms. Lambda
gives the init phase a whole vCPU whatever the memory, so the share begins with the first event. On Lambda one
has to add the start of the runtime and the network.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cloud.plane import event
from benchmarks.processes import ControlGroup
from benchmarks.results import Figure
from benchmarks.router_process import Run, deployed, messages, run
from eventplane.batch import pack_texts

VCPU_MIB: Final = 1_769
"""MiB at which a function has one vCPU (AWS Lambda guide, "Configure Lambda function memory")."""

BATCH: Final = 250
MESSAGES: Final = 10
AIMS: Final = {512: 500.0, VCPU_MIB: 2_000.0}
"""Events a second, by MiB."""

COLD_START_MS: Final = 700.0
CPU_MS: Final = 120
"""Of a router's start: how long it may compute."""
ANSWER_S: Final = 0.010
"""How long a call of AWS takes: Amazon SQS answers in some 10 ms within a region."""

_STARTS: Final = 5
_REPEATS: Final = 15
_ROUTED_S: Final = 15.0


def share_of(memory_mib: int) -> float:
    """vCPUs of a function with `memory_mib`."""
    return memory_mib / VCPU_MIB


def router(_: Namespace) -> Iterator[Figure]:
    """The start, then cold starts and rates at each memory."""
    with tempfile.TemporaryDirectory() as folder, deployed(Path(folder), ANSWER_S) as variables:
        fresh = [run(variables) for _ in range(_REPEATS + 1)][1:]
        note = "CPU time of a fresh process to the answer to its first event, median"
        yield Figure("router_all", median(each.cpu_ms for each in fresh), "ms", CPU_MS, note=note)
        yield Figure("router_memory", median(each.peak_mib for each in fresh), "MiB")
        for memory, aim in AIMS.items():
            share = share_of(memory)
            starts = [_throttled(variables, share) for _ in range(_STARTS)]
            found = _throttled(variables, share, _ROUTED_S)
            start_ms = 1e3 * median(each.init_s + each.first_s for each in starts)
            name, cores = f"router_{memory}", f"{share:.2f} vCPU"
            note = f"{cores} from the first event on, one before; without the start of Lambda's sandbox"
            yield Figure(f"{name}_cold_start", start_ms, "ms", COLD_START_MS, note=note)
            events = found.batches * MESSAGES * BATCH
            note = f"{cores}, {MESSAGES} messages of {BATCH} events, two deliveries an event"
            yield Figure(f"{name}_events", events / found.took_s, "events/s", aim, note=note)
            note = "an invocation of one event, warm"
            yield Figure(f"{name}_invocation", 1e3 * found.warm_s, "ms", note=note)
            cpu_ms = 1e3 * found.took_cpu_s / events
            yield Figure(f"{name}_cpu_event", cpu_ms, "ms", note="CPU time of an event")


def _throttled(variables: dict[str, str], share: float, seconds: float = 0.0) -> Run:
    """A process at its share of a core from the first event on, which goes on with full batches if asked."""
    with ControlGroup.cpu(share) as group:
        bound = {"BENCH_GROUP": str(group.members)} if group.applies else {}
        found = run(variables | bound, rest=_full() if seconds else None, seconds=seconds)
    if group.applies:
        return found
    # It ran unthrottled: its CPU time is divided by the share.
    first_s = found.first_s + found.first_cpu_s / share - found.first_cpu_s
    took_s = max(found.took_s, found.took_cpu_s / share)
    return replace(found, first_s=first_s, took_s=took_s)


def _full() -> dict[str, object]:
    packs = (
        pack_texts(event(f"{message}-{number}") for number in range(BATCH)) for message in range(MESSAGES)
    )
    return messages(list(packs))
