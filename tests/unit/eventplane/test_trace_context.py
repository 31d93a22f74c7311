"""The `traceparent` of W3C Trace Context."""

import pytest

from eventplane.attributes import in_short, is_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "value",
    [
        f"00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-ff",
        f"01-{TRACE}-{SPAN}-00",
        f"fe-{TRACE}-{SPAN}-00-",
        f"cc-{TRACE}-{SPAN}-00-what the future brings",
    ],
)
def test_version_00_and_what_may_follow_it_pass(value: str) -> None:
    assert is_traceparent(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01-more",
        f"01-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{'0' * 32}-{SPAN}-01",
        f"01-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_anything_else_is_none(value: str) -> None:
    assert not is_traceparent(value)


@pytest.mark.parametrize("value", [f"00-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-{'x' * 90_000}"])
def test_in_short_it_is_still_one_and_names_the_same_span(value: str) -> None:
    short = in_short(value)
    assert is_traceparent(short)
    assert (len(short), short) == (55, value[:55])
