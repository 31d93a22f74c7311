"""Faults of the product, planted one at a time: how many the histories find, and after how many of them.

`python -m lab.histories.mutants`: exit status 0 if as many as required were found, else 1. What is found of
the product itself in the same story does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.benchmarks.results import Figure, write

ROOT: Final = Path(__file__).parents[2]
REQUIRED: Final = 40
SEEDS: Final = 300
PRODUCT: Final = "the product as it is"
MUTANT_S: Final = 900
"""CPU seconds for the histories of one mutant; one that takes longer hangs, which is a finding as well."""


class Mutant(NamedTuple):
    """A `fault`: in the file at `path` the text `old`, which it has once, is `new`."""

    fault: str
    path: str
    old: str
    new: str


Findings = dict[str, list[str]]
"""The kinds of findings by the seed of their story."""


_DATA: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
MUTANTS: Final = tuple(Mutant(**each) for each in _DATA["mutants"])


class Planted(SourceFileLoader):
    """Imports the product with the fault: what is compiled of its file is not what is in it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        super().__init__(mutant.path.removesuffix(".py").replace("/", "."), str(ROOT / mutant.path))

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002 - the module of this loader
        text = self.get_data(self.path).decode().replace(self._mutant.old, self._mutant.new)
        return self.source_to_code(text.encode(), self.path)


def run(seeds: range, known: Findings, *, is_planted: bool) -> Findings:
    """Run stories; return what is found that is not `known`, of a planted fault the first of it."""
    # Only now, so that the fault is in what is imported.
    from lab.histories.search import quieten, shipped, story_of, told

    quieten()
    found: Findings = {}
    for seed in map(str, seeds):
        kinds = {each.kind for each in told(story_of(int(seed)), shipped()).findings}
        if kinds := kinds.difference(known.get(seed, ())):
            found[seed] = sorted(kinds)
            if is_planted:
                break
    return found


def tried(seeds: range, known: Findings, fault: str) -> Findings:
    """Return what a process of its own finds in stories of the product with a `fault`; "": as it is."""
    command = [sys.executable, "-m", "lab.histories.mutants", "--plant", fault]
    command += ["--first", str(seeds.start), "--seeds", str(len(seeds))]
    ran = subprocess.run(command, input=json.dumps(known), capture_output=True, text=True, cwd=ROOT)
    if ran.returncode == -signal.SIGXCPU:
        return {str(seeds.stop - 1): [f"takes more than {MUTANT_S} s"]}
    if ran.returncode:
        raise RuntimeError(f"{fault}: {ran.stderr[-2_000:]}")
    found: Findings = json.loads(ran.stdout)
    print(f"{fault or PRODUCT}: {found or 'nothing found'}", flush=True)
    return found


def main() -> int:
    """Try the product as it is, and with each fault."""
    parser = argparse.ArgumentParser(prog="python -m lab.histories.mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="most stories for each fault")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="a part of the name of the faults to try")
    parser.add_argument("--plant", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.plant is not None:
        return _in_this_process(arguments.plant, seeds)
    chosen = [each.fault for each in MUTANTS if arguments.only in each.fault]
    known = tried(seeds, {}, "")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(chosen, pool.map(partial(tried, seeds, known), chosen), strict=True))
    first = {
        fault: (int(seed) - seeds.start + 1, kinds)
        for fault, each in results.items()
        for seed, kinds in each.items()
    }
    missed = ", ".join(each for each in chosen if each not in first)
    note = f"of {len(chosen)}, in up to {len(seeds)} histories; not found: {missed or 'none'}"
    figures = [
        Figure("found", len(first), "faults", min(REQUIRED, len(chosen)), note=note),
        *(
            Figure(fault, number, "histories", note=", ".join(kinds))
            for fault, (number, kinds) in first.items()
        ),
    ]
    command = f"python -m lab.histories.mutants {' '.join(sys.argv[1:])}"
    write("histories_mutants", figures, command, "histories up to the first finding", ROOT / "build/chaos")
    return 0 if figures[0].met else 1


def _in_this_process(fault: str, seeds: range) -> int:
    """Run the stories with `fault`, and print the findings; standard input has those of the product."""
    resource.setrlimit(resource.RLIMIT_CPU, (MUTANT_S, MUTANT_S + 1))
    sys.meta_path[:0] = [Planted(each) for each in MUTANTS if each.fault == fault]
    print(json.dumps(run(seeds, json.load(sys.stdin), is_planted=bool(fault))), file=sys.__stdout__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
