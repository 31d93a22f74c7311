"""Values of attributes: URIs and URI-references (RFC 3986), the `traceparent` (W3C), and the quick checks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import (
    KNOWN,
    in_short,
    is_traceparent,
    is_uri,
    is_uri_reference,
    quick_check,
    value_problem,
)

ABSOLUTE = [
    "https://example.org",
    "https://user:pass@example.org:8443/a/b;c=1?x=/y?z/?",
    "http://[2001:db8::1]:80/",
    "http://[v1.fe:80]",
    "crn:eu:::device:device:TEST-DEVICE",
    "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
    "mailto:a@b.example",
    "file:///etc/hosts",
    "a:/%c3%A9",
    "a:?q",
]
# An absolute URI has no fragment.
RELATIVE = [
    "https://example.org/a?b#c",
    "urn:a:b#",
    "/homes/1/voice",
    "//home-1/service",
    "a",
    "a/b:c",
    "./a:b",
    "?q",
    "#f",
    "/a//b",
    "%20",
    "//",
]
NEITHER = [
    *("", " ", "/a b", "a\n", "/é", "/%zz", "/%4", "%", "1:2", ":a", "a_b:c", "/a#b#c", "/[", "/a]"),
    *("http://[::1", "http://::1]/", "http://[::g]/", "http://a[::1]/", "http://a:b:1/", "http://a:8x/"),
    *("http://a@b@c/", '"a"', "<a>", "a\\b", "a^b", "{a}", "a|b", "`a`"),
]


@pytest.mark.parametrize(
    ("value", "is_absolute", "is_reference"),
    [
        *((each, True, True) for each in ABSOLUTE),
        *((each, False, True) for each in RELATIVE),
        *((each, False, False) for each in NEITHER),
        ("https:", False, True),  # a scheme alone
    ],
)
def test_kinds_of_uris(value: str, is_absolute: bool, is_reference: bool) -> None:
    assert is_uri(value) is is_absolute
    assert is_uri_reference(value) is is_reference


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"01-{TRACE}-{SPAN}-00", True),
        (f"fe-{TRACE}-{SPAN}-00-", True),
        (f"cc-{TRACE}-{SPAN}-00-what the future brings", True),
        ("", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f"00-{TRACE}-{SPAN}-1", False),
        (f"00-{TRACE}-{SPAN}-01-", False),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"01-{TRACE}-{SPAN}-01more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"0-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"01-{'0' * 32}-{SPAN}-01", False),
        (f"01-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE[1:]}-{SPAN}-01", False),
        (f"00_{TRACE}_{SPAN}_01", False),
        (f" 00-{TRACE}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}-01\n", False),
    ],
)
def test_a_traceparent_is_of_version_00_or_a_later_one(value: str, is_valid: bool) -> None:
    assert is_traceparent(value) is is_valid


@pytest.mark.parametrize("value", [f"00-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-{'x' * 90_000}"])
def test_a_traceparent_in_short_names_the_same_span(value: str) -> None:
    short = in_short(value)
    assert is_traceparent(short)
    assert (len(short), short) == (55, value[:55])


NEARLY_TIMES = st.from_regex(
    r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\.[0-9]{3}Z", fullmatch=True
)


@given(
    st.sampled_from([*sorted(KNOWN), "x"]),
    NEARLY_TIMES
    | st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), max_size=5)
    | st.integers(-1, 30)
    | st.sampled_from([True, False, None, 1.5, 2**31, "1.0", "a/b", "best_effort", f"00-{TRACE}-{SPAN}-01"]),
)
def test_a_value_that_passes_the_quick_check_is_valid(name: str, value: object) -> None:
    try:
        passes = quick_check(name)(value)
    except TypeError:
        return
    assert not passes or value_problem(name, value) is None
