"""The audit's page in a real browser, as wide as a phone and as a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.audit_page.page import write_page
from tests.audit_report import device, finding, hour, report
from tests.browser import seen_by

LONG = "a-device-with-a-name-that-nobody-would-want-to-read-on-a-phone"
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"

FRAME = """<!doctype html><body>
<iframe src="page.html" style="width:{width}px;height:844px;border:0"></iframe>
<script>addEventListener("load", () => {{
  const right = (each) => each.getBoundingClientRect().right;
  const page = document.querySelector("iframe").contentWindow, found = page.document;
  const matches = () => found.getElementById("count").textContent;
  const seen = {{
    ready: found.body.dataset.ready, title: found.title, inner: page.innerWidth, all: matches(),
    wide: found.scrollingElement.scrollWidth,
    right: Math.max(...[...found.querySelectorAll("svg")].map(right)),
    plots: [...found.querySelectorAll(".plot:has(svg)")].map((each) => each.id),
  }};
  found.querySelector("button[data-drill*=device_cloud]").click();
  seen.drilled = matches();
  found.getElementById("heat").emit("plotly_click", {{points: [{{y: "home-1", x: "1970-01-01T01"}}]}});
  seen.cell = matches();
  const row = found.querySelector("details.finding");
  row.open = true;
  row.dispatchEvent(new page.Event("toggle"));
  seen.command = row.querySelector("pre").textContent;
  seen.wide_open = found.scrollingElement.scrollWidth;
  document.body.dataset.seen = JSON.stringify(seen);
}});</script></body>"""


def everything() -> dict[str, Any]:
    """A report with something in each of its parts, and long and hostile names."""
    return report(
        finding(detail=HOSTILE),
        finding(device="home-10", id=LONG * 3, source=f"/{LONG}/{LONG}", archive_file=f"tap/{LONG}/{LONG}"),
        finding(hop="device_cloud", source=None, id=None, device=LONG),
        hours=[hour("home-1", "1970-01-01T01", lost=1), hour(LONG, "1970-01-02T05")],
        devices=[device(LONG, lost=1), device("home-1", gaps=3)],
        dead_letters=[{"place": "cloud", "reason": f"a_reason_{LONG}", "count": 3, "missing": 1}],
        quarantine=[
            {"archive": "tap", "reason": "unreadable_line", "rows": 2, "archive_file": f"tap/{LONG}"}
        ],
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works_fits_and_no_text_of_an_event_becomes_code(width: int, tmp_path: Path) -> None:
    write_page(everything(), tmp_path / "page.html", "build/archive")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width))
    seen = seen_by(frame)
    assert (seen["ready"], seen["title"]) == ("yes", "Delivery audit: broken")
    assert seen["inner"] == width
    assert seen["wide"] <= width
    assert seen["wide_open"] <= width
    assert seen["right"] <= width
    assert seen["plots"] == ["heat", "waterfall", "latency", "duplicates", "letters"]
    # A tap leads to the evidence of that hop, and of that device's hour, not of home-10's.
    assert (seen["all"], seen["drilled"], seen["cell"]) == ("3 match", "1 matches", "1 matches")
    assert seen["command"].endswith("-- /homes/1/voice 1")
