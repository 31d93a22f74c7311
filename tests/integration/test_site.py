"""The built site (`make docs`), and the page of queries, whose libraries are in the site's environment."""

import gzip
import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from eventplane.archive_layout import TAP_FOLDER
from lab.archive_generator.flows import audited_contracts
from lab.archive_generator.generator import Scale, generate
from tests.browser import Page

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"
PYTHON = str(ROOT / ".venv-docs" / "bin" / "python")
KINDS = ("tutorials", "how-to", "reference", "reference/api", "explanation", "adr", "parts/*", "lab/*", ".")
"""The folders of the site; a page of each, the longest, has what others of its kind have."""
COLOURS = ("color-contrast", "link-in-text-block")
"""What differs between light and dark."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_each_kind_is_accessible(browser: Page, kind: str) -> None:
    pages = [each for each in SITE.glob(f"{kind}/*.html") if each.name != "404.html"]
    assert pages, "build the site first: make docs"
    url = max(pages, key=lambda each: each.stat().st_size).as_uri()
    for scheme, palette, rules in (("light", "default", ()), ("dark", "slate", COLOURS)):
        browser.set_scheme(scheme)
        browser.open(url)
        browser.run("localStorage.clear()")  # or the site keeps the palette of the first visit
        browser.open(url)
        browser.wait_for(f"document.body.dataset.mdColorScheme === '{palette}'")
        for width in (400, 1280):
            browser.resize(width)
            assert browser.violations(*rules) == [], (url, scheme, width)


COMPACT = """
import duckdb, pathlib
for hour in pathlib.Path("archive/tap").glob("date=*/hour=*"):
    name = f"tap/{hour.parent.name}/{hour.name}"
    folder, lists = pathlib.Path("archive/compacted", name, "run=1"), pathlib.Path("archive/published", name)
    folder.mkdir(parents=True)
    lists.mkdir(parents=True)
    columns = "message_id, index, client_id, event ->> '$.type' AS type"
    duckdb.sql(f"COPY (SELECT {columns} FROM read_json('{hour}/*.json.gz')) TO '{folder}/a.parquet'")
    (folder / "left.parquet").write_bytes(b"of a run that was killed")
    (lists / "files").write_text(f"s3://bucket/{folder.relative_to('archive')}/a.parquet")
"""
RESULTS = """
import json
types = by_type.select([0, 1]).to_pandas()
print(json.dumps([loudest.fetchall(), outcomes.reset_index().values.tolist(), types.values.tolist()]))
"""


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return each row of the archive's folder once, by its text."""
    texts = "".join(gzip.decompress(file.read_bytes()).decode() for file in folder.rglob("*.json.gz"))
    return {line: json.loads(line) for line in texts.splitlines()}


def test_the_queries_over_the_archive_run_and_agree(tmp_path: Path) -> None:
    plan = Scale(events=800, hours=4, events_an_hour=25, fault_every=0, trouble_every=0, rows=300)
    generate(tmp_path, plan, audited_contracts())
    tap, ledger = (tmp_path / "archive" / each for each in ("tap", "ledger"))
    assert {"message_id", "index", "client_id", "type"} <= {
        each.name for each in TAP_FOLDER.compacted_columns
    }
    page = (ROOT / "parts/queries/how-to.md").read_text()
    blocks = re.findall(r'^```python title="\w+"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    subprocess.run([PYTHON, "-c", COMPACT], cwd=tmp_path, check=True)
    # Raw rows are written at least once.
    for first in (next(tap.rglob("*.json.gz")), next(ledger.rglob("*.json.gz"))):
        copyfile(first, first.with_name("copy.json.gz"))
    script = "\n".join([*blocks, RESULTS])
    printed = subprocess.check_output([PYTHON, "-c", script], cwd=tmp_path, text=True)
    loudest, outcomes, by_type = json.loads(printed.splitlines()[-1])
    events = [each for each in rows(tap).values() if each["event"]]
    assert dict(loudest) == Counter(each["client_id"] for each in events)
    found = Counter((each["outcome"], each["reason"]) for each in rows(ledger).values())
    assert sorted(count for *_, count in outcomes) == sorted(found.values())
    assert dict(by_type) == Counter(json.loads(each["event"])["type"] for each in events)
