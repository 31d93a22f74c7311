"""URIs and URI-references, as RFC 3986 has them."""

import pytest

from eventplane.attributes import is_uri, is_uri_reference

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
RELATIVE = ["/homes/1/voice", "//home-1/service", "a", "a/b:c", "./a:b", "?q", "#f", "/a//b", "%20", "//"]
NEITHER = [
    "",
    " ",
    "/a b",
    "/é",
    "/%zz",
    "/%4",
    "%",
    "1:2",
    ":a",
    "a_b:c",
    "/a#b#c",
    "/[",
    "/a]",
    "http://[::1",
    "http://::1]/",
    "http://[::g]/",
    "http://a[::1]/",
    "http://a:b:1/",
    "http://a:8x/",
    "http://a@b@c/",
    "a\n",
    '"a"',
    "<a>",
    "a\\b",
    "a^b",
    "{a}",
    "a|b",
    "`a`",
]


@pytest.mark.parametrize("value", ABSOLUTE)
def test_a_uri_is_a_reference_too(value: str) -> None:
    assert is_uri(value)
    assert is_uri_reference(value)


@pytest.mark.parametrize("value", RELATIVE)
def test_a_relative_reference_is_no_uri(value: str) -> None:
    assert is_uri_reference(value)
    assert not is_uri(value)


@pytest.mark.parametrize("value", NEITHER)
def test_what_the_grammar_does_not_have_is_neither(value: str) -> None:
    assert not is_uri_reference(value)
    assert not is_uri(value)


def test_a_fragment_belongs_to_a_reference_only() -> None:
    assert is_uri_reference("https://example.org/a?b#c")
    assert not is_uri("https://example.org/a?b#c")
    assert not is_uri("urn:a:b#")


def test_a_scheme_alone_locates_nothing() -> None:
    assert not is_uri("https:")
