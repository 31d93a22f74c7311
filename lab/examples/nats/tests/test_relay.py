"""Test the relay from NATS to SQS without a server."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_EVENT_BYTES
from eventplane.reasons import Reason
from eventplane_nats.relay import sqs_text

NOT_OF_SQS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that SQS refuses (SendMessage, API reference)."""

PIECES = [
    *(b"x", b"\\", b'"', b"\n", b"\0", b"\x1f", b"\x7f", b"\xfc", b"\xc3", b"\xbc", b"\xed\xa0\x80"),
    *(each.encode() for each in ("\\u0001", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\U0001f514")),
]


def event(note: bytes) -> bytes:
    return b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"%b"}' % note


def data(body: bytes | str) -> object:
    """The payload of an event, or that it is none."""
    try:
        return parse_event(body).data()
    except EnvelopeError:
        return EnvelopeError


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join))
@example("M\u00fcller".encode("latin-1"))
@example(b"line\x0bline")
@example("C:\\\u00fcbung".encode("latin-1"))  # with a backslash in front, what is escaped would be JSON
@example("\\\ufffe".encode())
@example("\\\\\ufffe".encode())
def test_the_relay_changes_no_event_and_makes_none_of_what_is_malformed(note: bytes) -> None:
    for body in (event(note), note):
        text = sqs_text(body)
        assert data(text) == data(body)
        assert text
        assert not NOT_OF_SQS.search(text)


@pytest.mark.parametrize("end", [b"x", "\u00fc".encode(), b"\xfc", b"\0", "\uffff".encode()])
def test_what_is_too_large_still_is_once_it_was_cut(end: bytes) -> None:
    large = event(b"x" * MAX_EVENT_BYTES + end)
    for body in (large, b"x" * MAX_EVENT_BYTES + end, end * 2 * MAX_EVENT_BYTES):
        with pytest.raises(EnvelopeError) as wrong:
            parse_event(sqs_text(body))
        assert wrong.value.reason == Reason.TOO_LARGE
        assert len(sqs_text(body).encode()) <= 1024 * 1024
