"""Entries are added to YAML in any layout, and change nothing else."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from contract.edit import add_entry, append_item

NAMES = st.text("abcxyz-.", min_size=1, max_size=6).filter(lambda name: yaml.safe_load(f"[{name}]") == [name])
TEXT = st.text(st.characters(exclude_categories=("C",)) | st.sampled_from("\n\t"), max_size=90)
SCALARS = st.none() | st.booleans() | st.integers() | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SECTIONS = st.dictionaries(NAMES, VALUES, max_size=4) | st.none()
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)


def text_of(document: Any, is_flow: bool | None, indent: int) -> str:
    return yaml.safe_dump(
        document, default_flow_style=is_flow, indent=indent, sort_keys=False, allow_unicode=True
    )


@given(DOCUMENTS, SECTIONS, VALUES, st.sampled_from([True, False, None]), st.integers(2, 6))
def test_an_entry_is_added_at_the_end_of_its_section(
    document: dict[str, Any], section: dict[str, Any] | None, value: Any, is_flow: bool | None, indent: int
) -> None:
    text = text_of({**document, "section": section}, is_flow, indent)
    expected = {**document, "section": {**(section or {}), "new entry": value}}
    assert yaml.safe_load(add_entry(text, ("section",), "new entry", value)) == expected


@given(DOCUMENTS, st.lists(NAMES, max_size=5), st.sampled_from([True, False, None]), st.integers(2, 6))
def test_an_item_is_added_at_the_end_of_its_list(
    document: dict[str, Any], items: list[str], is_flow: bool | None, indent: int
) -> None:
    participant = {"kind": "x", "sends": items, "asks": []}
    text = text_of({"p": {"a": participant}, **document}, is_flow, indent)
    expected = {"p": {"a": {**participant, "sends": [*items, "org.x.v1"]}}, **document}
    if "p" not in document:
        assert yaml.safe_load(append_item(text, ("p", "a", "sends"), "org.x.v1")) == expected
