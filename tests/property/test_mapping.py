"""Topic patterns against a broker's own matching, pointers against a walk, messages against any bytes."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from eventplane.contract.mapping import (
    TopicMapping,
    convert,
    find,
    overlap,
    pointer_problem,
    problems,
    topic_problem,
)
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from parts.simulate.broker import matches

words = st.sampled_from(["a", "b", "eventplane", "\u00fc", "$x", ""])
levels = st.one_of(words, st.sampled_from(["+", "#", "{x}", "{y}", "{", "a+"]))
patterns = st.lists(levels, min_size=1, max_size=4).map("/".join)
literals = st.sampled_from(["a", "b", "\u00fc"])
# Made to be good: most of `patterns` are not, and drawing until one is takes too long.
good_patterns = st.tuples(
    literals,
    st.lists(literals | st.sampled_from(["+", "{x}", "{y}"]), max_size=3, unique=True),
    st.sampled_from([[], ["#"]]),
).map(lambda each: "/".join([each[0], *each[1], *each[2]]))
topics = st.lists(st.sampled_from(["a", "b", "c", "\u00fc", ""]), min_size=1, max_size=5).map("/".join)
names = st.text("a/~0- ", max_size=3)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)
payloads = st.binary(max_size=60) | values.map(lambda each: json.dumps(each).encode())


def mapping(topic: str, **settings: Any) -> TopicMapping:
    return TopicMapping("zigbee", "m", topic, "t", **settings)


@given(good_patterns, topics)
def test_a_pattern_matches_what_the_broker_sends(pattern: str, topic: str) -> None:
    it = mapping(pattern)
    named = it.levels(topic)
    assert (named is not None) == matches(it.filter, topic)
    for name, level in (named or {}).items():
        assert topic.split("/")[pattern.split("/").index(f"{{{name}}}")] == level


@given(good_patterns, good_patterns, topics)
@example("a/#", "a/b/{x}", "a/b/c")
def test_patterns_without_overlap_share_no_topic(one: str, other: str, topic: str) -> None:
    shared = mapping(one).levels(topic) is not None and mapping(other).levels(topic) is not None
    assert overlap(one, other) or not shared
    assert overlap(one, one)


@given(patterns)
def test_no_pattern_reaches_the_plane(pattern: str) -> None:
    if topic_problem(pattern):
        return
    assert pattern.split("/")[0] not in ("eventplane", "+", "#", "")
    for own in ("eventplane/a/outbox", "eventplane/a/inbox/receipts", "/eventplane/a/outbox", "$SYS/broker"):
        assert mapping(pattern).levels(own) is None


def places(value: Any) -> Iterator[tuple[str, Any]]:
    """Each pointer into a value, and what is there."""
    yield "", value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        token = str(name).replace("~", "~0").replace("/", "~1")
        for pointer, found in places(each):
            yield f"/{token}{pointer}", found


@given(values)
def test_each_place_has_a_pointer(value: Any) -> None:
    for pointer, expected in places(value):
        assert pointer_problem(pointer) is None
        assert find(value, pointer) is expected


@given(st.text("/~01a", max_size=6), values)
def test_any_pointer_is_refused_or_leads_somewhere_or_nowhere(pointer: str, value: Any) -> None:
    if pointer_problem(pointer) is None:
        there = dict(places(value)).get(pointer)
        assert find(value, pointer) is there


@given(payloads, st.text(max_size=8), st.booleans())
def test_any_message_is_an_event_or_refused(payload: bytes, level: str, is_text: bool) -> None:
    it = mapping(
        "a/{x}",
        payload="text" if is_text else "json",
        id="/id",
        attributes={"subject": "{x}", "extra": {"pointer": ""}},
        data={"all": {"pointer": ""}, "level": "{x}"},
    )
    assert not list(problems(it))
    with suppress(EnvelopeError, UnicodeEncodeError):
        level.encode()
        said = convert(it, f"a/{level}", {"x": level}, payload)
        assert said is not None
        event = parse_event(said.event("home-1", "2024-05-01T12:00:00Z", said.derived_id(1, 0)))
        assert event.source.startswith("/devices/home-1/zigbee/a/")
        assert event.type == "t"
