"""The documentation site: every page is in its navigation, every link leads somewhere (`make docs`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.docs_site import ROOT_PAGES, SCRIPTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(ROOT / each for each in ROOT_PAGES), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)


class Loader(yaml.SafeLoader):
    """Read mkdocs.yml without MkDocs: the Python objects that it names are not needed here."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from entries(each)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = list(entries(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]))  # noqa: S506
    written = [each.relative_to(DOCS).as_posix() for each in DOCS.rglob("*.md")]
    assert sorted(nav) == sorted([*written, "changelog.md", "contributing.md", "security.md"])


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text())
    return {slug(each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)} | set(
        re.findall(r'<a (?:id|name)="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    broken = []
    for target in re.findall(r"\]\(\s*([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, fragment = target.partition("#")
        file = Path(os.path.normpath(page.parent / path)) if path else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_scripts_of_the_site_are_pinned() -> None:
    pinned = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    for script in SCRIPTS.values():
        package = "/".join(script.split("/")[: 2 if script.startswith("@") else 1])
        assert pinned[f"node_modules/{package}"]["integrity"]


def test_the_tests_of_the_web_hooks_specification_exist() -> None:
    page = (DOCS / "reference" / "http-webhook.md").read_text()
    named = re.findall(r"`U/(\w+\.py)::(\w+)`", page)
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests/unit/lambdas/http_sink" / file).read_text(), test
