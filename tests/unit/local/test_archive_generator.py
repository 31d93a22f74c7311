"""A generated archive: right rows are the functions' own, what is planted is what the truth says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventplane.contract import Contract
from glue_jobs.delivery_audit.findings import Kind
from lambdas.http_sink.webhook import LETTER_SOURCE
from lambdas.router.planner import DEAD_LETTER_SOURCE
from local.archive_generator import records
from local.archive_generator.contracts import audited_contracts
from local.archive_generator.faults import FAULTS
from local.archive_generator.flows import Routing, flows
from local.archive_generator.generator import Plan, generate
from local.archive_generator.lines import Lines, Sent, event_of
from local.archive_generator.records import Passage, right_case
from local.archive_generator.truth import PLANTED, TRUTH, read_truth

RIGHT = Plan(events=800, hours=4, events_an_hour=25, fault_every=0, trouble_every=0, rows=300)
FAULTY = Plan(
    events=13_440, hours=24, events_an_hour=40, fault_every=10, trouble_every=14, rows=300, holes=True
)
SPARSE = Plan(events=2_250, hours=6, events_an_hour=25, fault_every=6)
SENT = Sent("ab", "e1", 7, "2026-03-01T12:00:00.000Z", 5)
PASSAGE = Passage("home-1", 11, 12, 13, 14, "t-1", 3, "r-1")


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("right")
    generate(root, RIGHT, audited_contracts())
    return root


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("faulty")
    generate(root, FAULTY, audited_contracts())
    return root


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sparse")
    generate(root, SPARSE, audited_contracts())
    return root


def lines(root: Path, folder: str) -> Iterator[tuple[str, str]]:
    for path in sorted((root / "archive" / folder).rglob("*.json.gz")):
        try:
            content = gzip.decompress(path.read_bytes())
        except (OSError, EOFError):
            continue  # a hole
        for line in content.decode().splitlines():
            yield str(path.relative_to(root / "archive")), line


def rows(root: Path, folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in lines(root, folder)]


@pytest.mark.parametrize("contract", audited_contracts(), ids=["first", "second"])
def test_filled_lines_are_those_that_the_records_write(contract: Contract) -> None:
    routing = Routing(contract)
    for flow in flows(contract):
        assert (
            Lines(flow, routing).fill(SENT, PASSAGE)
            == right_case(event_of(flow, "home-1", SENT), PASSAGE, routing).rows()
        )


def test_every_kind_is_planted(faulty: Path) -> None:
    planted = {f"{fact['kind']} {fact['hop'] or '-'}" for fact in read_truth(faulty / TRUTH)}
    # Tampered with is an archive that has been audited.
    assert planted == PLANTED - {"altered_object archive", "unattested_object archive"}


def test_no_stale_decision_is_planted_where_too_few_others_show_it(sparse: Path) -> None:
    planted = Counter(fact["kind"] for fact in read_truth(sparse / TRUTH))
    assert planted[Kind.STALE_CONTRACT] == 0
    assert planted[Kind.CAUSALITY] > 0  # faults behind the one that never fits are planted


def test_each_refused_item_has_a_time_of_its_own(sparse: Path) -> None:
    """Several of one frame at the same time would be one item to the audit."""
    items = Counter(
        (fact["device"], fact["at_ms"])
        for fact in read_truth(sparse / TRUTH)
        if fact["detail"] == "missing_attribute"
    )
    assert items
    assert set(items.values()) == {1}


def test_what_is_refused_for_its_sender_ends_so_on_each_of_its_routes() -> None:
    """The proof at a million events: an alarm that two routes take was found twice and planted once."""
    _, contract = audited_contracts()
    routing = Routing(contract)
    (refuse,) = (each.plant for each in FAULTS if each.name == "refused_for_its_sender")
    most = 0
    for flow in flows(contract):
        case = right_case(event_of(flow, "home-1", SENT), PASSAGE, routing)
        if case.routes:
            owed = [row.route for row in case.ledger]
            assert [(each.kind, each.route) for each in refuse(case)] == [
                (Kind.DEAD_LETTERED, route) for route in owed
            ]
            most = max(most, len(owed))
    assert most > 1


def test_letters_have_the_functions_sources() -> None:
    assert records.ROUTER_LETTERS == DEAD_LETTER_SOURCE
    assert records.WEBHOOK_LETTERS == LETTER_SOURCE
