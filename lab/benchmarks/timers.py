"""`python -m lab.benchmarks.timers`: two days of presence in the simulator; writes build/bench/timers.json.

Devices send heartbeats at different intervals, and fall silent from time to time. The reconciler is off, so
that only timers report a silence, and AWS Lambda's bound of a chain of messages is in force.
"""

import gc
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from random import Random
from statistics import median
from typing import Final

from contract.loader import load_contract
from eventplane.envelope import parse_event
from eventplane.names import MONITOR, QUIET
from eventplane.presence import Line
from lab.benchmarks.results import Benchmark, Figure, none
from lab.histories.cloud import PLANE, CloudModel
from lab.histories.engine import Engine
from lab.histories.function import CHAIN_ENDED, FunctionModel
from lab.histories.search import GARBAGE, silence_logs
from lab.histories.wires import CurrentFaults
from lab.histories.wiring import LIMITS, Wiring
from lambdas.common.queue import Invocation, QueueMessage
from lambdas.common.queue_function import QueueReader
from parts.presence.timers import PUNCTUAL_MS
from tests.parts.presence.world import heartbeat, lifecycle

HOW = "virtual time: the functions as deployed in dev, queues and tables as models, the reconciler off"

INTERVALS_S: Final = (60, *[300] * 7, 1_800, 7_200)
"""Of ten devices: seven have the default, and the longest deadline is 36 of the timers' delays away."""

SILENCE_AFTER: Final = 40
"""Heartbeats between two silences, on the average."""

PUNCTUAL_S: Final = PUNCTUAL_MS / 1_000
MOST_AWAY_S: Final = 3_600
LEAST_AWAY: Final = 0.02
"""Of it: a device that comes back earlier than that need not be reported."""


@dataclass(slots=True)
class TimerTally:
    """The results of silences: how late each report was, seconds, and how many were `unreported` in time;
    `false` reports are about no silence.
    """

    silences: int = 0
    unreported: int = 0
    late_s: list[float] = field(default_factory=list)
    false: int = 0
    timers: int = 0
    stopped: int = 0


class TimedDevice:
    """Sends heartbeats from a random moment on; `due_ms` is when a silence is to be reported, until it is."""

    def __init__(self, cloud: CloudModel, name: str, interval_s: int, tally: TimerTally) -> None:
        self.due_ms: int | None = None
        self._cloud = cloud
        self._name = name
        self._interval_s = interval_s
        self._tally = tally
        self._beats = 0
        cloud.engine.after(interval_s * cloud.weather.share(), self._connect)

    def _connect(self) -> None:
        body = lifecycle(Line.CONNECTED, self._cloud.engine.now_ms, device=self._name)
        self._cloud.sqs.send_message(QueueUrl=self._cloud.lifecycle, MessageBody=body)
        self._beat()

    def _beat(self) -> None:
        engine, share = self._cloud.engine, self._cloud.weather.share
        self._beats += 1
        body = heartbeat(self._beats, device=self._name, interval_s=self._interval_s)
        self._cloud.sqs.send_message(QueueUrl=self._cloud.inboxes[f"{MONITOR}.inbox"], MessageBody=body)
        pause_s = self._interval_s * (0.98 + 0.04 * share())
        self.due_ms = None
        if share() < 1 / SILENCE_AFTER:
            quiet_s = self._interval_s * LIMITS.quiet_after_heartbeats
            self.due_ms = engine.now_ms + round(1_000 * quiet_s)
            pause_s = quiet_s + MOST_AWAY_S * max(LEAST_AWAY, share())
            engine.after(quiet_s + PUNCTUAL_S, self._look)
        engine.after(pause_s, self._beat)

    def _look(self) -> None:
        self._tally.silences += 1
        self._tally.unreported += self.due_ms is not None

    def hear(self, report: QueueMessage) -> None:
        """Note a report of silence."""
        if self.due_ms is None:
            self._tally.false += 1
        else:
            self._tally.late_s.append((report.sent_at_ms - self.due_ms) / 1_000)
            self.due_ms = None


def two_days(options: Namespace) -> Iterator[Figure]:
    """Simulate `options.devices` for `options.hours`."""
    silence_logs()
    gc.set_threshold(GARBAGE)
    engine, tally, devices, heard = Engine(), TimerTally(), dict[str, TimedDevice](), set[str]()
    cloud = CloudModel(engine, load_contract(), CurrentFaults(engine, Random(options.seed)), [])
    cloud.weather.paused.add("presence-reconciler")
    Wiring(cloud).start()

    def hear(messages: Sequence[QueueMessage], _: Invocation) -> frozenset[str]:
        for message in messages:
            event = parse_event(message.body)
            if event.type == QUIET and event.id not in heard:  # a copy has the same id
                heard.add(event.id)
                devices[str(event.attributes["subject"])].hear(message)
        return frozenset()

    # In place of the router of the monitor's outbox.
    FunctionModel(cloud, "hears", cloud.outboxes[MONITOR], lambda _: QueueReader(hear), PLANE.router)
    for number in range(options.devices):
        interval_s = INTERVALS_S[number % len(INTERVALS_S)]
        devices[f"home-{number}"] = TimedDevice(cloud, f"home-{number}", interval_s, tally)
    for hour in range(options.hours):
        with redirect_stdout(StringIO()):  # the functions' metrics
            engine.run(3_600.0 * (hour + 1))
        tally.stopped += sum(each.text == CHAIN_ENDED for each in engine.notes)
        tally.timers += sum(each.lane == "timers" for each in engine.notes)
        # Two days of them would fill the memory.
        for kept in (engine.notes, cloud.sqs.sent, cloud.sqs.taken):
            kept.clear()
    note = f"{options.hours} h of heartbeats, seed {options.seed}"
    yield Figure("devices", options.devices, "devices", note=note)
    yield Figure("timers that fired", tally.timers, "invocations")
    yield none("chains that were stopped", tally.stopped, "chains")
    yield Figure("silences", tally.silences, "silences")
    yield none(f"silences not reported within {PUNCTUAL_S:g} s", tally.unreported, "silences")
    yield none("silences reported that are none", tally.false, "reports")
    yield Figure("longest delay of a report", max(tally.late_s), "s", aim=PUNCTUAL_S, required=True)
    yield Figure("median delay of a report", median(tally.late_s), "s")


if __name__ == "__main__":
    sys.exit(
        Benchmark(
            name="timers",
            parts={"two days": two_days},
            clock=HOW,
            options={
                "--devices": {"type": int, "default": 1_000},
                "--hours": {"type": int, "default": 48},
                "--seed": {"type": int, "default": 0},
            },
        ).main()
    )
