"""`python -m lab.histories`: exit status 0 for no findings, 1 for findings, 2 for wrong arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from html import escape
from io import StringIO
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from time import monotonic
from typing import Final

from lab.benchmarks.results import Figure, write
from lab.histories.history import History
from lab.histories.oracles import OracleFinding, judged
from lab.histories.search import (
    findings_of,
    minimized,
    quieten,
    shipped,
    silence_logs,
    size_of,
    story_of,
    told_all,
)
from lab.histories.story import DRILLED, HEAVY, LIGHT, Story, StorySize
from parts.simulate.page import lanes
from parts.simulate.timeline import Note

_STYLE: Final = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #1b1b1b; background: #fff }
svg { width: 100%; height: auto } .lane { stroke: #d5d5d5 } .name { font-size: 12px }
.mark { fill: #2b5c8a } .fault { fill: #c0182b }
td, th { text-align: left; padding: .1rem .8rem .1rem 0; vertical-align: top }
tr.fault td { color: #a3101f } caption { text-align: left; font-weight: 600; padding: .6rem 0 }
"""


def page(story: Story, notes: Sequence[Note], findings: Sequence[OracleFinding]) -> str:
    """Return the page of a history as HTML."""
    rows = "".join(
        f"<tr{' class=fault' if each.is_fault else ''}><td>{each.at_s:.3f}</td><td>{escape(each.lane)}</td>"
        f"<td>{escape(each.text)}</td></tr>"
        for each in notes
    )
    said = "".join(
        f"<li><strong>{escape(each.kind)}</strong>: {escape(each.detail)}</li>" for each in findings
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>A history</title>'
        f"<style>{_STYLE}</style>"
        f"<h1>A history of {story.homes} home(s), {len(story.decisions)} decisions</h1>"
        f"<h2>What is wrong</h2><ul>{said or '<li>Nothing.</li>'}</ul>"
        f"{lanes(notes)}"
        "<table><caption>What happened</caption><tr><th>Second</th><th>Who</th><th>What</th></tr>"
        f"{rows}</table></html>\n"
    )


OUTPUT = Path("build/chaos")
BATCH = 10
"""How many stories a worker runs before it reports."""

MINIMIZING_S = 120.0
CLOCK = "virtual time; rates by CPU time"


def main() -> int:
    """Run stories until the time or the seeds are over, or run one."""
    arguments = _arguments()
    silence_logs()
    if arguments.story is not None:
        return _one(Story.read(arguments.story.read_text("utf-8")), arguments.trace)
    if arguments.seed is not None:
        return _one(story_of(arguments.seed), arguments.trace)
    return _many(arguments)


def _one(story: Story, is_traced: bool) -> int:
    with redirect_stdout(StringIO()):  # the functions print their metrics
        history = History(story, shipped()).run()
    findings = judged(history)
    if is_traced:
        for note in history.engine.notes:
            print(f"{note.at_s:10.3f} {'!' if note.is_fault else ' '} {note.lane:28} {note.text}")
    _keep("history", story, history, findings)
    for each in findings:
        print(f"{each.kind}: {each.detail}")
    print(f"{len(findings)} finding(s); the page is {OUTPUT / 'history.html'}")
    return 1 if findings else 0


def _keep(name: str, story: Story, history: History, findings: Sequence[OracleFinding]) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / f"{name}.json").write_text(story.json + "\n", "utf-8")
    (OUTPUT / f"{name}.html").write_text(page(story, history.engine.notes, findings), "utf-8")


def _many(arguments: argparse.Namespace) -> int:
    began = monotonic()
    times: dict[StorySize, list[float]] = {each: [] for each in (LIGHT, DRILLED, HEAVY)}
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    first: dict[str, int] = {}
    left = _batches(arguments.first, arguments.seeds)
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, get_context("spawn"), quieten) as pool:
        running = {pool.submit(told_all, batch) for batch in islice(left, 2 * workers)}
        while running:
            done = next(as_completed(running))
            running.discard(done)
            for seed, each in done.result():
                times[size_of(seed)].append(each.took_s)
                faults.update(each.faults)
                for kind in sorted({finding.kind for finding in each.findings}):
                    kinds[kind] += 1
                    first[kind] = min(seed, first.get(kind, seed))
            is_time = arguments.seeds or monotonic() - began < arguments.seconds
            if is_time and (batch := next(left, None)) is not None:
                running.add(pool.submit(told_all, batch))
    took_s = monotonic() - began
    number = sum(map(len, times.values()))
    for kind, found in kinds.most_common():
        _report(kind, found, first[kind])
    _write(times, workers, kinds, faults)
    print(
        f"{number} histories in {took_s:.0f} s, {sum(faults.values())} faults, {len(kinds)} kinds of findings"
    )
    return 1 if kinds else 0


def _batches(first: int, number: int) -> Iterator[range]:
    """Cut a `number` of seeds from the `first` on into batches; 0: without end."""
    for start in range(first, first + number, BATCH) if number else count(first, BATCH):
        yield range(start, min(start + BATCH, first + number) if number else start + BATCH)


def _report(kind: str, found: int, seed: int) -> None:
    """Print how often a kind was found, and keep the smallest story that shows it."""
    until = monotonic() + MINIMIZING_S
    with redirect_stdout(StringIO()):
        story = minimized(story_of(seed), kind, shipped(), lambda: monotonic() < until)
        history = History(story, shipped())
        findings = findings_of(history)
    name = "history-" + "-".join(kind.split())
    _keep(name, story, history, findings)
    print(
        f"{kind}: {found}, first of seed {seed}; {len(story.decisions)} decision(s) in {OUTPUT / name}.json"
    )
    for each in findings:
        if each.kind == kind:
            print(f"  {each.detail}")


def _write(
    times: Mapping[StorySize, Sequence[float]], workers: int, kinds: Counter[str], faults: Counter[str]
) -> None:
    said = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
    found = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
    figures = [
        Figure("histories", sum(map(len, times.values())), "histories", note=f"faults: {said}"),
        *(
            Figure(
                f"{name} histories",
                60 * workers / mean(times[size]),
                "histories/min",
                aim,
                note=f"on {workers} cores; {size.homes} home(s), {size.events} events, "
                f"{size.faults} faults, and what subscribers and operators do"
                f"{', then a drill' if size.is_drilled else ''}",
            )
            for name, size, aim in (
                ("light", LIGHT, 1_000),
                ("heavy", HEAVY, 300),
                ("drilled", DRILLED, None),
            )
            if times[size]
        ),
        Figure("kinds of findings", len(kinds), "kinds", 0, note=found),
    ]
    command = f"python -m lab.histories {' '.join(sys.argv[1:])}"
    write("histories", figures, command, CLOCK, OUTPUT)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.histories", description="Simulates the plane and checks its promises."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run new stories")
    parser.add_argument("--seeds", type=int, default=0, help="how many stories to run, instead of --seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run the story of this seed only")
    parser.add_argument("--story", type=Path, help="run the story in this file only")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
