from __future__ import annotations

from edge.recent import RecentKeys


def test_it_knows_the_last_keys_only() -> None:
    recent = RecentKeys(2)
    for id in "abc":
        recent.add(("/s", id))
    assert [("/s", id) in recent for id in "abc"] == [False, True, True]


def test_source_and_id_both_count() -> None:
    recent = RecentKeys(10)
    recent.add(("/s", "1"))
    assert ("/s1", "") not in recent
    assert ("/t", "1") not in recent
