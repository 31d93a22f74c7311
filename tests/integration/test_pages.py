"""Every page in a real browser, light and dark, narrow and wide: it fits, and each text can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import load_contract
from contract.catalogue import catalogue
from eventplane.contract import compile_contract, contract_document
from local.control_room.plane import Fault
from local.control_room.server import ControlRoom
from tests.browser import Page
from tests.fake_plane import FakePlane
from tests.pages import write_pages

UNREADABLE = """(() => {
  const numbers = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const shape = each instanceof SVGElement && each.querySelector(":scope > rect");
      const rgb = numbers(shape ? getComputedStyle(shape).fill : getComputedStyle(each).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
    return [255, 255, 255];
  };
  for (const each of document.querySelectorAll("details")) each.open = true;
  const found = [];
  let looked = 0;
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    const isText = !["SCRIPT", "STYLE", "title"].includes(element.tagName);
    if (!own || !isText || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), isDrawn = element instanceof SVGElement;
    // A drawn text with a halo is read on its halo.
    const on = isDrawn && style.stroke !== "none" ? numbers(style.stroke) : ground(element);
    const [darker, lighter] = [
      light(numbers(isDrawn ? style.fill : style.color)), light(on),
    ].sort((one, other) => one - other);
    looked += 1;
    if ((lighter + 0.05) / (darker + 0.05) < 4.5) found.push(element.outerHTML.slice(0, 200));
  }
  return [looked, found];
})()"""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    files = write_pages(tmp_path_factory.mktemp("pages"))
    plane = FakePlane()
    plane.send_alarm()
    plane.strike(Fault.NETWORK)
    plane.strike(Fault.ROUTER)
    plane.send_alarm()
    with ControlRoom(plane) as room:
        yield {**{name: file.as_uri() for name, file in files.items()}, "control room": room.url}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["audit", "demo", "catalogue", "control room"])
def test_a_page_fits_and_can_be_read(
    browser: Page, urls: dict[str, str], name: str, width: int, scheme: str
) -> None:
    browser.resize(width)
    browser.set_scheme(scheme)
    browser.open(urls[name])
    if name == "control room":
        browser.wait_for("document.querySelector('#events tr')")
    assert browser.run("document.scrollingElement.scrollWidth <= innerWidth")
    looked, unreadable = browser.run(UNREADABLE)
    assert looked > 20
    # A word of a table's head is never broken.
    broken = "(each) => each.getClientRects().length > each.textContent.split(' ').length"
    assert browser.run(f"[...document.querySelectorAll('th a.term')].filter({broken}).length") == 0
    assert unreadable == []
    # A word leads to its meaning.
    browser.run("document.querySelector('a.term').click()")
    assert browser.run("document.querySelector('dt:target').id").startswith("word-")
    assert browser.problems == []


def test_one_hour_is_a_cell_and_not_a_bar_across_the_page(browser: Page, urls: dict[str, str]) -> None:
    browser.resize(1280)
    browser.open(urls["audit"])
    widths = browser.run("[...document.querySelectorAll('#heat > button')].map((each) => each.clientWidth)")
    assert len(widths) == 2
    assert max(widths) <= 64


@pytest.mark.parametrize("width", [390, 1280])
def test_every_name_is_within_its_box_of_the_catalogue(browser: Page, tmp_path: Path, width: int) -> None:
    document = contract_document(load_contract())
    names = ("neighbourhood-watch-group", "a-bcdefghijklmnopqrstuvwxy", "abcdefghijklmnopqrstuvwxyz")
    for name in names:
        document["participants"][name] = {"kind": "cloud_service", "description": "d", "sends": []}
    page = tmp_path / "page.html"
    page.write_text(catalogue(compile_contract(document, "long names")))
    browser.resize(width)
    browser.open(page.as_uri())
    outside = browser.run(
        """[...document.querySelectorAll("svg a")].flatMap((link) => {
          const box = link.querySelector("rect").getBoundingClientRect();
          return [...link.querySelectorAll("text")].filter((each) => {
            const text = each.getBoundingClientRect();
            return text.left < box.left || text.right > box.right || text.bottom > box.bottom + 1;
          }).map((each) => each.textContent);
        })"""
    )
    assert outside == []
    lines = "[...link.querySelectorAll('text')].map((each) => each.textContent).join('')"
    drawn = browser.run(f"[...document.querySelectorAll('svg a')].map((link) => {lines})")
    assert set(names) <= set(drawn)
