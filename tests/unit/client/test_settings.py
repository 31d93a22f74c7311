"""Every setting and argument has a range, and what is out of it is refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eventplane.settings import Range
from eventplane_client import ClientSettings, Mode, connect
from eventplane_client.errors import ClientSettingsError
from eventplane_client.memory import RANGES as PLANE_RANGES
from eventplane_client.memory import MemoryPlane
from eventplane_client.settings import ARGUMENTS, PREFIX, RANGES, WORDS
from tests.unit.client.worlds import event

pytestmark = pytest.mark.source("C5")

NEEDED = {"participant": "desk", "transport": "memory:ranges"}


def beyond(accepted: Range) -> list[Any]:
    """What no setting of the range accepts."""
    return [accepted.low - 1, accepted.high * 2 + 1, math.nan, math.inf, True, "", "many", *odd(accepted)]


def odd(accepted: Range) -> list[float]:
    return [accepted.low + 0.5] if accepted.is_whole else []


CASES = [(name, value) for name, accepted in RANGES.items() for value in beyond(accepted)]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_number_out_of_its_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ClientSettingsError, match="give") as wrong:
        ClientSettings(**NEEDED, **{name: value})
    assert wrong.value.setting == name


@pytest.mark.parametrize(("name", "value"), [each for each in CASES if each[1] != ""])
def test_so_it_is_in_the_environment(name: str, value: Any) -> None:
    with pytest.raises(ClientSettingsError) as wrong:
        ClientSettings.read(environment(**{name: str(value)}))
    assert wrong.value.setting == name


@pytest.mark.parametrize("name", RANGES)
def test_both_ends_of_a_range_are_accepted(name: str) -> None:
    for value in (RANGES[name].low, RANGES[name].high):
        assert getattr(ClientSettings(**NEEDED, **{name: value}), name) == value
        assert getattr(ClientSettings.read(environment(**{name: str(value)})), name) == value


@pytest.mark.parametrize("name", WORDS)
def test_an_unknown_word_is_refused(name: str) -> None:
    for make in (
        lambda: ClientSettings(**NEEDED, **{name: "sometimes"}),
        lambda: ClientSettings.read(environment(**{name: "sometimes"})),
    ):
        with pytest.raises(ClientSettingsError, match="use one of") as wrong:
            make()
        assert wrong.value.setting == name


def test_an_empty_variable_is_none() -> None:
    settings = ClientSettings.read(environment(window="", mode="", gap_timeout_s=""))
    assert settings == ClientSettings(**NEEDED)
    assert settings.mode is Mode.EXACTLY_ONCE


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_needed_is_not_empty(name: str) -> None:
    with pytest.raises(ClientSettingsError, match=f"{PREFIX}{name.upper()}") as wrong:
        ClientSettings(**{**NEEDED, name: ""})
    assert wrong.value.setting == name


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, accepted in PLANE_RANGES.items() for value in beyond(accepted)],
)
def test_a_plane_in_memory_has_ranges_too(name: str, value: Any) -> None:
    with pytest.raises(ClientSettingsError) as wrong:
        MemoryPlane(**{name: value})
    assert wrong.value.setting == name


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, accepted in ARGUMENTS.items() for value in beyond(accepted)]
)
def test_so_have_the_arguments_of_calls(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"most": 1, "timeout_s": 0, name: value}
    with connect(ClientSettings(**NEEDED)) as client, client.subscribe({"exact": {"type": "t"}}) as inbox:
        for call in (inbox.get_batch, inbox.receive_batch):
            with pytest.raises(ClientSettingsError) as wrong:
                call(**arguments)
            assert wrong.value.setting == name
        if name == "timeout_s":
            for send in (client.put, client.request):
                with pytest.raises(ClientSettingsError):
                    send(event(type="t"), value)


def environment(**variables: str) -> dict[str, str]:
    return {PREFIX + name.upper(): value for name, value in {**NEEDED, **variables}.items()}
