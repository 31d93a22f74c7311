"""The generated tables of the docs, and that those of lab/tools/reference name what is there."""

import argparse
import ast
import csv
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.rehearsal import Effect
from eventplane.contract.mapping import TopicMapping
from eventplane.conversation.messages import Status
from eventplane.device_reports import DISCARDED, DISK_FAILED, HEARTBEAT, MANIFEST, REPORT_PREFIX, STARTED
from eventplane.downlink.addressing import ATTRIBUTES
from eventplane.sinks import SinkReach, SinkScope
from eventplane_client import errors
from glue_jobs.delivery_audit.event_group import Ruling
from lab.tools.sources import SOURCES, MarkError, Shown, marks, missing
from lab.tools.tables import ATTRIBUTES as MEANINGS
from lab.tools.tables import OLDEST, SINCE, attributes_table, function_settings_table
from operations import contract_command
from operations.certificate import Flaw
from parts.webhooks.settings import WebhookSettings
from stacks.settings import Retention

ROOT = Path(__file__).parents[2]
TABLES = {
    name: each
    for file in (ROOT / "lab" / "tools" / "reference").glob("*.toml")
    for name, each in tomllib.loads(file.read_text()).items()
}


def named(table: str, column: int = 0) -> set[str]:
    """Return the first word of each code span in a column."""
    cells = [row[column] for row in TABLES[table]["rows"]]
    return {each.split()[0] for cell in cells for each in re.findall(r"`([^`]+)`", cell)}


def problems() -> set[str]:
    code = "".join(each.read_text() for each in (ROOT / "edge").glob("health_*.py"))
    return set(re.findall(r'Finding\(\s*"(\w+)"', code))


def verbs() -> set[str]:
    parser = argparse.ArgumentParser()
    contract_command.arguments(parser)
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return set(action.choices)


def parameters() -> set[str]:
    code = (ROOT / "glue_jobs/delivery_audit/main.py").read_text()
    return set(re.findall(r'"(--[A-Z_]+)"', code)) | {"--ATTESTATION_KEY", "--METRICS"}


OUTSIDE = {"unrouted", "misrouted", "unexplained", "internal"}
"""Rulings on what no contract expects; the page has them among the figures and findings."""

NAMES: dict[str, Callable[[], set[str]]] = {
    "device-problems": problems,
    "device-reports": lambda: {
        each.removeprefix(REPORT_PREFIX) for each in (STARTED, DISCARDED, MANIFEST, DISK_FAILED, HEARTBEAT)
    },
    "contract-commands": verbs,
    "contract-mappings": lambda: set(TopicMapping._fields[2:]),
    "audit-parameters": parameters,
    "audit-deliveries": lambda: {str(each) for each in Ruling} - OUTSIDE,
    "certificate-flaws": lambda: {str(each) for each in Flaw},
    "rehearsal-changes": lambda: {str(each) for each in Effect},
    "reply-statuses": lambda: {str(each) for each in Status} | {"not_awaited"},
    "archive-retention": lambda: set(Retention.__dataclass_fields__),
}


@pytest.mark.parametrize("table", NAMES)
def test_a_table_names_all_there_is(table: str) -> None:
    assert named(table) == NAMES[table]()


def test_each_decision_is_listed() -> None:
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", str(TABLES["decisions"]["rows"]))
    assert sorted(listed) == sorted(each.name for each in (ROOT / "docs" / "adr").glob("0*.md"))


def test_the_errors_of_the_client_exist() -> None:
    raised = {each for each in named("client-errors") if each.endswith("Error")}
    assert {each for each in raised if not hasattr(errors, each)} == set()


@pytest.mark.parametrize("table", [each for each in TABLES if each.startswith("attempts-")])
def test_the_tests_of_attempts_exist(table: str) -> None:
    for row in TABLES[table]["rows"]:
        file = ""
        for path, test in re.findall(r"`([\w/]*\.?p?y?)::(\w+)`", row[2]):
            file = path or file
            code = (ROOT / (file if "/" in file else f"tests/adversary/{file}")).read_text()
            functions = (each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.FunctionDef))
            assert test in {each.name for each in functions}, test


def test_every_attribute_that_the_code_knows_is_in_the_reference() -> None:
    assert set(tomllib.loads(MEANINGS.read_text())) == ATTRIBUTES
    assert "| `routerhops` | Integer |" in attributes_table()


def test_every_variable_that_the_stacks_write_is_in_the_reference() -> None:
    table = function_settings_table()
    settings = WebhookSettings(
        reach=SinkReach(SinkScope.INTERNET),
        webhook_secret="secret",
        webhook_origin="origin",
        outbox_queue="outbox",
        dead_letter_queue="dead",
        concurrency=1,
        archive_bucket="archive",
        endpoints_table="endpoints",
        source="inbox",
        webhook_url="https://example.org",
    )
    assert all(f"`{name}`" in table for name in settings.variables())


TEST = '@pytest.mark.source("P4", "C1")\ndef test_a(): ...\n'


def test_marks_show_their_rows() -> None:
    method = (
        f"@pytest.mark.source('K1')\nclass TestA:\n    {TEST.splitlines()[0]}\n    def test_b(self): ...\n"
    )
    case = "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.source('B1'))])\n"
    file = "pytestmark = [pytest.mark.source('N1')]\n"
    found = marks(f"{TEST}{method}{case}def test_c(a): ...\n{file}", "a.py")
    shown = [(each.row, each.test) for each in found]
    at_a, at_b = [("P4", "test_a"), ("C1", "test_a")], [("P4", "test_b"), ("C1", "test_b")]
    assert sorted(shown, key=str) == sorted(
        [*at_a, *at_b, ("K1", "TestA"), ("B1", "test_c"), ("N1", None)], key=str
    )


@pytest.mark.parametrize("mark", ["pytest.mark.skip", 'pytest.mark.xfail(reason="not yet")'])
def test_a_test_that_is_skipped_or_expected_to_fail_shows_nothing(mark: str) -> None:
    assert marks(f"@{mark}\n{TEST}", "a.py") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('@pytest.mark.source("P99")\ndef test_a(): ...\n', "row 'P99' is unknown"),
        ('@pytest.mark.source("P1")\ndef helper(): ...\n', r"a\.py: a `source` mark is on no test"),
    ],
)
def test_a_mark_of_no_row_or_no_test_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(MarkError, match=problem):
        marks(text, "a.py")


def test_a_row_without_a_test_is_missing() -> None:
    rows = [Shown(row, "a.py", None) for asked in SOURCES.values() for row in asked]
    assert missing(rows) == []
    assert missing([each for each in rows if each.row != "P4"]) == ["P4"]


@pytest.mark.parametrize(("name", "old"), [("settings", 59), ("client-settings", 14), ("environment", 173)])
def test_a_setting_says_since_when(name: str, old: int) -> None:
    """A new one has an entry in lab/tools/since.toml."""
    with (ROOT / "docs" / "tables" / f"{name}.csv").open(newline="") as file:
        rows = {row["setting"].strip("`"): row["since"] for row in csv.DictReader(file)}
    assert {each for those in SINCE[name].values() for each in those} <= rows.keys()
    assert list(rows.values()).count(OLDEST) == old
