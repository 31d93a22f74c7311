"""The pages' common look: colours that can be read, one stylesheet, tables and words with their meaning."""

import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest

from contract import pages
from contract.pages.__init__ import MEANINGS, Glossary
from lab.audit_page.page import write_page
from lab.demo import report as demo_report
from tests.audit_report import finding, hour, report
from tests.pages import write_pages
from tests.unit.lab.test_demo import audit, summary_of, verdict

TEXT = 4.5
GRAPHICS = 3.0
"""The least contrasts of WCAG 2.2, level AA."""

SURFACES = ("ground", "card")
PAIRS = [
    *((ink, on, TEXT) for ink, on in product(("ink", "dim", "link", "bad", "good", "urgent"), SURFACES)),
    *(("on-badge", on, TEXT) for on in ("badge", "act", "proven", "open", "incomplete", "broken")),
    *(("ink", on, TEXT) for on in ("chip", "box", "box-hover")),
    ("dim", "lane", TEXT),
    ("on-code", "code", TEXT),
    *((line, on, GRAPHICS) for line, on in product(("edge", "focus"), SURFACES)),
    *((line, "card", GRAPHICS) for line in ("flow", "low", "box-edge", "b1", "b2", "b3", "b4", "b5")),
]


def schemes() -> dict[str, dict[str, str]]:
    """The colours by variable, of the light and of the dark scheme."""
    text = pages.STYLESHEET.read_text()
    light, dark = re.findall(r":root \{(.*?)\}", text, re.DOTALL)[:2]
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", each)) for each in (light, dark)]
    return {"light": found[0], "dark": {**found[0], **found[1]}}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme: str) -> None:
    colours = schemes()[scheme]
    found = {(one, on): contrast(colours[one], colours[on]) for one, on, _ in PAIRS}
    assert {pair: found[pair[0], pair[1]] for pair in PAIRS if found[pair[0], pair[1]] < pair[2]} == {}


def test_every_colour_is_set_in_the_stylesheet_only() -> None:
    root = pages.HERE.parents[1]
    files = [
        each
        for folder in ("contract", "lab")
        for each in (root / folder).rglob("*")
        if each.suffix in (".css", ".j2")
    ]
    assert len(files) >= 6
    rules = {each: each.read_text() for each in files}
    named = {each: set(re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s\"])", text)) for each, text in rules.items()}
    assert {each: colours for each, colours in named.items() if colours and each != pages.STYLESHEET} == {}
    used = {name for text in rules.values() for name in re.findall(r"var\(--([\w-]+)\)", text)}
    assert used - {"columns"} <= schemes()["light"].keys()


class _Outline(HTMLParser):
    """Counts elements, and collects what assistive technology needs of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", ["audit", "demo", "catalogue"])
def test_a_page_has_one_main_part_and_accessible_tables(name: str, tmp_path: Path) -> None:
    page = write_pages(tmp_path)[name].read_text()
    outline = _Outline()
    outline.feed(page.replace("<script>", "<!--").replace("</script>", "-->"))
    count = [tag for tag, _ in outline.elements].count
    assert (count("main"), count("h1")) == (1, 1)
    assert count("caption") == count("table")
    assert count("table") or name == "catalogue"
    assert all(given.get("scope") in ("row", "col") for tag, given in outline.elements if tag == "th")
    assert pages.STYLESHEET.read_text() in page
    # A link to a word's meaning leads somewhere, and every meaning is that of a word in use.
    links = {given["href"] for tag, given in outline.elements if given.get("class") == "term"}
    meanings = {f"#{given['id']}" for tag, given in outline.elements if tag == "dt" and "id" in given}
    assert links == meanings
    assert links


def test_a_word_is_linked_at_its_first_use_in_every_spelling() -> None:
    glossary = Glossary()
    assert 'href="#word-dead-letter"' in glossary.term("Dead_letters")
    assert glossary.term("dead-lettered") == "dead-lettered"
    assert glossary.term("home") == "home"
    assert glossary.used() == [("dead letter", MEANINGS["dead letter"])]


def test_text_is_escaped_in_scripts_and_links() -> None:
    assert "<" not in pages.embedded({"text": "</script><b>"})
    assert Glossary().term("<b>", "lost").endswith(">&lt;b&gt;</a>")


def test_the_count_of_the_audit_includes_the_devices_own_reports(tmp_path: Path) -> None:
    judged = audit(operations=14)
    summary = summary_of([verdict("operations", 13, reports=1)], judged)
    summary |= {"alarms": [], "notices": [], "payload_letters": []}
    demo_report.write_page(summary, tmp_path / "demo.html", "audit.html")
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", (tmp_path / "demo.html").read_text())
    at = cells.index("operations")
    assert cells[at : at + 9] == ["operations", "13", "13", "0", "0", "0", "0", "1", "14"]


def test_losses_without_a_device_are_shown(tmp_path: Path) -> None:
    document = report(finding(device=None), hours=[hour("home-1", "1970-01-01T01")])
    write_page(document, tmp_path / "page.html")
    assert "1 of 1 lost events belong to no device above" in (tmp_path / "page.html").read_text()
    document = report(finding(), hours=[hour("home-1", "1970-01-01T01", lost=1)])
    write_page(document, tmp_path / "page.html")
    assert "belong to no device above" not in (tmp_path / "page.html").read_text()
