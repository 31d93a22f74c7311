"""How fast CESQL is, calls included: `python -m benchmarks.cesql` writes build/bench/cesql.json."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial

from benchmarks.results import Figure, together
from benchmarks.runner import Benchmark
from eventplane.cesql import parse

FILTERS = {
    "three_terms": "type = 'org.example.alarm.v1' AND severitynumber >= 17 AND subject LIKE '/kitchen/%'",
    "one_equality": "type = 'org.example.alarm.v1'",
    "in_of_five": "type IN ('a.b', 'c.d', 'e.f', 'g.h', 'org.example.alarm.v1')",
    "functions": "LENGTH(subject) > 5 AND UPPER(LEFT(source, 6)) = '/HOMES'",
}
AIMS_US = {"three_terms": 0.3}
EVENT: dict[str, str | int | bool] = {
    "specversion": "1.0",
    "id": "8d3f7a1e-55f1-4b7c-9d55-0a4e5d3a2b1c",
    "source": "/homes/0017/voice",
    "type": "org.example.alarm.v1",
    "subject": "/kitchen/microphone",
    "time": "2026-01-01T00:00:00.000Z",
    "severitynumber": 21,
}


def evaluation(name: str) -> Figure:
    """The time of one evaluation of FILTERS[`name`], compiled, with the walk over the tree as its peer."""
    text = FILTERS[name]
    expression = parse(text)
    if not expression.matches(EVENT):
        raise SystemExit(f"{name} must match the event, or less than all of it is measured")
    actions = [partial(expression.matches, EVENT), partial(expression.evaluate, EVENT)]
    compiled, walked = (each * 1e6 for each in together(actions))
    return Figure(
        f"cesql_{name}",
        compiled,
        "us",
        AIMS_US.get(name),
        peer="tree walk",
        peer_value=walked,
        note=f"{1e6 / compiled:,.0f} evaluations/s; {text}",
    )


def _evaluations(_: Namespace) -> Iterator[Figure]:
    return map(evaluation, FILTERS)


if __name__ == "__main__":
    sys.exit(Benchmark("cesql", {"evaluations": _evaluations}).main())
