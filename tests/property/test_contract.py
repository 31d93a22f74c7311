"""Contracts: possible answers, loops, explanations, payload checks, and edits of the file in any layout."""

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract.checks import check
from contract.edit import add_entry, append_item
from contract.explain import explain_filter
from eventplane.attributes import Attributes
from eventplane.contract import load_compiled
from eventplane.contract.possibilities import possible
from eventplane.envelope import write_event
from eventplane.filters import Filter
from eventplane.limits import MAX_DETAIL_CHARACTERS
from lambdas.common import system
from lambdas.router.payload import PayloadCheck
from tests.property.strategies import ATTRIBUTES, FILTER_NAMES, FILTERS, json_values
from tests.small_contract import small_contract


@given(FILTERS, ATTRIBUTES, st.sets(FILTER_NAMES))
def test_an_answer_is_possible(filter: Filter, event: Attributes, names: set[str]) -> None:
    known = {name: value for name, value in event.items() if name in names}
    assert filter.matches(event) in possible(filter, known)


@given(FILTERS, ATTRIBUTES)
def test_an_explanation_agrees_with_itself(filter: Filter, event: Attributes) -> None:
    waiting = [explain_filter(filter, event)]
    assert waiting[0].matched is filter.matches(event)
    while waiting:
        condition = waiting.pop()
        answers = [each.matched for each in condition.parts]
        if condition.text in ("all of", "any of", "not"):
            assert condition.matched is {"all of": all, "any of": any, "not": lambda one: not one[0]}[
                condition.text
            ](answers)
        waiting += condition.parts


SERVICES = "pqrs"
SENT = st.dictionaries(st.sampled_from(SERVICES), st.sets(st.sampled_from("abc")))
READ = st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from(SERVICES)), min_size=1)


@given(SENT, READ)
def test_loops_are_found_exactly(sent: dict[str, set[str]], read: set[tuple[str, str]]) -> None:
    services = {
        each: {"kind": "cloud_service", "sends": sorted(sent[each]) if each in sent else None}
        for each in SERVICES
    }
    contract = small_contract(
        {"home": "device", **services},
        {f"{type}-to-{reader}": ({"exact": {"type": type}}, f"{reader}.inbox") for type, reader in read},
        {each: {} for each in "abc"},
    )
    assert load_compiled(contract.canonical) == contract
    reached = {each: {reader for type, reader in read if type in sent.get(each, ())} for each in SERVICES}
    for _ in SERVICES:
        reached = {each: known.union(*(reached[other] for other in known)) for each, known in reached.items()}
    loops = [each.message for each in check(contract) if each.message.startswith("a loop")]
    named = {each for each in SERVICES if any(f"{each} sends" in message for message in loops)}
    assert named == {each for each in SERVICES if each in reached[each]}


ID = "https://schemas.example.org/v1"
JSON = json_values(st.text("ab", max_size=2))
KEYWORDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "number", "integer", "string", "null"]),
        "enum": st.lists(JSON, max_size=3),
        "multipleOf": st.sampled_from([0.01, 3, 2.5]),
        "maximum": st.integers(),
        "pattern": st.sampled_from(["^a*$", "b"]),
        "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
        "uniqueItems": st.booleans(),
        "properties": st.just({"a": {"$ref": "#"}}),
        "items": st.just({"$ref": "#"}),
        "unevaluatedProperties": st.booleans(),
    },
)


@pytest.mark.source("P11")
@given(KEYWORDS, JSON)
def test_the_check_agrees_with_the_library(keywords: dict[str, Any], data: Any) -> None:
    schema = {"$id": ID, **keywords}
    contract = small_contract(
        {"home": "device"},
        {"up": ({"exact": {"type": "t"}}, "home.outbox")},
        {"t": {"schemas": [schema], "schema_check": "strict"}},
    )
    event = write_event({"id": "1", "source": "/s", "type": "t"}, {"a": data})
    refusal = PayloadCheck(contract, cpu_time=system.cpu_time).of_message()(event)
    assert (refusal is None) is jsonschema.Draft202012Validator(schema).is_valid({"a": data})
    assert refusal is None or 0 < len(refusal.detail) <= MAX_DETAIL_CHARACTERS


KEYS = st.text("abcxyz-.", min_size=1, max_size=6).filter(lambda name: yaml.safe_load(f"[{name}]") == [name])
TEXTS = st.text(st.characters(exclude_categories=("C",)) | st.sampled_from("\n\t"), max_size=90)
ENTRIES = json_values(TEXTS, keys=KEYS).filter(
    # For YAML a JSON number like 1e-08, without a point, is a text: such an entry has to be added by hand.
    lambda value: not re.search(r"\de[+-]\d", json.dumps(value))
)
SECTIONS = st.dictionaries(KEYS, ENTRIES, max_size=4) | st.none()
DOCUMENTS = st.dictionaries(KEYS, ENTRIES, max_size=3)


def text_of(document: Any, is_flow: bool | None, indent: int) -> str:
    return yaml.safe_dump(
        document, default_flow_style=is_flow, indent=indent, sort_keys=False, allow_unicode=True
    )


@given(DOCUMENTS, SECTIONS, ENTRIES, st.sampled_from([True, False, None]), st.integers(2, 6))
def test_an_entry_is_added_at_the_end_of_its_section(
    document: dict[str, Any], section: dict[str, Any] | None, value: Any, is_flow: bool | None, indent: int
) -> None:
    text = text_of({**document, "section": section}, is_flow, indent)
    expected = {**document, "section": {**(section or {}), "new entry": value}}
    assert yaml.safe_load(add_entry(text, ("section",), "new entry", value)) == expected


@given(DOCUMENTS, st.lists(KEYS, max_size=5), st.sampled_from([True, False, None]), st.integers(2, 6))
def test_append_item(document: dict[str, Any], items: list[str], is_flow: bool | None, indent: int) -> None:
    participant = {"kind": "x", "sends": items, "asks": []}
    text = text_of({"p": {"a": participant}, **document}, is_flow, indent)
    expected = {"p": {"a": {**participant, "sends": [*items, "org.x.v1"]}}, **document}
    if "p" not in document:
        assert yaml.safe_load(append_item(text, ("p", "a", "sends"), "org.x.v1")) == expected
