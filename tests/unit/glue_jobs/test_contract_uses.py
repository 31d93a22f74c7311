"""Which decisions were made by a contract long after its successor was in force."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from glue_jobs.common.objects import open_archive
from glue_jobs.delivery_audit.contracts import INTERVAL_MS, Usage, archived, load_history, stale_uses
from local.archive_generator.contracts import audited_contracts


def test_a_contract_that_cannot_be_read_makes_no_other_one_stale(tmp_path: Path) -> None:
    contract, _ = audited_contracts()
    stored = tmp_path / "contracts" / f"{contract.version}.json"
    stored.parent.mkdir()
    stored.write_bytes(contract.canonical)
    objects = open_archive(str(tmp_path))
    uses = [*used(contract.version, range(20)), *used("0123456789abcdef", range(10, 25))]
    history, faults = load_history(objects, archived(objects), uses)
    assert (history.stale, faults) == (frozenset(), [])


def used(version: str, *intervals: Iterable[int], is_in_force: bool = True) -> list[Usage]:
    return [
        Usage(version, each, each * INTERVAL_MS, is_in_force) for numbers in intervals for each in numbers
    ]


def test_one_router_that_stays_behind_is_stale_from_the_third_interval_on() -> None:
    assert stale_uses([*used("old", range(16)), *used("new", range(10, 20))]) == {
        ("old", 13),
        ("old", 14),
        ("old", 15),
    }


def test_a_rollout_is_not_stale() -> None:
    assert stale_uses([*used("old", range(13)), *used("new", range(10, 20))]) == frozenset()


def test_after_a_rollback_the_earlier_contract_is_the_right_one() -> None:
    back = [*used("old", range(10), range(20, 40)), *used("new", range(10, 21))]
    assert stale_uses(back) == frozenset()


def test_a_successor_that_comes_back_is_no_proof_of_the_time_between() -> None:
    again = [*used("old", range(10), range(20, 30)), *used("new", range(10, 21), range(30, 40))]
    assert stale_uses(again) == frozenset()


def test_what_came_with_the_code_makes_nothing_stale() -> None:
    assert stale_uses([*used("old", range(20)), *used("new", range(20), is_in_force=False)]) == frozenset()


def test_the_last_decisions_of_an_archive_are_not_judged() -> None:
    assert stale_uses([*used("old", [0, 20]), *used("new", range(10, 21))]) == frozenset()


def test_a_version_that_was_given_up_in_a_rollout_and_comes_back_is_stale() -> None:
    back = [*used("old", range(80)), *used("new", [10, 11]), *used("new", range(60, 65))]
    assert stale_uses(back) == {("new", at) for at in range(60, 65)}


def test_a_version_that_was_given_up_and_is_rolled_out_later_is_not() -> None:
    again = [*used("old", range(62)), *used("new", [10, 11]), *used("new", range(60, 80))]
    assert stale_uses(again) == frozenset()


def test_a_version_that_is_seldom_used_is_not_stale() -> None:
    seldom = [*used("old", range(12)), *used("new", range(10, 60, 7))]
    assert not {version for version, _ in stale_uses(seldom)}
