"""Benchmarks: how their figures are timed, and `python -m lab.benchmarks.NAME [PART ...] [--OPTION VALUE]`.

A run writes build/bench/NAME.json.
"""

import json
import os
import platform
import sys
import timeit
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, process_time, sleep
from typing import Any

FOLDER = Path(__file__).parents[2] / "build" / "bench"
RUNS = 7
"""How often each thing is measured; the median counts, so that one disturbed run does not."""

_TIMES = {"us", "ms", "s", "min", "ms/1000", "CPU-s", "CPU-s/M", "times", "round trips"}
_SIZES = {"KiB", "MiB", "B/B", "B/event", "modules", "lines", "resources", "functions", "copies"}
LOWER_IS_BETTER = {*_TIMES, *_SIZES, "USD/M", "USD/month"}
"""Units of time, size and money. Of rates, shares and counts more is better, unless the aim is none."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured `value`, the `aim` it has, and what a `peer` reached in the same run.

    `higher_is_better` decides what meets the aim and what beats the peer; None: the unit or aim.
    `required`: the benchmark fails if the aim is missed.
    """

    name: str
    value: float
    unit: str
    aim: float | None = None
    higher_is_better: bool | None = None
    peer: str | None = None
    peer_value: float | None = None
    note: str = ""
    required: bool = False

    @property
    def met(self) -> bool | None:
        """True if the aim is reached; None without one."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self._is_higher_better else self.value <= self.aim

    @property
    def ratio(self) -> float | None:
        """Return how many times better it is than the peer; None without one, and for nothing at all."""
        if self.peer_value is None:
            return None
        better, worse = (self.value, self.peer_value)[:: 1 if self._is_higher_better else -1]
        return round(better / worse, 2) if worse else None

    @property
    def _is_higher_better(self) -> bool:
        by_unit = self.aim != 0 and self.unit not in LOWER_IS_BETTER
        return by_unit if self.higher_is_better is None else self.higher_is_better

    def document(self) -> dict[str, object]:
        """The figure as it stands in the file."""
        fields = asdict(self)
        del fields["higher_is_better"], fields["required"]
        fields = {name: _rounded(each) for name, each in fields.items()}
        return {**fields, "met": self.met, "ratio": self.ratio}


def none(name: str, value: int, unit: str, note: str = "") -> Figure:
    """Return the figure of what there must not be; the benchmark fails if there is any."""
    return Figure(name, value, unit, aim=0, note=note, required=True)


def seconds(action: Callable[[], object]) -> float:
    """The median time of one `action`, of RUNS runs that take about 0.2 s each."""
    return together([action])[0]


def together(actions: Sequence[Callable[[], object]], for_s: float = 0.2) -> list[float]:
    """The same for several, a run of each in turn: what slows the machine down for a while slows them all."""
    times = [_repetitions(each, for_s) for each in actions]
    runs = [
        [_timed(each, number) / number for each, number in zip(actions, times, strict=True)]
        for _ in range(RUNS)
    ]
    return [median(each) for each in zip(*runs, strict=True)]


def _repetitions(action: Callable[[], object], for_s: float) -> int:
    once = max(_timed(action, 1), 1e-8)  # this one warms up as well
    if once < for_s / 10:
        few = int(for_s / 100 / once) + 1
        once = _timed(action, few) / few
    return max(1, int(for_s / once))


def _timed(action: Callable[[], object], number: int) -> float:
    # CPU time: what else runs on the machine is not the code's fault.
    return timeit.timeit(action, number=number, timer=process_time)


def paced(per_s: float, number: int) -> Iterator[int]:
    """Yield 0 to `number` at an even pace; what comes late is made up for."""
    due = monotonic()
    for each in range(number):
        sleep(max(0.0, due - monotonic()))
        yield each
        due += 1 / per_s


def percentiles(
    name: str,
    times: Sequence[float],
    unit: str,
    note: str = "",
    peer: str | None = None,
    peer_times: Sequence[float] = (),
) -> Iterator[Figure]:
    """The median and the 99th percentile of `times`; `name` has {} where "p50" or "p99" belongs."""
    cuts = quantiles(times, n=100, method="inclusive")
    theirs = quantiles(peer_times, n=100, method="inclusive") if peer_times else None
    for at in (50, 99):
        yield Figure(
            name.format(f"p{at}"),
            cuts[at - 1],
            unit,
            peer=peer,
            peer_value=theirs[at - 1] if theirs else None,
            note=note,
        )


def machine_load() -> Figure:
    """Return the load by others of the machine: call it before the benchmark begins."""
    return Figure("machine_load", os.getloadavg()[0], "processes", note="before it began")


def write(
    name: str,
    figures: Sequence[Figure],
    command: str,
    clock: str = "CPU time of one process, median of runs",
    folder: Path = FOLDER,
    more: Mapping[str, object] | None = None,
) -> None:
    """Write `name`.json in `folder` and print its figures; `clock` says what was timed with what.

    The file has `more` beside the figures.
    """
    document = {
        "figures": [each.document() for each in figures],
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "clock": clock,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        **(more or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    for each in figures:
        sys.stdout.write(_line(each))


def _line(figure: Figure) -> str:
    aim = "" if figure.met is None else f"  aim {figure.aim:,g}: {'met' if figure.met else 'NOT met'}"
    peer = "" if figure.ratio is None else f"  {figure.ratio:,g} x {figure.peer}"
    return f"{figure.name:34}{figure.value:>14,.6g} {figure.unit:9}{aim}{peer}\n"


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


Part = Callable[[Namespace], Iterable[Figure]]
"""Measures one thing, by the options of the command line."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The source of `name`.json; a module ends with a call of `main`.

    `parts` are measured in their order, all unless some are named. `clock` is the clock by which times were
    taken. `options` are arguments of `ArgumentParser.add_argument`, by the option's name. `notes_load`: the
    load of the machine before it began is a figure as well.
    """

    name: str
    parts: Mapping[str, Part]
    clock: str = "CPU time of one process, median of runs"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes_load: bool = False

    def main(self, arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
        """Measure, write and print; return 1 if a required aim was missed."""
        command = _command()
        parser = ArgumentParser(prog=command)
        for option, settings in self.options.items():
            parser.add_argument(option, **settings)
        if len(self.parts) > 1:
            parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(self.parts)}")
        given = sys.argv[1:] if arguments is None else arguments
        options = parser.parse_args(given)
        names = vars(options).get("parts") or list(self.parts)
        if unknown := set(names) - set(self.parts):
            parser.error(f"unknown part {', '.join(sorted(unknown))}; name some of {', '.join(self.parts)}")
        figures = [machine_load()] if self.notes_load else []
        for name in names:
            figures += self.parts[name](options)
        write(self.name, figures, " ".join([command, *given]), self.clock, folder)
        return int(any(each.required and not each.met for each in figures))


def _command() -> str:
    """The command that started this process, without its arguments."""
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name.removesuffix('.__main__') if spec else '?'}"
