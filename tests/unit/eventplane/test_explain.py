"""Explanations: the router's own answer, and the reasons term by term."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from contract import load_contract
from eventplane.__main__ import main
from eventplane.contract import Place, Problem, load_compiled
from eventplane.contract.filter_reader import read_filter
from eventplane.envelope import write_event
from eventplane.explain import Term, explain, explain_filter, explanation_table
from eventplane.router import Router

GOLDEN = Path(__file__).parents[1] / "contract" / "golden" / "format-1.json"
RING = {"id": "1", "source": "/homes/1/bell", "type": "org.example.ring.v1"}
ATTRIBUTES = {
    "type": "org.example.alarm.v1",
    "subject": "/kitchen",
    "level": 3,
    "urgent": True,
    "loud": "true",
}


def term(document: dict[str, Any]) -> Term:
    problems: list[Problem] = []
    filter = read_filter(document, "filter", problems)
    assert problems == []
    found = explain_filter(filter, ATTRIBUTES)
    assert found.matched is filter.matches(ATTRIBUTES)
    return found


@pytest.mark.parametrize("type", sorted(load_contract().event_types))
@pytest.mark.parametrize("place", list(Place))
def test_it_agrees_with_the_router(type: str, place: Place) -> None:
    contract = load_contract()
    event = write_event({"id": "1", "source": "/a", "type": type, "subject": "/bedroom"})
    explanations = explain(contract, event, place)
    assert [each.route for each in explanations] == list(contract.routes_at(place))
    matching = [each.route for each in explanations if each.matched]
    assert matching == list(Router(contract, place).route(event))


def test_without_a_place_every_route_is_explained() -> None:
    contract = load_contract()
    assert tuple(each.route for each in explain(contract, write_event(RING))) == contract.routes


@pytest.mark.parametrize(
    ("document", "text", "matched", "values"),
    [
        ({"exact": {"subject": "/kitchen"}}, 'subject is "/kitchen"', True, {"subject": "/kitchen"}),
        ({"prefix": {"level": "4"}}, 'level starts with "4"', False, {"level": 3}),
        ({"suffix": {"missing": "x"}}, 'missing ends with "x"', False, {"missing": None}),
        ({"not": {"exact": {"missing": "x"}}}, "not", True, {}),
        ({"all": [{"exact": {"level": "3"}}, {"exact": {"a": "b"}}]}, "all of", False, {}),
        ({"any": [{"exact": {"level": "3"}}, {"exact": {"a": "b"}}]}, "any of", True, {}),
    ],
)
def test_a_term_says_what_it_read(
    document: dict[str, Any], text: str, matched: bool, values: dict[str, Any]
) -> None:
    found = term(document)
    assert (found.text, found.matched, found.values) == (text, matched, values)


def test_combinations_hold_their_terms() -> None:
    found = term({"all": [{"not": {"exact": {"level": "3"}}}, {"exact": {"urgent": "true"}}]})
    negation, urgent = found.terms
    assert (negation.matched, negation.terms[0].matched, urgent.matched) == (False, True, True)


def test_an_expression_is_taken_apart_at_and_and_or() -> None:
    found = term({"sql": "level > 2 AND (missing = 'x' OR subject LIKE '/bath%')\n AND urgent"})
    assert found.text == "sql level > 2 AND (missing = 'x' OR subject LIKE '/bath%') AND urgent"
    level, either, urgent = found.terms
    assert (level.text, level.matched, level.values) == ("level > 2", True, {"level": 3})
    assert [each.matched for each in either.terms] == [False, False]
    assert either.terms[0].errors[0].startswith("missingAttribute: the event has no attribute 'missing'")
    assert urgent.matched
    assert [each.partition(":")[0] for each in found.errors] == ["missingAttribute"]


def test_conditions_are_cast_as_and_casts_them() -> None:
    found = term({"sql": "loud AND subject"})
    loud, subject = found.terms
    assert loud.matched
    assert not subject.matched
    assert subject.errors[0].startswith("cast:")


@pytest.mark.parametrize("text", ["level", "loud"])
def test_a_value_that_is_no_boolean_is_shown(text: str) -> None:
    found = term({"sql": text})
    assert not found.matched
    assert found.gives == ATTRIBUTES[text]


def test_a_condition_that_is_no_list_has_no_terms() -> None:
    assert term({"sql": "urgent XOR EXISTS nothing"}).terms == ()
    assert term({"sql": "NOT (level = 3)"}).values == {"level": 3}


def test_the_table_has_the_matching_routes_first_and_a_line_a_term() -> None:
    contract = load_compiled(GOLDEN.read_bytes())
    lines = explanation_table(explain(contract, write_event(RING))).splitlines()
    assert lines == [
        "to-bell -> bell.inbox (device): MATCHES",
        "  yes  all of",
        '  yes    type is "org.example.ring.v1"                     type = "org.example.ring.v1"',
        "  yes    not",
        '  no       subject ends with "/attic"                      subject missing',
        "up -> device.outbox (device): MATCHES",
        '  yes  type starts with "org."                             type = "org.example.ring.v1"',
        "to-desk -> desk.inbox (cloud): does not match",
        "  no   any of",
        "  no     sql type LIKE 'org.example.%' AND EXISTS subject",
        "  yes      type LIKE 'org.example.%'                       type = \"org.example.ring.v1\"",
        "  no       EXISTS subject                                  subject missing",
        "  no     all of",
        '  no       source is "/a"                                  source = "/homes/1/bell"',
        '  no       subject is "/b"                                 subject missing',
    ]


@pytest.mark.source("P4", "C1")
@pytest.mark.parametrize(
    ("more", "promised"),
    [
        ({}, {"to-bell": "at_least_once", "up": "at_least_once", "to-desk": "at_least_once"}),
        (
            {"deliveryguarantee": "best_effort"},
            {"to-bell": "best_effort", "up": "best_effort", "to-desk": "best_effort"},
        ),
        # Over the desk's outbox, which the contract has at best effort, it comes to the cloud's router only.
        (
            {"senderservice": "desk"},
            {"to-bell": "at_least_once", "up": "at_least_once", "to-desk": "best_effort"},
        ),
    ],
)
def test_the_guarantee_of_each_delivery_is_explained(more: dict[str, str], promised: dict[str, str]) -> None:
    contract = load_compiled(GOLDEN.read_bytes())
    explanations = explain(contract, write_event({**RING, **more}))
    found = {each.route.name: each.document()["delivery_guarantee"] for each in explanations}
    assert found == promised
    table = explanation_table(explanations)
    assert ("MATCHES, at best effort" in table) is ("deliveryguarantee" in more)


def test_no_route_at_a_place_is_said() -> None:
    assert explanation_table(()) == "no route is decided here"


@pytest.fixture
def event_file(tmp_path: Path) -> Path:
    file = tmp_path / "event.json"
    file.write_text(write_event(RING).json)
    return file


def test_the_command_prints_json(event_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(event_file), "--contract", str(GOLDEN), "--place", "cloud", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["event"] == RING
    assert document["contract"] == {"name": "golden", "version": "d17fe94bbe13b478"}
    (route,) = document["routes"]
    assert (route["route"], route["matched"], route["filter"]["text"]) == ("to-desk", False, "any of")


def test_the_command_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(write_event(RING).json.encode())))
    assert main(["explain", "-", "--contract", str(GOLDEN)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "org.example.ring.v1, id 1 of /homes/1/bell\ngolden, version d17fe94bbe13b478\n"
    )
    assert "to-bell -> bell.inbox (device): MATCHES" in printed


@pytest.mark.parametrize(
    ("event", "contract", "message"),
    [
        ("none.json", str(GOLDEN), "name a file with one event"),
        ("event.json", "none.json", "python -m contract compile --output"),
        ("wrong.json", str(GOLDEN), "missing_attribute"),
        ("event.json", "wrong.json", "problem(s)"),
    ],
)
def test_what_cannot_be_read_is_named(
    event: str, contract: str, message: str, event_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = event_file.parent
    (folder / "wrong.json").write_text("{}")
    assert main(["explain", str(folder / event), "--contract", str(folder / contract)]) == 1
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
