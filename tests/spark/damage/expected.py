"""What an audit must say of a damaged archive, and what it must not say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from typing import Any, Final

from tests.spark.damage.archive import Archive

PROVEN, OPEN, INCOMPLETE, BROKEN = "proven", "open", "incomplete", "broken"
_WORST_FIRST: Final = (BROKEN, INCOMPLETE, OPEN, PROVEN)

ARCHIVE: Final = ("archive",)
"""The hops of a finding about the archive itself."""

NOTHING_LOST: Final = {
    "lost": 0,
    "to_replay": 0,
    "unexplained": 0,
    "misrouted": 0,
    "pending": 0,
    "duplicated": 0,
}
"""Totals of an archive in which no hop failed."""

_SHOWN: Final = 10
"""Most findings that are printed of those that nobody expected."""


@dataclass(frozen=True)
class Fact:
    """A finding of `kind` at one of `hops` (empty: at any), `count` times (None: once or more).

    Its `members` are these, its `archive_file` is one of `files` (empty: any), its detail has `said` in it.
    """

    kind: str
    hops: tuple[str, ...] = ()
    members: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    said: str = ""
    count: int | None = 1

    def fits(self, finding: Mapping[str, Any]) -> bool:
        """Return whether a finding of the report is this one."""
        return (
            finding["kind"] == self.kind
            and (not self.hops or finding["hop"] in self.hops)
            and all(finding.get(name) == value for name, value in self.members.items())
            and (not self.files or str(finding.get("archive_file")).rstrip("/") in self.files)
            and self.said in str(finding.get("detail"))
        )


@dataclass(frozen=True)
class Expected:
    """One of `verdicts`, the findings `facts`, and no others but those that `may` be there.

    A finding beyond these accuses an innocent. `totals` are exact, `least` are totals that are at least so
    large, `quarantined` the numbers of rows that fit. `devices` has the words that fit for each device whose
    coverage is not `attested`; `unseen` counts numbers that nobody saw or states (None: any).
    `arguments` are the audit's.
    """

    verdicts: tuple[str, ...]
    facts: tuple[Fact, ...] = ()
    may: tuple[Fact, ...] = ()
    totals: Mapping[str, int] = field(default_factory=lambda: dict(NOTHING_LOST))
    least: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unseen: int | None = None
    quarantined: tuple[int, ...] = (0,)
    arguments: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def and_(self, other: Expected) -> Expected:
        """Return what holds of both damages in one archive, where they do not touch the same events."""
        pairs = {(one, two) for one in self.verdicts for two in other.verdicts}
        unseen = None if None in (self.unseen, other.unseen) else (self.unseen or 0) + (other.unseen or 0)
        return Expected(
            tuple({min(pair, key=_WORST_FIRST.index) for pair in pairs}),
            self.facts + other.facts,
            self.may + other.may,
            _sums(self.totals, other.totals),
            _sums(self.least, other.least),
            {
                name: (*self.devices.get(name, ()), *other.devices.get(name, ()))
                for name in (*self.devices, *other.devices)
            },
            unseen,
            tuple(one + two for one in self.quarantined for two in other.quarantined),
            self.arguments + other.arguments,
        )


def all_of(expectations: Iterable[Expected]) -> Expected:
    """Return what holds of several damages in one archive."""
    return reduce(Expected.and_, expectations, Expected((PROVEN,), totals={}, unseen=0))


KINDS: Final[dict[str, Callable[[Archive], Expected]]] = {}
"""The kinds of damage by name, as the modules add them (`kinds` has them all)."""


def kind(change: Callable[[Archive], Expected]) -> Callable[[Archive], Expected]:
    """Add a kind of damage by the name of its function, whose docstring says what it does."""
    KINDS[change.__name__] = change
    return change


def in_each(hours: dict[str, int]) -> Callable[[Callable[..., Expected]], Callable[..., Expected]]:
    """Add a kind of damage for each folder, to an object of an hour of its own."""

    def add(change: Callable[..., Expected]) -> Callable[..., Expected]:
        for folder, hour in hours.items():
            KINDS[f"{change.__name__}_{folder}"] = partial(change, folder=folder, hour=hour)
        return change

    return add


def problems(expected: Expected, report: Mapping[str, Any]) -> list[str]:
    """Return how the report differs from what is expected; empty where it does not."""
    found = []
    if report["verdict"] not in expected.verdicts:
        found.append(f"verdict {report['verdict']}, expected {expected.verdicts}: {report.get('reasons')}")
    if (report["verdict"] == PROVEN) == bool(report.get("reasons")):
        found.append(f"verdict {report['verdict']}, reasons {report.get('reasons')}")
    found += _totals(expected, report["totals"])
    found += _findings(expected, report["findings"])
    return found + (_coverage(expected, report) if "coverage" in report else ["the report has no coverage"])


def _totals(expected: Expected, totals: Mapping[str, Any]) -> list[str]:
    wanted: dict[str, tuple[tuple[int, ...], int]] = {
        name: ((count,), totals.get(name, 0)) for name, count in expected.totals.items()
    }
    wanted["quarantined"] = expected.quarantined, totals.get("quarantined", 0)
    found = [
        f"totals.{name} is {value}, expected {counts}"
        for name, (counts, value) in wanted.items()
        if value not in counts
    ]
    return found + [
        f"totals.{name} is {totals.get(name, 0)}, expected at least {count}"
        for name, count in expected.least.items()
        if totals.get(name, 0) < count
    ]


def _findings(expected: Expected, findings: Sequence[Mapping[str, Any]]) -> list[str]:
    left, wrong = list(findings), []
    for fact in expected.facts:
        fitting = [each for each in left if fact.fits(each)]
        taken = fitting[: fact.count]
        if not taken or len(taken) != (fact.count or len(taken)):
            wrong.append(f"{len(taken)} findings like {fact}")
        left = [each for each in left if each not in taken]
    left = [each for each in left if not any(fact.fits(each) for fact in expected.may)]
    wrong += [f"accused: {_short(each)}" for each in left[:_SHOWN]]
    return wrong + ([f"accused: {len(left) - _SHOWN} more"] if len(left) > _SHOWN else [])


def _coverage(expected: Expected, report: Mapping[str, Any]) -> list[str]:
    coverage = report["coverage"]
    standing = {row["client_id"]: row["coverage"] for row in report["devices"]}
    wrong = [
        f"coverage of {name} is {standing.get(name)}, expected {words}"
        for name, words in expected.devices.items()
        if standing.get(name) not in words
    ]
    wrong += [
        f"coverage of {name} is {word}"
        for name, word in standing.items()
        if name not in expected.devices and word != "attested"
    ]
    unseen = coverage["events"]["nothing"]
    if expected.unseen is not None and unseen != expected.unseen:
        wrong.append(f"{unseen} numbers that nobody saw or states, expected {expected.unseen}")
    if expected.unseen == 0 and not expected.devices and coverage["share"] != 1:
        wrong.append(f"coverage is {coverage['share']}: {coverage['events']}")
    return wrong


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _short(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in finding.items() if value is not None}
