"""The audit's page in a real browser, as wide as a phone."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from local.audit_page.page import write_page
from tests.audit_report import FILE, HOUR_MS, device, finding, hour, report
from tests.browser import seen_by

LONG = "a-device-with-a-name-that-nobody-would-want-to-read-on-a-phone"
WIDTH = 390
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"

FRAME = """<!doctype html><body>
<iframe src="page.html" style="width:{width}px;height:844px;border:0"></iframe>
<script>addEventListener("load", () => {{
  const right = (each) => each.getBoundingClientRect().right;
  const page = document.querySelector("iframe").contentWindow, found = page.document;
  const matches = () => found.getElementById("count").textContent;
  const clicked = (query) => {{ found.querySelector(query).click(); return matches(); }};
  const saved = [];
  // A download would keep the browser from ending.
  page.Blob = function (parts) {{ saved.push(parts.join("")); }};
  page.URL.createObjectURL = () => "#";
  page.HTMLAnchorElement.prototype.click = () => {{}};
  const seen = {{
    ready: found.body.dataset.ready, title: found.title, inner: page.innerWidth, all: matches(),
    wide: found.scrollingElement.scrollWidth,
    right: Math.max(...[...found.querySelectorAll("section, header")].map(right)),
    drawn: ["heat", "flow"].filter((each) => found.getElementById(each)),
    curves: found.querySelectorAll(".plot path").length,
  }};
  seen.drilled = clicked("button[data-drill*=device_cloud]");
  seen.hole = clicked(".holes button");
  seen.cell = clicked("#heat button[aria-label^='home-1,']");
  const row = found.querySelector("details.finding");
  row.open = true;
  row.dispatchEvent(new page.Event("toggle"));
  seen.command = row.querySelector("pre").textContent;
  seen.object = row.querySelector("dd a").href;
  seen.wide_open = found.scrollingElement.scrollWidth;
  found.getElementById("csv").click();
  found.querySelector("[data-csv=routes]").closest(".scroll").nextElementSibling.click();
  [seen.findings_csv, seen.routes_csv] = saved;
  document.body.dataset.seen = JSON.stringify(seen);
}});</script></body>"""


def everything() -> dict[str, Any]:
    """A report with something in each of its parts, and long and hostile names."""
    hole = {
        "kind": "missing_records",
        "folder": "ledger",
        "from_ms": 7 * HOUR_MS,
        "until_ms": 8 * HOUR_MS,
        "unrecorded": 250,
        "archive_file": f"ledger/{LONG}",
        "detail": HOSTILE,
    }
    day = {"date": "1970-01-01", "verdict": "broken", "share": 0.5, "events_archived": 1}
    quarantined = {"archive": "tap", "reason": "unreadable_line", "rows": 2, "archive_file": f"tap/{LONG}"}
    lost = {"device": LONG, "route": "to-care", "inbox": f"{LONG}.inbox", "hop": "router", "lost": 2}
    return report(
        finding(detail=HOSTILE, type='=HYPERLINK("http://example.org")'),
        finding(device="home-10", id=LONG * 3, source=f"/{LONG}/{LONG}", archive_file=f"tap/{LONG}/{LONG}"),
        finding(hop="device_cloud", source=None, id=None, device=LONG),
        finding(kind="missing_records", hop="archive", device=None, archive_file=f"ledger/{LONG}"),
        hours=[hour("home-1", "1970-01-01T01", lost=1), hour(LONG, "1970-01-02T05")],
        devices=[device(LONG, lost=1), device("home-1", gaps=3), device(HOSTILE)],
        flow=[{"device": None, "route": "to-care", "inbox": "care.inbox", "delivered": 9, "lost": 2}, lost],
        trend=[{**day, "lost": 1, "unrecorded": 0, "pending": 0}],
        archive={"folders": [], "holes": [hole]},
        dead_letters=[{"place": "cloud", "reason": f"a_reason_{LONG}", "count": 3, "missing": 1}],
        quarantine=[quarantined],
    )


def test_it_works_fits_and_no_text_of_an_event_becomes_code(tmp_path: Path) -> None:
    write_page(everything(), tmp_path / "page.html", str(tmp_path / "archive"))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=WIDTH))
    seen = seen_by(frame)
    assert (seen["ready"], seen["title"]) == ("yes", "Delivery audit: broken")
    assert seen["inner"] == WIDTH
    assert seen["wide"] <= WIDTH
    assert seen["wide_open"] <= WIDTH
    assert seen["right"] <= WIDTH
    assert seen["drawn"] == ["heat", "flow"]
    assert seen["curves"] == 1
    # A hop, a hole and a cell lead to their findings; the device's hour to its own, not to that of home-10.
    assert (seen["all"], seen["drilled"], seen["hole"], seen["cell"]) == ("4 match", *3 * ("1 matches",))
    assert seen["command"].endswith("-- /homes/1/voice 1")
    assert unquote(seen["object"]) == f"{(tmp_path / 'archive').as_uri()}/{FILE}"
    # The export has what is filtered, and no cell that a spreadsheet would run.
    rows = list(csv.DictReader(StringIO(seen["findings_csv"])))
    assert [(each["device"], each["detail"], each["sequence"]) for each in rows] == [("home-1", HOSTILE, "7")]
    assert rows[0]["type"] == '\'=HYPERLINK("http://example.org")'
    (route,) = csv.DictReader(StringIO(seen["routes_csv"]))
    assert (route["route"], route["lost"], route["destination"]) == ("to-care", "3", "care.inbox")
