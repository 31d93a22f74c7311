"""The event catalogue in a real browser, as wide as a phone."""

from __future__ import annotations

from pathlib import Path

from contract import load_contract
from contract.catalogue import catalogue
from eventplane.contract import Contract, compile_contract, contract_document
from tests.browser import seen_by

LONG = "org.example." + "a-type-that-nobody-would-want-to-read-on-a-phone." * 3 + "v1"
WIDTH = 390
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"

FRAME = """<!doctype html><body>
<iframe src="page.html#type-org.eventplane.activity.motion.v1"
  style="width:{width}px;height:844px;border:0"></iframe>
<script>addEventListener("load", () => {{
  const page = document.querySelector("iframe").contentWindow, found = page.document;
  const all = (selector) => [...found.querySelectorAll(selector)];
  const shown = (of) => all(`[data-of=${{of}}] [data-words]`).filter((each) => !each.hidden);
  const count = (of) => found.querySelector(`[data-of=${{of}}] .count`).textContent;
  const motion = found.getElementById("type-org.eventplane.activity.motion.v1");
  const seen = {{
    ready: found.body.dataset.ready, title: found.title, inner: page.innerWidth,
    wide: found.scrollingElement.scrollWidth, open: motion.open, text: motion.textContent,
    counts: ["types", "participants", "routes"].map(count),
    boxes: all("svg a").length,
    right: Math.max(...all("svg text").map((each) => each.getBoundingClientRect().right)),
  }};
  for (const each of all("details")) each.open = true;
  seen.wide_open = found.scrollingElement.scrollWidth;
  const search = found.getElementById("text");
  search.value = "Voice-Service alarm";
  search.dispatchEvent(new page.Event("input"));
  seen.found = shown("types").map((each) => each.id);
  seen.counted = count("types");
  page.location.hash = "participant-family-app";
  page.addEventListener("hashchange", () => {{
    seen.jumped = !found.getElementById("participant-family-app").hidden;
    document.body.dataset.seen = JSON.stringify(seen);
  }});
}});</script></body>"""


def odd() -> Contract:
    """The plane's own contract with a long and hostile event type."""
    document = contract_document(load_contract())
    schema = {"$id": "https://schemas.example/odd", "examples": [{"text": HOSTILE}], "title": HOSTILE}
    document["event_types"][LONG] = {"description": HOSTILE, "schemas": [schema]}
    return compile_contract(document, "odd")


def test_it_works_fits_and_no_text_of_the_contract_becomes_code(tmp_path: Path) -> None:
    contract = odd()
    (tmp_path / "page.html").write_text(catalogue(contract))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=WIDTH))
    seen = seen_by(frame)
    assert (seen["ready"], seen["title"]) == ("yes", f"Event catalogue: {contract.name}")
    assert seen["inner"] == WIDTH
    assert seen["wide"] <= WIDTH
    assert seen["wide_open"] <= WIDTH
    assert seen["right"] <= WIDTH
    parts = (contract.event_types, contract.participants, contract.routes)
    assert seen["counts"] == [str(len(each)) for each in parts]
    assert seen["boxes"] == len(contract.participants)
    # A link into the page opens what it names: who receives it, by which routes, on which condition.
    assert seen["open"] is True
    assert "family-app" in seen["text"]
    assert 'not subject ends with "/bedroom"' in seen["text"]
    assert '"state": "moved"' in seen["text"]
    assert seen["found"] == ["type-org.eventplane.alarm.keyword.v1"]
    assert seen["counted"] == f"1 of {len(contract.event_types)}"
    assert seen["jumped"] is True
