"""The examples of the documentation work: Python runs, CESQL means what the page says, commands exist."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.checks import check
from eventplane.cesql import BUILTINS, CesqlParseError, lint, parse
from eventplane.contract import Problem, compile_contract
from eventplane.contract.filter_reader import read_filter
from eventplane_client import memory_plane
from lab.tools.docs_site import PART_PAGES, with_tables

ROOT = Path(__file__).parents[2]
KINDS = ("tutorials", "how-to", "reference", "explanation")
BESIDE_THE_KINDS = ("README.md", "docs/CONTRIBUTING.md", "docs/SECURITY.md", "lab/examples/README.md")
PAGES = [
    *(ROOT / each for each in BESIDE_THE_KINDS),
    *sorted(page for kind in KINDS for page in (ROOT / "docs" / kind).glob("*.md")),
    *(ROOT / each for each in PART_PAGES),
]
NAMES = {page.relative_to(ROOT).as_posix(): page for page in PAGES}
TEXTS = {name: with_tables(page.read_text(), name) for name, page in NAMES.items()}

FRAGMENTS = {
    "parts/subscriptions_api/reference.md": "it needs a deployed plane",
}
"""Pages whose Python cannot run here, and why. It has to compile, and its imports have to resolve."""


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Return the page and the text of each code block in one of `languages`."""
    pattern = re.compile(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(page, block) for page, text in TEXTS.items() for block in pattern.findall(text)]


@pytest.mark.parametrize("page", sorted({page for page, _ in blocks("python")} - FRAGMENTS.keys()))
def test_python_runs(page: str) -> None:
    """The blocks of a page in their order, as one program, with the tests that they define."""
    if page == "README.md":
        (written,) = (yaml.safe_load(block) for each, block in blocks("yaml") if each == page)
        contract = compile_contract(written, page)
        assert list(check(contract)) == []
        memory_plane("readme").enforce(contract)
    names: dict[str, Any] = {"__name__": "example"}
    for _, example in (each for each in blocks("python") if each[0] == page):
        exec(compile(example, page, "exec", dont_inherit=True), names)  # noqa: S102
        for name in [each for each in names if each.startswith("test_")]:
            names.pop(name)()


@pytest.mark.parametrize(("page", "example"), [each for each in blocks("python") if each[0] in FRAGMENTS])
def test_what_python_imports_is_there(page: str, example: str) -> None:
    for node in ast.walk(compile(example, page, "exec", ast.PyCF_ONLY_AST)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the page and each CESQL expression in its YAML and JSON."""
    for page, block in blocks("yaml", "json"):
        document = yaml.safe_load(re.sub(r"<[\w-]+>|\.\.\.", "x", block))
        yield from ((page, each) for each in _below(document))


def _below(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        yield from (value for key, value in document.items() if key == "sql")
    for each in document.values() if isinstance(document, dict) else document:
        if isinstance(each, dict | list):
            yield from _below(each)


@pytest.mark.parametrize(("page", "expression"), list(expressions()))
def test_expressions_are_accepted_and_the_lint_is_silent(page: str, expression: str) -> None:
    problems: list[Problem] = []
    read_filter({"sql": expression}, page, problems)
    assert (problems, lint(parse(expression))) == ([], [])


def test_expressions_are_found() -> None:
    assert {page for page, _ in expressions()} == {
        "docs/reference/cesql.md",
        "docs/reference/contract.md",
        "parts/subscriptions_api/reference.md",
    }


def rows(page: str, header: str) -> list[list[str]]:
    """Return the cells of the table in `page` whose first row starts with `header`."""
    table = TEXTS[page].split(f"\n| {header} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


EVENT: dict[str, str | int | bool] = {
    "id": "1",
    "source": "/s",
    "type": "t",
    "time": "2026-01-01T00:00:00Z",
    "hop": 5,
}


@pytest.mark.parametrize("row", rows("docs/reference/cesql.md", "expression"), ids=lambda row: row[0])
def test_each_trap_means_what_the_page_says(row: list[str]) -> None:
    (expression,), meaning, instead = codes(row[0]), row[1], codes(row[2])
    if meaning.startswith("a parse error"):
        with pytest.raises(CesqlParseError):
            parse(expression)
    elif meaning.startswith("an error"):
        assert parse(expression).evaluate(EVENT).errors
    elif meaning.startswith("false"):
        assert parse(expression).evaluate(EVENT).value is False
    else:
        assert [parse(each).tree for each in codes(meaning)] == [parse(expression).tree]
    for each in instead:
        assert parse(each).evaluate(EVENT).errors == () or not meaning.startswith("an error")


def test_the_table_of_functions_is_complete() -> None:
    called = re.findall(
        r"(\w+)\(([^)]*)\)", " ".join(row[0] for row in rows("docs/reference/cesql.md", "name"))
    )
    shown = {(name, arguments.count(",") + 1) for name, arguments in called if "..." not in arguments}
    variadic = {name for name, arguments in called if "..." in arguments}
    assert shown == set(BUILTINS._fixed)
    assert variadic == set(BUILTINS._variadic)


def commands(start: str) -> set[tuple[str, str]]:
    """Return the page and the word after `start` of each command in a block or in a code span."""
    code = [(page, line) for page, block in blocks("sh", "console") for line in block.splitlines()]
    for page, text in TEXTS.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        code += [(page, span) for span in codes(prose.replace("\n", " "))]
    pattern = re.compile(rf"(?:\$ )?{start} ([\w.-]+)")
    return {(page, match[1]) for page, each in code if (match := pattern.match(each))}


def test_every_make_target_is_there() -> None:
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = commands("make")
    assert len(named) > 40
    assert {each for each in named if each[1] not in targets} == set()


def test_every_module_that_is_run_is_there() -> None:
    named = commands("python -m")
    assert len(named) > 10
    assert {each for each in named if importlib.util.find_spec(each[1]) is None} == set()
