"""One router at its share of a core: how long its cold start takes, and how many events a second it routes.

It runs as a deployment bundles it, in a process of its own, against an AWS of this machine that answers after
10 ms. Lambda gives the init phase a whole vCPU whatever the memory, so the share begins with the first event.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import cold_start
from benchmarks.cloud.cpu_share import cpu_share, share_of
from benchmarks.cloud.events import event
from benchmarks.results import Figure
from eventplane.batch import pack_texts
from eventplane.ingest import IngestFrame, frame_text

BATCH: Final = 250
MESSAGES: Final = 10
AIMS: Final = {512: 500.0, 1_769: 2_000.0}
"""Events a second, by MiB."""

COLD_START_MS: Final = 700.0
ANSWER_S: Final = 0.010
"""How long a call of AWS takes: Amazon SQS answers in some 10 ms within a region."""

BY_CPU: Final = "by CPU time and the share alone: what it would be were nothing waited for"
"""For a machine that has other work as well: its clock then says little."""

_STARTS: Final = 5
_ROUTED_S: Final = 15.0

_CHILD: Final = """
import time; began = time.monotonic()
import importlib, json, os, sys
seconds, is_init_bound = float(sys.argv[1]), sys.argv[2] == "bound"
def bind():
    if "BENCH_PROCS" in os.environ:
        with open(os.environ["BENCH_PROCS"], "w") as procs: procs.write(str(os.getpid()))
if is_init_bound: bind()
handler = importlib.import_module("lambdas.router.handler")
initialized, cpu = time.monotonic(), time.process_time()
if not is_init_bound: bind()
class Context:
    aws_request_id = function_name = invoked_function_arn = "x"
    memory_limit_in_mb = 512
    def get_remaining_time_in_millis(self): return 900_000
first, rest = json.loads(sys.stdin.read())
number = 0
def route(event):
    global number
    for record in event["Records"]:
        number += 1
        record["messageId"] = str(number)
    answer = handler.handle(event, Context())
    assert answer == {"batchItemFailures": []}, answer
route(first)
answered, answered_cpu = time.monotonic(), time.process_time()
warm = time.monotonic()
for _ in range(20): route(first)
warm = (time.monotonic() - warm) / 20
batches, started, started_cpu = 0, time.monotonic(), time.process_time()
while time.monotonic() - started < seconds:
    route(rest); batches += 1
took, took_cpu = time.monotonic() - started, time.process_time() - started_cpu
told = [initialized - began, answered - initialized, batches, took, took_cpu, cpu, answered_cpu - cpu, warm]
print(json.dumps(told), file=sys.stderr)
"""


def figures() -> Iterator[Figure]:
    """Cold starts and rates at each memory."""
    packages = cold_start.installed_here()
    with tempfile.TemporaryDirectory() as directory, cold_start.aws(ANSWER_S) as url:
        code = cold_start.unpack("router", Path(directory))
        variables = cold_start.environment(code, packages, url)
        for memory in AIMS:
            share = share_of(memory)
            note = (
                f"{share:.2f} vCPU from the first event on, one before; without the start of Lambda's sandbox"
            )
            starts = [_run(variables, share, 0.0) for _ in range(_STARTS)]
            yield _start(f"router_{memory}_cold_start", starts, note, COLD_START_MS)
            cpu_ms = median(each.cold_cpu_ms for each in starts)
            yield Figure(f"router_{memory}_cold_start_cpu", cpu_ms, "ms", None, False, note=BY_CPU)
            bound = [_run(variables, share, 0.0, is_init_bound=True) for _ in range(_STARTS)]
            yield _start(f"router_{memory}_cold_start_bound", bound, f"{share:.2f} vCPU from the beginning")
            found = _run(variables, share, _ROUTED_S)
            events = found.batches * MESSAGES * BATCH
            of = f"{share:.2f} vCPU, {MESSAGES} messages of {BATCH} events, two deliveries an event"
            yield Figure(f"router_{memory}_events", events / found.took_s, "events/s", AIMS[memory], note=of)
            alone = "an invocation of one event, warm"
            yield Figure(f"router_{memory}_invocation", 1e3 * found.warm_s, "ms", None, False, note=alone)
            cpu = 1e3 * found.took_cpu_s / events
            yield Figure(f"router_{memory}_events_cpu", 1e3 * share / cpu, "events/s", note=BY_CPU)
            yield Figure(f"router_{memory}_cpu_event", cpu, "ms", None, False, note="CPU time of an event")


class _Run:
    """What a process reports: seconds until it is wired, to the first answer, of the batches after it."""

    def __init__(self, told: list[float], share: float, *, is_bound: bool, is_init_bound: bool) -> None:
        init_s, first_s, batches, self.took_s, self.took_cpu_s, init_cpu_s, first_cpu_s, self.warm_s = told
        self.batches = int(batches)
        if not is_bound:
            # It ran unthrottled: its CPU time is divided by the share.
            first_s += first_cpu_s / share - first_cpu_s
            self.took_s = max(self.took_s, self.took_cpu_s / share)
            init_s += init_cpu_s / share - init_cpu_s if is_init_bound else 0.0
        self.cold_ms = 1e3 * (init_s + first_s)
        self.cold_cpu_ms = 1e3 * (init_cpu_s + first_cpu_s / share)


def _run(variables: dict[str, str], share: float, seconds: float, *, is_init_bound: bool = False) -> _Run:
    with cpu_share(share) as procs:
        env = variables if procs is None else {**variables, "BENCH_PROCS": str(procs)}
        command = [sys.executable, "-S", "-c", _CHILD, str(seconds), "bound" if is_init_bound else "free"]
        done = subprocess.run(command, env=env, input=_events(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the router failed: {done.stderr[-2_000:]}")
    told = json.loads(done.stderr.splitlines()[-1])
    return _Run(told, share, is_bound=procs is not None, is_init_bound=is_init_bound)


def _start(name: str, runs: list[_Run], note: str, aim: float | None = None) -> Figure:
    return Figure(name, median(each.cold_ms for each in runs), "ms", aim, False, note=note)


def _events() -> str:
    """A first batch of one event, and a full one, as the function gets them."""
    first = [event("first").encode()]
    full = [
        pack_texts(event(f"{message}-{number}") for number in range(BATCH)) for message in range(MESSAGES)
    ]
    return json.dumps([{"Records": [_record(each) for each in payloads]} for payloads in (first, full)])


def _record(payload: bytes) -> dict[str, object]:
    body = frame_text(IngestFrame(payload, "devices/a/outbox", "a", "", 4_000_000_000_000))
    attributes = {"SentTimestamp": "4000000000000", "ApproximateReceiveCount": "1"}
    attributes["ApproximateFirstReceiveTimestamp"] = "4000000000000"
    return {"messageId": "m", "receiptHandle": "r", "body": body, "attributes": attributes}
