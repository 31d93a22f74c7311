"""The core imports itself and the standard library, nothing else."""

import ast
import sys
from pathlib import Path

from tests.packages import imported_packages

CORE = Path(__file__).parents[2] / "eventplane"
TREES = {each.relative_to(CORE).as_posix(): ast.parse(each.read_text()) for each in CORE.rglob("*.py")}


def test_core_needs_only_the_standard_library() -> None:
    known = set(sys.stdlib_module_names) | {"eventplane"}
    strangers = {name: imported_packages(tree) - known for name, tree in TREES.items()}
    assert {name: each for name, each in strangers.items() if each} == {}


def test_only_the_command_line_reads_prints_and_exits() -> None:
    for module, tree in TREES.items():
        if module != "__main__.py":
            nodes = list(ast.walk(tree))
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
            assert not names & {"open", "print", "input", "exit"}, module
            assert not imported_packages(tree) & {"argparse", "sys"}, module
            assert "eventplane.__main__" not in modules, module


CALLS = frozenset(
    (
        "batch_get_item",
        "delete_item",
        "get_item",
        "get_paginator",
        "put_item",
        "put_object",
        "receive_message",
        "scan",
        "send_message_batch",
        "update_item",
    )
)
"""Operations of AWS's clients that the plane uses."""


def test_the_core_calls_no_client() -> None:
    for module, tree in TREES.items():
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & CALLS, module
