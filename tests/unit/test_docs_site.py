"""Every link of the pages leads to a file and a heading. `make docs` checks the navigation."""

import os
import re
from pathlib import Path

import pytest

from lab.tools import figures
from lab.tools.docs_site import PART_PAGES, ROOT_PAGES, tables_of, with_tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = sorted(each for each in ROOT.glob("*/README.md") if each.parent.name != "node_modules")
PAGES = [
    *(ROOT / each for each in ("README.md", *ROOT_PAGES, *PART_PAGES)),
    *ROOMS,
    ROOT / "lab" / "examples" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    # The site has a page of all figures in the place of their data.
    if page.name == "figures.json":
        text = figures.page(figures.kept())
    else:
        text = FENCE.sub("", with_tables(page.read_text(), page.relative_to(ROOT).as_posix()))
    return {slug(each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} | set(
        re.findall(r'<a (?:id|name)="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = FENCE.sub("", with_tables(page.read_text(), page.relative_to(ROOT).as_posix()))
    broken = []
    for target in re.findall(r"\]\(\s*([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        if not file.exists() or (
            fragment and file.suffix in (".md", ".json") and fragment not in anchors(file)
        ):
            broken.append(target)
    assert broken == []


def test_each_room_has_a_short_readme() -> None:
    tracked = {each.parent.name for each in ROOT.glob("*/__init__.py")} | {"tests"}
    assert tracked <= {each.parent.name for each in ROOMS}
    assert [each.parent.name for each in ROOMS if len(each.read_text().splitlines()) > 30] == []


def test_each_table_is_on_a_page() -> None:
    shown = {name for page in PAGES for name in tables_of(page.read_text())}
    assert shown == {each.stem for each in (DOCS / "tables").iterdir()}


def test_the_tests_of_the_web_hooks_specification_exist() -> None:
    page = (ROOT / "parts" / "webhooks" / "reference.md").read_text()
    named = re.findall(r"`U/(\w+\.py)::(\w+)`", page)
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests/parts/webhooks" / file).read_text(), test
