"""The features that the source documents ask for, and the tests that show each: docs/reference/sources.md.

A test names rows of lab/tools/sources.toml: `@pytest.mark.source("P4", "C1")`; a file, for all of its
tests: `pytestmark = pytest.mark.source("N1")`.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).parents[2] / "tests"

SOURCES: Final[Mapping[str, Mapping[str, str]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text()
)
"""What a row asks for, by source document."""


class MarkError(Exception):
    """A `source` mark that shows nothing: an unknown row, or a place where pytest does not apply it."""


class Shown(NamedTuple):
    """A test that shows a row; `test` is None where a whole file does."""

    row: str
    file: str
    test: str | None


def shown(tests: Path = TESTS) -> list[Shown]:
    """Read the marks of all test files below `tests`, without importing any.

    Raises:
        MarkError: a mark names an unknown row or stands where it marks no test.
    """
    found = []
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text()
        if "mark.source(" in text:
            found += marks(text, path.relative_to(tests).as_posix())
    return found


def marks(text: str, file: str) -> list[Shown]:
    """Read the marks of one test file; a test that is skipped or expected to fail shows nothing."""
    tree = ast.parse(text)
    calls = {id(node) for node in ast.walk(tree) if _is_mark(node, "source")}
    found = []
    for test, marked in _marked(tree.body):
        nodes = [node for each in marked for node in ast.walk(each)]
        idle = any(_is_mark(node, "skip", "xfail") for node in nodes)
        for node in nodes:
            if isinstance(node, ast.Call) and id(node) in calls:
                calls.discard(id(node))
                found += [Shown(row, file, test) for row in _rows(node, file) if not idle]
    if calls:
        raise MarkError(
            f"{file}: a `source` mark is on no test; mark a function test_..., a class or the file"
        )
    return found


def _marked(body: Iterable[ast.stmt]) -> Iterator[tuple[str | None, list[ast.expr]]]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield name, statement.decorator_list
            case ast.ClassDef(name=name) if name.startswith("Test"):
                yield name, statement.decorator_list
                yield from _marked(statement.body)
            case ast.Assign(targets=[ast.Name("pytestmark")], value=value):
                yield None, [value]


def _is_mark(node: ast.AST, *names: str) -> bool:
    """Whether `node` is `pytest.mark.NAME`; of `source`, its call."""
    if names == ("source",):
        return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.source"
    return isinstance(node, ast.Attribute) and ast.unparse(node) in {f"pytest.mark.{each}" for each in names}


def _rows(call: ast.Call, file: str) -> Iterator[str]:
    known = {row for rows in SOURCES.values() for row in rows}
    for argument in call.args:
        row = argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
        if row not in known:
            raise MarkError(f"{file}: row {row!r} is unknown; lab/tools/sources.toml has the rows")
        yield str(row)


def rows(source: str, found: Iterable[Shown]) -> list[list[str]]:
    """Row, request and tests of one source document, as cells of a table."""
    tests: dict[str, dict[str, list[str]]] = {row: {} for row in SOURCES[source]}
    for each in found:
        if each.row in tests:
            names = tests[each.row].setdefault(each.file, [])
            names += [each.test] if each.test else []
    return [[row, asked, _cell(tests[row])] for row, asked in SOURCES[source].items()]


def _cell(files: Mapping[str, list[str]]) -> str:
    return "<br>".join(
        f"[{file}](../../tests/{file})" + (f": {', '.join(f'`{name}`' for name in names)}" if names else "")
        for file, names in files.items()
    )


def missing(found: Iterable[Shown]) -> list[str]:
    """The rows that no test shows."""
    have = {each.row for each in found}
    return [row for rows in SOURCES.values() for row in rows if row not in have]
