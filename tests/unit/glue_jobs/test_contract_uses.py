"""Which decisions were made by a contract long after its successor was in force."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import open_archive
from glue_jobs.delivery_audit.contracts import (
    INTERVAL_MS,
    ContractHistory,
    Usage,
    archived,
    load_history,
    stale_uses,
)
from glue_jobs.delivery_audit.errors import AlteredContractError, NoContractError
from lab.archive_generator.flows import audited_contracts

CONTRACT, LATER = audited_contracts()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Where the archive has its one contract."""
    path = tmp_path / "contracts" / f"{CONTRACT.version}.json"
    path.parent.mkdir()
    path.write_bytes(CONTRACT.canonical)
    return path


def load(stored: Path, *usages: Usage) -> tuple[ContractHistory, list[ObjectFault]]:
    objects = open_archive(str(stored.parents[1]))
    return load_history(objects, archived(objects), usages)


def test_a_contract_that_cannot_be_read_makes_no_other_one_stale(stored: Path) -> None:
    uses = [*used(CONTRACT.version, range(20)), *used("0123456789abcdef", range(10, 25))]
    history, faults = load(stored, *uses)
    assert (history.stale, faults) == (frozenset(), [])
    other = stored.with_name("0123456789abcdef.json")
    other.write_text("{")
    history, (fault,) = load(stored, *uses)
    assert (history.contracts[0].version, fault.kind) == (CONTRACT.version, "unreadable")
    assert fault.name == f"contracts/{other.name}"


def test_an_archive_without_its_contract_or_with_an_altered_one_is_refused(stored: Path) -> None:
    uses = list(used(CONTRACT.version, range(20)))
    stored.write_bytes(LATER.canonical)
    with pytest.raises(AlteredContractError, match=LATER.version):
        load(stored, *uses)
    stored.unlink()
    with pytest.raises(NoContractError, match=CONTRACT.version):
        load(stored, *uses)


def used(version: str, *intervals: Iterable[int], is_in_force: bool = True) -> list[Usage]:
    return [
        Usage(version, each, each * INTERVAL_MS, is_in_force) for numbers in intervals for each in numbers
    ]


def of(old: Iterable[int], *new: Iterable[int]) -> list[Usage]:
    return [*used("old", old), *used("new", *new)]


@pytest.mark.parametrize(
    ("uses", "stale"),
    [
        (of(range(16), range(10, 20)), {("old", 13), ("old", 14), ("old", 15)}),
        (of(range(13), range(10, 20)), set()),
        ([*used("old", range(10), range(20, 40)), *used("new", range(10, 21))], set()),
        ([*used("old", range(10), range(20, 30)), *used("new", range(10, 21), range(30, 40))], set()),
        ([*used("old", range(20)), *used("new", range(20), is_in_force=False)], set()),
        (of([0, 20], range(10, 21)), set()),
        (of(range(80), [10, 11], range(60, 65)), {("new", at) for at in range(60, 65)}),
        (of(range(62), [10, 11], range(60, 80)), set()),
        (of(range(12), range(10, 60, 7)), set()),
    ],
    ids=[
        "one router stays behind",
        "a rollout",
        "after a rollback the earlier one is right",
        "the later one comes back: no proof of the time between",
        "what came with the code",
        "the last decisions of an archive are not judged",
        "given up in a rollout, and it comes back",
        "given up, and rolled out later",
        "seldom used",
    ],
)
def test_a_replaced_version_is_stale(uses: list[Usage], stale: set[tuple[str, int]]) -> None:
    assert stale_uses(uses) == stale
