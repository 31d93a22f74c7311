"""What all pages have in common: one base template, one stylesheet, and a glossary.

It lies here because the catalogue is installed with the contract's reader; the pages of `local/` use it too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from contract.pages.glossary import Glossary

HERE: Final = Path(__file__).parent
STYLESHEET: Final = HERE / "style.css"


def environment(folder: Path) -> Environment:
    """Return the templates of `folder` and the common ones, for one page.

    The glossary remembers which words a page has used: make another environment for another page.
    """
    made = Environment(
        loader=FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    glossary = Glossary()
    made.globals |= {"glossary": glossary, "term": glossary.term, "stylesheet": text_of(STYLESHEET)}
    return made


def text_of(path: Path) -> Markup:
    """Return a stylesheet or script of ours, which a page embeds as it is."""
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - our own file


def embedded(value: object) -> Markup:
    """Return `value` as JSON that may be within a script element: no text of an event can end it."""
    text = json.dumps(value, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped here
