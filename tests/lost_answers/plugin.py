"""Runs tests marked with `lost_answers` once, and once more for each of their requests, with its answer lost.

A test is its own oracle: with an answer lost it has to end as it does without, and leave the same in AWS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.lost_answers.losses import Key, LostAnswers
from tests.lost_answers.sites import CallSite
from tests.lost_answers.state import state_of


@dataclass
class Tries:
    """What was seen of a call site: `tried` requests of which `same` ended alike, `late_s` at most."""

    tried: int = 0
    same: int = 0
    late_s: float = 0.0
    tests: set[str] = field(default_factory=set)


class LostAnswersPlugin:
    """`tries` are by call site."""

    def __init__(self) -> None:
        self.tries: dict[CallSite, Tries] = {}
        self._lost: Key | None = None
        self._seen = LostAnswers()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._seen = LostAnswers(self._lost)
        with self._seen.active():
            return (yield)

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        self._lost = None
        is_passed, expected = self._run(item, "")
        for site, requests in self._seen.asked.items() if is_passed else ():
            for number in range(requests):
                self._lost = site, number
                is_passed, _ = self._run(item, f" [answer {number} lost: {site}]", expected)
                tries = self.tries.setdefault(site, Tries())
                tries.tried += 1
                tries.same += is_passed
                tries.late_s = max(tries.late_s, self._seen.late_s)
                tries.tests.add(item.nodeid)
        return True

    def _run(self, item: Any, what: str, expected: object = None) -> tuple[bool, object]:
        """Run `item` as it would be run alone; return whether it passed, and what it left."""
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=None)
        left = state_of(self._seen.fakes.values())
        for report in reports:
            if report.when == "call" and report.passed and self._lost:
                if not self._seen.is_lost:
                    report.outcome, report.longrepr = "failed", "the request was not made again"
                elif left != expected:
                    report.outcome = "failed"
                    report.longrepr = f"left {difference(expected, left)}"
            report.nodeid += what
            item.ihook.pytest_runtest_logreport(report=report)
        return all(each.passed for each in reports), left


def difference(expected: Any, left: Any) -> str:
    more, less = Counter(left) - Counter(expected), Counter(expected) - Counter(left)
    return "\n".join([*(f"+ {each}" for each in more), *(f"- {each}" for each in less)])
