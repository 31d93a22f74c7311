"""The built site (`make docs`) as people with a phone, a keyboard or a dark room have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import Page

SITE = Path(__file__).parents[2] / "build" / "docs"
KINDS = ("tutorials", "how-to", "reference", "reference/api", "explanation", "adr", ".")
"""The folders of the site; a page of each, the longest, has what others of its kind have."""
COLOURS = ("color-contrast", "link-in-text-block")
"""What differs between light and dark."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_each_kind_is_accessible(browser: Page, kind: str) -> None:
    pages = [each for each in (SITE / kind).glob("*.html") if each.name != "404.html"]
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
