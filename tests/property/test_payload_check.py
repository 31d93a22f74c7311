"""Whatever the payload: the check answers, it agrees with the library, and a detail stays short."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import compile_contract
from eventplane.envelope import write_event
from eventplane.limits import MAX_DETAIL_CHARACTERS
from lambdas.router.payload import PayloadCheck

pytestmark = pytest.mark.source("P11")

ID = "https://schemas.example.org/v1"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=4),
    max_leaves=12,
)
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


@given(KEYWORDS, JSON)
def test_the_check_agrees_with_the_library(keywords: dict[str, Any], data: Any) -> None:
    schema = {"$id": ID, **keywords}
    contract = compile_contract(
        {
            "format": 2,
            "name": "small",
            "participants": {"home": {"kind": "device", "description": "d"}},
            "event_types": {"t": {"description": "d", "schemas": [schema], "schema_check": "strict"}},
            "routes": {"up": {"filter": {"exact": {"type": "t"}}, "to": "home.outbox"}},
        },
        "small",
    )
    event = write_event({"id": "1", "source": "/s", "type": "t"}, {"a": data})
    refusal = PayloadCheck(contract).of_message()(event)
    assert (refusal is None) is jsonschema.Draft202012Validator(schema).is_valid({"a": data})
    assert refusal is None or 0 < len(refusal.detail) <= MAX_DETAIL_CHARACTERS
