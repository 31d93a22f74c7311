"""How fast CESQL is: one JSON object on standard output. Run it with `python -m benchmarks.cesql`.

Each figure is the best of several rounds on one core: what disturbs a round only ever makes it slower.
The call itself is part of it.
"""

from __future__ import annotations

import json
import platform
import timeit
from collections.abc import Callable
from functools import partial

from eventplane.cesql import parse
from eventplane.cesql.compilation import compile_filter
from eventplane.cesql.parser import parse_tree

FILTERS = {
    "three_terms": "type = 'org.example.alarm.v1' AND severitynumber >= 17 AND subject LIKE '/kitchen/%'",
    "one_equality": "type = 'org.example.alarm.v1'",
    "in_of_five": "type IN ('a.b', 'c.d', 'e.f', 'g.h', 'org.example.alarm.v1')",
    "functions": "LENGTH(subject) > 5 AND UPPER(LEFT(source, 6)) = '/HOMES'",
}
EVENT: dict[str, str | int | bool] = {
    "specversion": "1.0",
    "id": "8d3f7a1e-55f1-4b7c-9d55-0a4e5d3a2b1c",
    "source": "/homes/0017/voice",
    "type": "org.example.alarm.v1",
    "subject": "/kitchen/microphone",
    "time": "2026-01-01T00:00:00.000Z",
    "severitynumber": 21,
}
ROUNDS = 7


def nanoseconds(action: Callable[[], object], times: int) -> float:
    """Time of one `action`, ns."""
    return min(timeit.repeat(action, number=times, repeat=ROUNDS)) / times * 1e9


def main() -> None:
    """Measure and print."""
    figures: dict[str, object] = {}
    for name, text in FILTERS.items():
        expression = parse(text)
        if not expression.matches(EVENT):
            raise SystemExit(f"{name} must match the event, or less than all of it is measured")
        matches = expression.matches
        compiling = partial(compile_filter, expression.tree, expression.functions)
        compiled = nanoseconds(partial(matches, EVENT), 500_000)
        walked = nanoseconds(partial(expression.evaluate, EVENT), 20_000)
        figures[name] = {
            "filter": text,
            "matches_ns": round(compiled, 1),
            "matches_per_second": round(1e9 / compiled),
            "tree_walk_ns": round(walked, 1),
            "tree_walk_per_second": round(1e9 / walked),
            "parse_us": round(nanoseconds(partial(parse_tree, text), 500) / 1e3, 1),
            "compile_us": round(nanoseconds(compiling, 200) / 1e3, 1),
        }
    print(json.dumps({"python": platform.python_version(), "filters": figures}, indent=2))


if __name__ == "__main__":
    main()
