from __future__ import annotations

import pytest

from edge.numbering import RecentKeys
from eventplane.event_keys import KEY_BYTES, key_digest


@pytest.mark.source("F-W3")
def test_it_knows_the_last_keys_only_also_those_it_was_given() -> None:
    recent = RecentKeys(2, [b"a", b"b"])
    recent.add(b"c")
    recent.settle()
    assert [each in recent for each in (b"a", b"b", b"c")] == [False, True, True]


def test_what_was_not_stored_is_no_repetition() -> None:
    recent = RecentKeys(2)
    recent.add(b"a")
    recent.forget(b"a")
    assert b"a" not in recent


def test_what_found_no_room_pushes_nothing_out() -> None:
    recent = RecentKeys(2, [b"a", b"b"])
    for _ in range(3):
        recent.add(b"c")
        recent.forget(b"c")
        recent.settle()
    assert b"a" in recent


def test_source_and_id_both_count() -> None:
    digests = {key_digest(key) for key in (("/s", "1"), ("/s1", ""), ("/t", "1"))}
    assert len(digests) == 3
    assert {len(each) for each in digests} == {KEY_BYTES}
