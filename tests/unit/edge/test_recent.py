from __future__ import annotations

import pytest

from edge.numbering import MOST_URGENT, RecentKeys
from eventplane.device_reports import KEY_BYTES, key_digest


def key(number: int) -> bytes:
    return key_digest(("/s", str(number)))


@pytest.mark.source("F-W3")
def test_it_knows_at_least_the_last_keys_and_at_most_twice_as_many() -> None:
    recent = RecentKeys(1_000, map(key, range(2_500)))
    recent.add(key(2_500))
    known = [number for number in range(3_000) if key(number) in recent]
    assert known == list(range(1_000, 2_501))
    for number in range(2_501, 3_001):
        recent.add(key(number))
    assert [number for number in range(3_001) if key(number) in recent] == list(range(2_000, 3_001))


def test_it_knows_the_last_urgent_ones_whatever_follows() -> None:
    recent = RecentKeys(10)
    for number in range(MOST_URGENT + 1):
        recent.add_urgent(key(number))
    for number in range(100):
        recent.add(key(-number))
    assert [key(number) in recent for number in (1, MOST_URGENT)] == [True, True]
    assert len(recent._urgent) == MOST_URGENT


def test_keys_that_start_alike_are_told_apart() -> None:
    alike = [b"\0" * 8 + number.to_bytes(8, "big") for number in range(1, 400)]
    recent = RecentKeys(1_000, alike[:300])
    assert [each in recent for each in alike] == [True] * 300 + [False] * 99


def test_source_and_id_both_count() -> None:
    digests = {key_digest(key) for key in (("/s", "1"), ("/s1", ""), ("/t", "1"))}
    assert len(digests) == 3
    assert {len(each) for each in digests} == {KEY_BYTES}
