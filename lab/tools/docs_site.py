"""Fit the repository's pages into the documentation site; MkDocs calls the functions named `on_...`.

On the site, Markdown files of the root, of parts and of the lab are pages, and a link from a page to a
source file leads to a copy of that file. A link to a folder becomes plain text, one to docs/figures.json
leads to a page of all figures. A line that only links docs/tables/NAME.csv becomes that table. Scripts come
from node_modules (package.json), so that the site loads nothing from elsewhere.
"""

from __future__ import annotations

import csv
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.tools import figures

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = "docs/"
ROOT_PAGES: Final = ("CHANGELOG.md",)
PART_PAGES: Final = tuple(
    sorted(
        str(each.relative_to(ROOT))
        for room in ("parts", "lab", "lab/examples")
        for each in (ROOT / room).glob("*/*.md")
        if each.stem in ("how-to", "reference", "explanation")
    )
)
"""The pages that parts, the lab's programs and an example have in their folders, each of one kind."""
STYLE: Final = ROOT / "contract" / "pages" / "style.css"
"""The stylesheet of the project's pages; the site takes its colours (docs/stylesheets/site.css)."""
COLOURS: Final = "stylesheets/colours.css"
SITE_STYLE: Final = "stylesheets/site.css"
DIAGRAMS: Final = "javascripts/mermaid.js"
FIGURES: Final = "reference/all-figures.md"
SCRIPTS: Final = {
    DIAGRAMS: "@mermaid-js/tiny/dist/mermaid.tiny.js",
    "javascripts/mermaid.LICENSE.txt": "@mermaid-js/tiny/LICENSE",
    "javascripts/iframe-worker.js": "iframe-worker/shim/index.js",
    "javascripts/iframe-worker.LICENSE.txt": "iframe-worker/LICENSE",
}
"""The place on the site of each file of node_modules: Material would load both scripts from a CDN."""

_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\(\s*(?P<target>[^)\s]+)\)")
_TABLE: Final = re.compile(r"^\[[^\]]*\]\((?P<file>\S*/tables/(?P<name>[\w-]+)\.csv)\)$", re.MULTILINE)
_FENCE: Final = re.compile(r"(^```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str | None:
    """Return the place on the site of a file of the repository, None for a folder."""
    if (ROOT / path).is_dir():
        return None
    if path == "docs/figures.json":
        return FIGURES
    if path.startswith(DOCS):
        # A missing page keeps its link, so that the strict build reports it.
        return path.removeprefix(DOCS)
    if path in (*ROOT_PAGES, *PART_PAGES):
        return path.lower()
    return "index.md" if path == "README.md" else f"source/{path}.txt"


def repository_path(place: str) -> str:
    """Return the file of the repository behind the page at `place` of the site."""
    return next((each for each in (*ROOT_PAGES, *PART_PAGES) if each.lower() == place), DOCS + place)


def linked(text: str, path: str) -> list[str]:
    """Return the files of the repository that the page `text` at `path` links."""
    targets = [found["target"] for part in _FENCE.split(text)[::2] for found in _LINK.finditer(part)]
    return [_resolved(each, path) for each in targets if _is_local(each)]


def tables_of(text: str) -> list[str]:
    """Return the names of the tables that the page `text` takes from docs/tables."""
    return [found["name"] for found in _TABLE.finditer(text)]


def with_tables(text: str, path: str) -> str:
    """Return the page `text` of the repository's `path` with these tables in it."""

    def table(found: re.Match[str]) -> str:
        with (ROOT / _resolved(found["file"], path)).open(newline="") as file:
            head, *rows = csv.reader(file)
        return figures.table(head, rows)

    return _TABLE.sub(table, text)


def rewritten(text: str, path: str) -> str:
    """Return the page `text` of the repository's `path` with the links that it has on the site."""
    here = posixpath.dirname(site_path(path) or "")

    def link(found: re.Match[str]) -> str:
        if not _is_local(found["target"]):
            return found[0]
        place = site_path(_resolved(found["target"], path))
        if place is None:
            return found["text"]
        _, mark, fragment = found["target"].partition("#")
        return f"{found['image']}[{found['text']}]({posixpath.relpath(place, here or '.')}{mark}{fragment})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def colours(style: str) -> str:
    """Return the variables of `style` for both of the site's schemes: its first `:root`, and the dark one."""
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    return f'[data-md-color-scheme] {{{light}}}\n[data-md-color-scheme="slate"] {{{dark}}}\n'


def _is_local(target: str) -> bool:
    return not target.startswith("#") and "://" not in target and not target.startswith("mailto:")


def _resolved(target: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))


def on_files(files: Files, config: Any) -> Files:
    """Add pages of root and parts, what pages link, the page of all figures, and the project's colours."""
    # MkDocs is in the environment of `make docs` only, and tests of the rest need none.
    from mkdocs.structure.files import File

    for name in (*ROOT_PAGES, *PART_PAGES):
        if (ROOT / name).is_file():
            files.append(File.generated(config, name.lower(), content=(ROOT / name).read_text()))
    sources = {
        each
        for page in files.documentation_pages()
        for path in [repository_path(page.src_uri)]
        for each in linked(with_tables(page.content_string, path), path)
    }
    for path in sorted(sources):
        place = site_path(path)
        if place is not None and place.startswith("source/") and (ROOT / path).is_file():
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for place, script in SCRIPTS.items():
        source = ROOT / "node_modules" / script
        if not source.is_file():
            # As for MkDocs above: its error is printed without a traceback.
            from mkdocs.exceptions import PluginError

            raise PluginError(f"{source} is missing; run `make docs` or `npm ci`")
        files.append(File.generated(config, place, abs_src_path=str(source)))
    files.append(File.generated(config, FIGURES, content=figures.page(figures.kept())))
    files.append(File.generated(config, COLOURS, content=colours(STYLE.read_text())))
    config["extra_css"] += [COLOURS, SITE_STYLE]
    return files


def with_diagrams(html: str, url: str) -> str:
    """Return the content of the page at `url`, which loads the script of diagrams only if it has one."""
    if 'class="mermaid"' not in html:
        return html
    return f'{html}<script src="{posixpath.relpath(DIAGRAMS, posixpath.dirname(url) or ".")}"></script>'


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Return the content of the page with the script that its diagrams need."""
    return with_diagrams(html, page.url)


def on_post_page(output: str, **_: Any) -> str:
    """Return the page with a named search dialog, and with landmarks that differ: nested lists are none."""
    named = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return named.replace('<nav class="md-nav"', '<nav role="group" class="md-nav"')


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with its tables, and with the links that it has on the site."""
    path = repository_path(page.file.src_uri)
    return rewritten(with_tables(markdown, path), path)
