"""The conformance cases of CESQL v1.0.0, read from the shared folder: none is part of this project."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventplane.cesql import CesqlParseError, parse

CHECKOUT = Path(__file__).parents[4]
CASES = Path(os.environ.get("EVENTPLANE_SHARED", CHECKOUT.parent / "shared")) / "conformance" / "cesql_tck"
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "b"}
TOTAL = 275
"""Cases in the folder. Fewer would mean that they are not read."""


class _Loader(yaml.SafeLoader):
    """Timestamps stay the strings that an event has."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def cases() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.yaml")):
        suite = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  # a SafeLoader
        for number, case in enumerate(suite["tests"]):
            yield pytest.param(case, id=f"{path.stem}-{number}-{case['name']}")


FOUND = list(cases())


def test_the_cases_are_there() -> None:
    if FOUND or os.environ.get("CI") == "true":
        assert len(FOUND) == TOTAL, f"set EVENTPLANE_SHARED to the folder that holds {CASES.parent.name}/"
    else:
        pytest.skip("the conformance cases are not on this machine; EVENTPLANE_SHARED names their folder")


@pytest.mark.source("P1", "P-W7")
@pytest.mark.skipif(not FOUND, reason="the conformance cases are not on this machine")
@pytest.mark.parametrize("case", FOUND)
def test_case(case: dict[str, Any]) -> None:
    attributes = {**EVENT, **case.get("event", {}), **case.get("eventOverrides", {})}
    text = str(case["expression"])
    if case.get("error") == "parse":
        with pytest.raises(CesqlParseError):
            parse(text)
        return
    expression = parse(text)
    result = expression.evaluate(attributes)
    expected_errors = {case["error"]} if "error" in case else set()
    assert {error.kind for error in result.errors} == expected_errors
    if "result" in case:
        assert result.value == case["result"]
        assert type(result.value) is type(case["result"])
    assert expression.matches(attributes) is result.passes
