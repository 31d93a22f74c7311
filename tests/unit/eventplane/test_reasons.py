"""Every reason word that the code can put into a dead letter is explained to operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from eventplane.reasons import OTHER, Reason, explained

ROOT = Path(__file__).parents[3]
REFUSALS = {"EnvelopeError", "Refusal"}


def words_of_the_code() -> set[str]:
    trees = [
        ast.parse(file.read_text())
        for each in ("eventplane", "edge", "lambdas")
        for file in (ROOT / each).rglob("*.py")
    ]
    trees.append(ast.parse((ROOT / "operations" / "letters.py").read_text()))
    constants = dict(constant for tree in trees for constant in text_constants(tree))
    arguments = [
        node.args[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in REFUSALS
        and node.args
    ]
    literal = {each.value for each in arguments if isinstance(each, ast.Constant)}
    named = {constants[each.id] for each in arguments if isinstance(each, ast.Name) and each.id in constants}
    members = {
        str(Reason[node.attr])
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    return literal | named | members


def text_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(text))):
                yield name, text
            case ast.AnnAssign(target=ast.Name(name), value=ast.Constant(str(text))):
                yield name, text


def test_every_word_is_explained_and_nothing_else() -> None:
    words = words_of_the_code()

    assert words == set(Reason)


def test_a_services_own_word_has_an_explanation_too() -> None:
    assert explained("out_of_paper") is OTHER
    assert explained("not_json") == (Reason.NOT_JSON.means, Reason.NOT_JSON.remedy)
