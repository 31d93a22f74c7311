"""`python -m tests.lost_answers`: loses the answer of each AWS call of the product, one after the other.

Prints a line for each call site and writes build/chaos/lost-answers.json. Exit status 1 when one was not
tried, or ended otherwise than with its answer.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Final

import pytest

from benchmarks.results import Figure, write
from tests.lost_answers.plugin import LostAnswersPlugin, Tries
from tests.lost_answers.sites import ROOT, call_sites

_EVENTS: Final = ("eventplane_aws", "eventplane_client", "lambdas")
"""The packages whose calls an event waits for."""

_RECEIVE: Final = "receive_message"

_FOLDERS: Final = ("client", "contract", "glue_jobs", "lambdas", "operations", "stacks")

_LATE_S: Final = 5.0
_OPTIONS: Final = ("-m", "lost_answers", "-p", "no:schemathesis", "-q", "--tb=short", "--no-header")


def main(arguments: list[str]) -> int:
    """Try what `arguments` of pytest choose; without, everything."""
    plugin = LostAnswersPlugin()
    folders = arguments or [str(ROOT / "tests" / "unit" / each) for each in _FOLDERS]
    failed = pytest.main([*_OPTIONS, *folders], plugins=[plugin])
    found = {site: plugin.tries.get(site, Tries()) for site in call_sites()}
    for site, tries in found.items():
        late = f"{tries.late_s:.1f} s late" if tries.tried else "NOT TRIED"
        print(f"{tries.same:3} of {tries.tried:3} alike, {late:12} {site}")
    if arguments:
        return int(failed)
    tried = sum(bool(each.tried) for each in found.values())
    requests = sum(each.tried for each in found.values())
    late = {True: 0.0, False: 0.0}
    for site, each in found.items():
        if site.operation != _RECEIVE:
            waits = site.package in _EVENTS
            late[waits] = max(late[waits], each.late_s)
    figures = [
        Figure(
            "call sites tried",
            100 * tried / len(found),
            "%",
            100,
            required=True,
            note=f"of {len(found)}, by {requests} lost answers",
        ),
        Figure(
            "lost answers with the same end",
            100 * sum(each.same for each in found.values()) / requests,
            "%",
            100,
            required=True,
            note="the same outputs, and the same in AWS",
        ),
        Figure(
            "late, at most",
            late[True],
            "s",
            _LATE_S,
            required=True,
            note="functions and client; what a receive lost comes after its queue's visibility timeout",
        ),
        Figure("late, at most, of commands and jobs", late[False], "s", note="no event waits for them"),
    ]
    clock = "counted, as the clients' settings say; no time passes"
    sites = [{"site": str(site), **asdict(each), "tests": sorted(each.tests)} for site, each in found.items()]
    write("lost-answers", figures, "make lost-answers", clock, ROOT / "build" / "chaos", {"sites": sites})
    return int(failed or any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
