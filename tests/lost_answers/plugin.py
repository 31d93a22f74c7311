"""Runs tests marked with `lost_answers` once, and once more for each of their requests, with its answer lost.

A test is its own oracle: with an answer lost it has to end as it does without, and leave the same in AWS.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.lost_answers.losses import Key, LostAnswers
from tests.lost_answers.sites import CallSite
from tests.lost_answers.state import state_of


@dataclass
class Tries:
    """Results of a call site: requests `tried`, those that ended the `same` way, longest delay `late_s`."""

    tried: int = 0
    same: int = 0
    late_s: float = 0.0


class LostAnswersPlugin:
    """`tries` are by call site."""

    def __init__(self) -> None:
        self.tries = defaultdict[CallSite, Tries](Tries)
        self._lost: tuple[Key, ...] = ()
        self._seen = LostAnswers()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._seen = LostAnswers(*self._lost)
        with self._seen.active():
            return (yield)

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        is_passed, left = self._run(item, nextitem)
        if is_passed:
            self._try(item, nextitem, self._seen.asked, left)
        return True

    def _try(
        self, item: Any, nextitem: Any, asked: Mapping[CallSite, int], expected: Any, *lost: Key
    ) -> None:
        """Lose each answer of `asked`, besides those `lost`; then of requests that only the loss causes."""
        for key in [(site, number) for site, requests in asked.items() for number in range(requests)]:
            if item.session.shouldfail:
                return
            is_passed, _ = self._run(item, nextitem, *lost, key, expected=expected)
            tries, seen = self.tries[key[0]], self._seen
            tries.tried += 1
            tries.same += is_passed
            if not lost:  # with two lost answers the delay is not this call site's alone
                tries.late_s = max(tries.late_s, seen.late_s)
                new = {site: requests for site, requests in seen.asked.items() if site not in asked}
                self._try(item, nextitem, new, expected, key)

    def _run(self, item: Any, nextitem: Any, *lost: Key, expected: Any = None) -> tuple[bool, Any]:
        """Run `item` as it would be run alone; return whether it passed, and what it left."""
        self._lost = lost
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        left = state_of(self._seen.fakes.values())
        for report in reports:
            if report.when == "call" and report.passed and lost:
                if not self._seen.is_done:
                    report.outcome, report.longrepr = "failed", "the request was not made again"
                elif left != expected:
                    report.outcome, report.longrepr = "failed", f"left {_difference(expected, left)}"
            report.nodeid += "".join(f" [answer {number} lost: {site}]" for site, number in lost)
            item.ihook.pytest_runtest_logreport(report=report)
        return all(each.passed for each in reports), left


def _difference(expected: Any, left: Any) -> str:
    more, less = Counter(left) - Counter(expected), Counter(expected) - Counter(left)
    return "\n".join([*(f"+ {each}" for each in more), *(f"- {each}" for each in less)])
