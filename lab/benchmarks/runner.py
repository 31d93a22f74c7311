"""Runs a benchmark: `python -m lab.benchmarks.NAME [PART ...] [--OPTION VALUE]`: build/bench/NAME.json."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.benchmarks.results import FOLDER, Figure, machine_load, write

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
