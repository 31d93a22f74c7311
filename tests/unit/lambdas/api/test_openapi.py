"""The OpenAPI document says what the code does, where both say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eventplane.contract.filter_reader import MAX_FILTER_DEPTH
from eventplane.contract.subscription import MAX_FILTER_BYTES, MAX_NAME, MAX_OWN
from eventplane.filters import DIALECTS
from eventplane.limits import MAX_ATTRIBUTE_NAME
from lambdas.api.document import PROTOCOLS
from lambdas.api.subscriptions import METHODS

FILE = Path(__file__).parents[4] / "docs" / "reference" / "subscriptions-api.openapi.yaml"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text())  # type: ignore[no-any-return]


def test_paths_and_methods(document: dict[str, Any]) -> None:
    found = {
        path.replace("{", "<").replace("}", ">"): {each.upper() for each in item if each != "parameters"}
        for path, item in document["paths"].items()
    }
    assert found == {path: set(methods) for path, methods in METHODS.items()}


def test_words_and_limits(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Protocol"]["enum"] == list(PROTOCOLS)
    dialects = [each["$ref"].rpartition("/")[2].lower() for each in schemas["Filter"]["oneOf"]]
    assert dialects == list(DIALECTS)
    assert schemas["Id"]["maxLength"] == MAX_NAME
    assert f"{{1,{MAX_ATTRIBUTE_NAME}}}" in schemas["Comparison"]["propertyNames"]["pattern"]
    assert f"{MAX_FILTER_BYTES} bytes" in schemas["Filters"]["description"]
    assert f"{MAX_FILTER_DEPTH} levels" in schemas["Filters"]["description"]
    collection = document["paths"]["/participants/{participant}/subscriptions"]
    listed = collection["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert listed["maxItems"] == MAX_OWN
