"""What a router remembers. That its answers are right is tests/property/test_route_index.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pytest

from benchmarks import workload
from eventplane.attributes import AttributeValue
from eventplane.contract import Place, Route
from eventplane.envelope import Envelope
from eventplane.filters import All, Exact, Filter, Prefix
from eventplane.router import Router

CONTRACT = workload.contract(1)


def router_of(*filters: Filter) -> Router:
    routes = tuple(Route(f"r{at}", each, "desk.inbox", Place.CLOUD) for at, each in enumerate(filters))
    return Router(replace(CONTRACT, routes=routes), Place.CLOUD)


def event(**attributes: AttributeValue) -> Envelope:
    return Envelope({"id": "e", "type": "t", **attributes}, "{}")


def test_equal_values_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def matches(_filter: Filter, attributes: Mapping[str, AttributeValue]) -> bool:
        asked.append(attributes["id"])
        return True

    monkeypatch.setattr(Prefix, "matches", matches)
    router = router_of(All((Exact("type", "t"), Prefix("source", "/a"))))
    for number in range(5):
        assert len(router.route(event(id=str(number), source="/a", other=number))) == 1
    assert asked == ["0"]


def test_values_of_different_types_are_different() -> None:
    router = router_of(Exact("n", "1"), Exact("n", "true"))
    values: tuple[AttributeValue, ...] = (1, True, "1", "true")
    for _ in range(2):
        assert [[route.name for route in router.route(event(n=each))] for each in values] == [
            ["r0"],
            ["r1"],
            ["r0"],
            ["r1"],
        ]


def test_another_contract_has_a_memory_of_its_own() -> None:
    assert len(router_of(Exact("type", "t")).route(event())) == 1
    assert router_of(Exact("type", "other")).route(event()) == ()


def test_the_memory_is_bounded_in_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_ROUTINGS", 10)
    router = router_of(Prefix("source", "/a"))
    for number in range(1_000):
        router.route(event(source=f"/a/{number % 30}"))
        assert len(router._remembered) <= 10


def test_the_memory_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 256 * 2_000
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_BYTES", most)
    router = router_of(Prefix("source", "/a"))
    for number in range(1_000):
        router._paused = 0
        assert router.route(event(source=f"/a/{number}" + "x" * 1_000))
        assert len(router._remembered) * 1_000 <= router._bytes <= most
    assert len(router._remembered) > 100


def test_an_event_with_a_long_attribute_leaves_the_memory_alone() -> None:
    router = router_of(Prefix("source", "/a"))
    router.route(event(source="/a"))
    for number in range(100):
        router.route(event(source=f"/a/{number}" + "x" * 90_000))
    assert len(router._remembered) == 1


def test_a_memory_that_does_not_pay_is_left_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventplane.router.MAX_REMEMBERED_ROUTINGS", 10)
    router = router_of(Prefix("id", "e"))
    numbers = count()

    def route(times: int, id: str = "") -> None:
        for _ in range(times):
            assert router.route(event(id=id or f"e{next(numbers)}"))

    route(11)
    assert router._paused == 160
    route(80)
    assert (router._paused, len(router._remembered)) == (80, 1)
    route(81, "e")
    assert router._paused == 0
    # It pays again: more events find their routes than are added.
    for _ in range(15):
        route(1)
        route(3, "e")
    assert router._paused == 0
