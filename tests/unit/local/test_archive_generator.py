"""A generated archive: right rows are the functions' own, what is planted is what the truth says."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventplane import ledger
from eventplane.contract import Contract, Place
from eventplane.device_reports import MANIFEST, event_digest
from eventplane.envelope import Envelope, parse_event
from eventplane.ledger import CONTRACTS, HANDOVERS, LEDGER, TAP, HandoverRecord, LedgerRecord, TapRecord
from eventplane.router import Router
from eventplane.sender import Sender
from eventplane.sending import SendingRights, stamp_sender
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
from local.archive_generator.truth import PLANTED, QUARANTINED, TRUTH, read_truth

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


def test_every_line_is_what_its_record_writes(right: Path) -> None:
    for folder, kind in ((TAP, TapRecord), (LEDGER, LedgerRecord), (HANDOVERS, HandoverRecord)):
        for _, line in lines(right, folder):
            assert ledger.to_line(kind(**json.loads(line))) == line


@pytest.mark.parametrize("contract", audited_contracts(), ids=["first", "second"])
def test_filled_lines_are_those_that_the_records_write(contract: Contract) -> None:
    routing = Routing(contract)
    for flow in flows(contract):
        assert (
            Lines(flow, routing).fill(SENT, PASSAGE)
            == right_case(event_of(flow, "home-1", SENT), PASSAGE, routing).rows()
        )


def test_a_right_archive_keeps_the_contract(right: Path) -> None:
    contracts = {each.version: each for each in audited_contracts()}
    assert {path.stem for path in (right / "archive" / CONTRACTS).iterdir()} == set(contracts)
    routed = defaultdict(set)
    for row in rows(right, LEDGER):
        routed[row["sender"], row["source"], row["id"], row["contract_version"]].add(row["route"])
    events = [stamped(row) for row in rows(right, TAP)]
    versions = {tuple(key): version for *key, version in routed}
    assert len(events) == len(versions) == len(routed)
    assert set(versions.values()) == set(contracts)
    routers = {version: Router(contract, Place.CLOUD) for version, contract in contracts.items()}
    for event in events:
        version = versions[event.key]
        expected = {route.name for route in routers[version].route(event)} or {None}
        assert routed[*event.key, version] == expected
        assert SendingRights(contracts[version]).refusal(event) is None
    assert list(read_truth(right / TRUTH)) == []


def test_the_devices_state_what_they_stored(right: Path) -> None:
    stored: dict[str, list[Envelope]] = defaultdict(list)
    for row in rows(right, TAP):
        stored[row["client_id"]].append(parse_event(row["event"]))
    for events in stored.values():
        numbered = {int(str(event.attributes["devicesequence"])): event for event in events}
        assert sorted(numbered) == list(range(1, len(events) + 1))
        told = 0
        for event in events:
            if event.type != MANIFEST:
                continue
            (up,) = (each for each in event.data()["statements"] if each["destination"] == "device.outbox")
            assert up["first"] == told + 1
            told = up["last"]
            texts = [numbered[each].json.encode() for each in range(up["first"], told + 1)]
            assert up["count"] == len(texts)
            total = sum(int.from_bytes(event_digest(text), "big") for text in texts)
            assert up["digest"] == f"{total % 2**128:032x}"
        assert told == len(events) - 1  # all but the last manifest


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


def test_what_was_lost_on_the_way_up_is_nowhere(faulty: Path) -> None:
    there = {
        (row["client_id"], event.attributes["deviceepoch"], int(str(event.attributes["devicesequence"])))
        for row in good(faulty)
        for event in [parse_event(row["event"])]
    }
    lost = [
        fact for fact in read_truth(faulty / TRUTH) if (fact["kind"], fact["hop"]) == ("lost", "device_cloud")
    ]
    assert lost
    assert not there & {(fact["device"], fact["epoch"], fact["sequence"]) for fact in lost}


def stamped(row: dict[str, Any]) -> Envelope:
    """The event of a tap's row as the router has it."""
    return stamp_sender(parse_event(row["event"]), Sender(row["client_id"]))


def good(root: Path) -> list[dict[str, Any]]:
    """The tap's rows of events that were not malformed on purpose."""
    return [
        json.loads(line)
        for _, line in lines(root, TAP)
        if "malformed-" not in line and '"event":null' not in line
    ]


def test_what_was_lost_on_a_route_is_in_the_tap_and_not_delivered(faulty: Path) -> None:
    tapped = {(row["client_id"], *parse_event(row["event"]).claim) for row in good(faulty)}
    delivered = {
        (row["client_id"], row["source"], row["id"], row["route"])
        for _, line in lines(faulty, LEDGER)
        if "malformed-" not in line
        for row in [json.loads(line)]
        if row["outcome"] in ("delivered", "unrouted")
    }
    lost = [fact for fact in read_truth(faulty / TRUTH) if (fact["kind"], fact["hop"]) == ("lost", "router")]
    named = [fact for fact in lost if fact["id"]]
    assert named
    for fact in named:
        event = fact["device"], fact["source"], fact["id"]
        assert event in tapped
        assert (*event, fact["route"]) not in delivered


def test_a_row_for_the_quarantine_is_in_the_file_that_the_truth_names(faulty: Path) -> None:
    held = [each for folder in (TAP, LEDGER, HANDOVERS) for each in lines(faulty, folder)]
    facts = [fact for fact in read_truth(faulty / TRUTH) if fact["kind"] == QUARANTINED]
    marks = [fact for fact in facts if str(fact["detail"]).startswith("malformed-")]
    assert len(marks) == sum("malformed-" in line for _, line in held)
    assert len(marks) < len(facts)
    for fact in facts:
        assert any(fact["archive_file"] == file and str(fact["detail"]) in line for file, line in held)


def test_the_same_plan_gives_the_same_archive(tmp_path: Path) -> None:
    plan = Plan(events=200, hours=2, events_an_hour=25, fault_every=10, trouble_every=4)
    written = [generate(tmp_path / name, plan, audited_contracts()) for name in ("one", "two")]
    assert written[0] == written[1]
    assert Counter(lines(tmp_path / "one", TAP)) == Counter(lines(tmp_path / "two", TAP))


def test_letters_have_the_functions_sources() -> None:
    assert records.ROUTER_LETTERS == DEAD_LETTER_SOURCE
    assert records.WEBHOOK_LETTERS == LETTER_SOURCE
