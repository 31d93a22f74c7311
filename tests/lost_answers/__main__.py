"""`python -m tests.lost_answers`: lose the answer of each AWS call of the product, one after the other.

Prints a line for each call site and writes build/chaos/lost-answers.json. Exit status 1 when a call site was
not tried, ended differently than with its answer, or delayed an event by more than 5 s.
"""

import sys
from collections.abc import Iterable
from typing import Final

import pytest

from lab.benchmarks.results import Figure, write
from tests.lost_answers.plugin import LostAnswersPlugin, Tries
from tests.lost_answers.sites import ROOT, CallSite, call_sites

_EVENTS: Final = ("eventplane_aws", "eventplane_client", "lambdas")
"""The packages whose calls an event waits for."""

_UNIT: Final = ("client", "contract", "glue_jobs", "lambdas", "operations", "stacks")
_FOLDERS: Final = ("parts", *(f"unit/{each}" for each in _UNIT))
_OPTIONS: Final = ("-m", "lost_answers", "-p", "no:schemathesis", "-q", "--tb=short", "--maxfail=20")
_LATE_S: Final = 5.0


def main(arguments: list[str]) -> int:
    """Try the tests that `arguments` of pytest choose; without arguments, all of them."""
    plugin = LostAnswersPlugin()
    folders = arguments or [str(ROOT / "tests" / each) for each in _FOLDERS]
    failed = pytest.main([*_OPTIONS, *folders], plugins=[plugin])
    found = {site: plugin.tries.get(site, Tries()) for site in call_sites()}
    for site, tries in found.items():
        late = f"{tries.late_s:.1f} s late" if tries.tried else "NOT TRIED"
        print(f"{tries.same:3} of {tries.tried:3} alike, {late:12} {site}")
    if arguments:
        return int(failed)
    requests = sum(each.tried for each in found.values())
    tried = 100 * sum(bool(each.tried) for each in found.values()) / len(found)
    same = 100 * sum(each.same for each in found.values()) / requests
    waiting = {site for site in found if site.package in _EVENTS}

    def late_s(sites: Iterable[CallSite]) -> float:
        return max(found[site].late_s for site in sites)

    figures = [
        Figure("call sites tried", tried, "%", 100, note=f"of {len(found)}, by {requests} lost answers"),
        Figure("lost answers with the same end", same, "%", 100, note="the same outputs and state"),
        Figure("late, at most", late_s(waiting), "s", _LATE_S, note="functions and client, no long poll"),
        Figure("late, commands and jobs", late_s({*found} - waiting), "s"),
    ]
    clock = "counted, as the clients' settings say; no time passes"
    write("lost-answers", figures, "make lost-answers", clock, ROOT / "build" / "chaos")
    return int(failed or any(each.met is False for each in figures[:3]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
