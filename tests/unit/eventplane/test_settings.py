"""Settings of functions: what the stacks write is what a function reads; what is wrong is named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.settings import Settings, SettingsError, written
from eventplane.traffic import Quota


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner(Settings):
    endpoint: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    source: str
    wait_s: int
    colour: Colour
    queues: Mapping[str, str]
    urls: tuple[str, ...]
    ports: tuple[int, ...]
    quota: Quota | None = None
    inner: Inner | None = None
    table: str | None = None


texts = st.text(min_size=1)
numbers = st.integers(0, 10**9)
positive = st.integers(1, 10**9)
outers = st.builds(
    Outer,
    source=texts,
    wait_s=numbers,
    colour=st.sampled_from(Colour),
    queues=st.dictionaries(texts, st.text(st.characters(exclude_characters="*"))),
    urls=st.lists(st.text(), min_size=1).map(tuple),
    ports=st.lists(numbers, min_size=1).map(tuple),
    quota=st.none() | st.builds(Quota, st.integers(1, 86_400), positive, positive, positive),
    inner=st.none() | st.builds(Inner, texts, st.floats(0, 1)),
    table=st.none() | texts,
)


@given(outers)
def test_a_function_reads_what_the_stacks_write(settings: Outer) -> None:
    assert Outer.read(settings.variables()) == settings


def test_variables_are_named_after_the_fields_that_are_set() -> None:
    settings = Outer(
        source="device.outbox", wait_s=30, colour=Colour.RED, queues={"a": "b"}, urls=("u",), ports=(443,)
    )
    assert settings.variables() == {
        "EVENTPLANE_SOURCE": "device.outbox",
        "EVENTPLANE_WAIT_S": "30",
        "EVENTPLANE_COLOUR": "red",
        "EVENTPLANE_QUEUES": '{"b": ["a"]}',
        "EVENTPLANE_URLS": '["u"]',
        "EVENTPLANE_PORTS": "[443]",
    }


def test_the_urls_of_queues_share_what_they_have_in_common() -> None:
    queues = {
        "bell.inbox": "https://sqs/1/plane-bell-inbox",
        "desk.inbox": "https://sqs/1/plane-desk-inbox.fifo",
        "bell-desk.replies": "https://sqs/1/plane-bell-desk-replies",
        "elsewhere": "nats://host",
    }
    assert json.loads(written(queues)) == {
        "https://sqs/1/plane-*": ["bell.inbox", "bell-desk.replies"],
        "https://sqs/1/plane-*.fifo": ["desk.inbox"],
        "nats://host": ["elsewhere"],
    }
    with pytest.raises(ValueError, match="is the name in a pattern"):
        written({"a": "https://sqs/*"})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("SOURCE", ["", None]),
        ("WAIT_S", ["", "-1", "1.5", "x", "\u0661", "true", '"x"', "9" * 5_000]),
        ("COLOUR", ["", "blue"]),
        ("QUEUES", ["", "{", "[1]", '{"a":1}', '"a"', '{"b":"a"}', '{"b":[]}', '{"b":[1]}']),
        ("URLS", ["", "[", "[]", "{}", "[1]"]),
        ("PORTS", ["[-1]", '["x"]', "443"]),
        ("QUOTA", ["{}", "7", '{"window_s":0,"frames":1,"events":1,"bytes":1}']),
        ("SHARE", ["", "NaN", "true", '"1"', "x"]),
    ],
)
def test_a_malformed_setting_is_refused_by_name(field: str, values: list[str | None]) -> None:
    good = Outer(
        source="s",
        wait_s=1,
        colour=Colour.RED,
        queues={},
        urls=("u",),
        ports=(1,),
        quota=Quota(1, 1, 1, 1),
        inner=Inner("e", 0.5),
    ).variables()
    for value in values:
        given = {**good, f"EVENTPLANE_{field}": value}
        environment = {name: each for name, each in given.items() if each is not None}
        with pytest.raises(SettingsError, match=f"EVENTPLANE_{field} is (not set|malformed)") as caught:
            Outer.read(environment)
        assert caught.value.variable == f"EVENTPLANE_{field}"
