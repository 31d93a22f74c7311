"""Reasons of dead letters are members of one enumeration, and each of its members is one."""

import ast
from functools import cache
from pathlib import Path

from eventplane.reasons import Reason
from operations.reason_texts import TEXTS, explained

ROOT = Path(__file__).parents[3]


@cache
def nodes() -> list[ast.AST]:
    """Return the syntax of the files that could name a reason. Parsing all of them takes seconds."""
    packages = (
        "eventplane",
        "edge",
        "lambdas",
        "operations",
        "parts",
        "eventplane_client",
        "eventplane_mqtt",
    )
    texts = (file.read_text() for package in packages for file in (ROOT / package).rglob("*.py"))
    named = (text for text in texts if any(name in text for name in ("Reason.", "Refusal(", "rejected(")))
    return [node for text in named for node in ast.walk(ast.parse(text))]


def test_each_reason_is_used() -> None:
    used = {
        node.attr
        for node in nodes()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    assert used == {each.name for each in Reason}


def test_no_refusal_has_a_word_that_is_no_reason() -> None:
    """mypy checks this of `EnvelopeError`; the reason of a `Refusal` can be a word of a device's service."""
    words = {
        node.args[0].value
        for node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Refusal", "rejected")
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    # The letter of the smoke test's own example.
    assert words <= {"sample"}


def test_a_reason_and_a_services_own_word_are_explained() -> None:
    assert [*TEXTS] == [*Reason, "another"]
    assert explained(Reason.NOT_JSON)[0] == "Not JSON."
    assert "Correct the sender" in explained(Reason.NOT_JSON)[1]
    assert explained(Reason.ENDPOINT_FAILED) == tuple(TEXTS["endpoint_failed"])
    assert explained("out_of_paper") == tuple(TEXTS["another"])
