"""How fast CESQL is: `python -m benchmarks.cesql` writes build/bench/cesql.json. The call is part of it."""

from __future__ import annotations

from functools import partial

from benchmarks.results import Figure, seconds, together, write
from eventplane.cesql import parse
from eventplane.cesql.compilation import compile_filter
from eventplane.cesql.parser import parse_tree

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
    compiled, walked = (
        each * 1e6
        for each in together([partial(expression.matches, EVENT), partial(expression.evaluate, EVENT)])
    )
    return Figure(
        f"cesql_{name}",
        compiled,
        "us",
        AIMS_US.get(name),
        higher_is_better=False,
        peer="tree walk",
        peer_value=walked,
        note=f"{1e6 / compiled:,.0f} evaluations/s; {text}",
    )


def preparation(name: str) -> list[Figure]:
    """The time to parse FILTERS[`name`], and to compile it."""
    text = FILTERS[name]
    expression = parse(text)
    compiling = partial(compile_filter, expression.tree, expression.functions)
    return [
        Figure(f"cesql_{name}_parse", seconds(partial(parse_tree, text)) * 1e6, "us", higher_is_better=False),
        Figure(f"cesql_{name}_compile", seconds(compiling) * 1e6, "us", higher_is_better=False),
    ]


def main() -> None:
    """Measure, write, print."""
    figures = [each for name in FILTERS for each in (evaluation(name), *preparation(name))]
    write("cesql", figures, "python -m benchmarks.cesql")


if __name__ == "__main__":
    main()
