"""The page of an audit: it says the verdict, needs nothing from elsewhere, and works in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly", reason="make setup installs it")

from local.audit_page.page import EVIDENCE, write_page
from local.audit_page.plots import heat_map, latency_curves, waterfall

HOUR_MS = 3_600_000
CHROMIUM = shutil.which("chromium")


def finding(**more: Any) -> dict[str, Any]:
    known = {"kind": "lost", "hop": "router", "device": "home-1", "at_ms": HOUR_MS, "source": "/a", "id": "1"}
    return {**dict.fromkeys(EVIDENCE), **known, **more}


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    names = "events_archived expected delivered pending misrouted duplicated dead_lettered expired devices"
    totals = dict.fromkeys(names.split(), 7) | {"pending": 0, "quarantined": 0}
    return {
        "verdict": "broken" if findings else "kept",
        "window": {"date": "2026-03-01"},
        "contract_versions": [{"name": "small", "version": "abc"}],
        "totals": {**totals, "lost": len(findings), "findings": len(findings)},
        "lost_by_hop": {"device_cloud": 0, "router": len(findings), "inbox_consumer": 0},
        "latency": [
            {"hop": "h", "priority": "urgent", "p50_ms": -3, "p95_ms": 5, "p99_ms": 6.5, "max_ms": 9}
        ],
        "devices": [],
        "kinds": [{"kind": "lost", "hop": "router", "count": len(findings)}],
        "routes": [],
        "dead_letters": [],
        "findings": list(findings),
        "quarantine": [],
    }


def test_the_heat_map_counts_broken_promises_by_device_and_hour() -> None:
    others = [finding(kind="expired"), finding(device=None), finding(at_ms=None)]
    figure = heat_map([finding(), finding(), finding(at_ms=3 * HOUR_MS), finding(device="home-2"), *others])
    assert figure is not None
    (cells,) = figure.data
    assert list(cells.y) == ["home-1", "home-2"]
    assert list(cells.x) == ["1970-01-01 01:00", "1970-01-01 02:00", "1970-01-01 03:00"]
    assert [list(row) for row in cells.z] == [[2, 0, 1], [1, 0, 0]]


def test_where_nothing_is_broken_there_is_no_heat_map() -> None:
    assert heat_map([finding(kind="expired")]) is None


def test_the_waterfall_ends_with_the_sum() -> None:
    (bars,) = waterfall({"device_cloud": 1, "router": 20, "inbox_consumer": 300}).data
    assert list(bars.y)[:3] == [1, 20, 300]
    assert list(bars.text) == ["1", "20", "300", "321"]


def test_a_latency_below_zero_has_no_place_on_the_curve() -> None:
    figure = latency_curves(report()["latency"])
    assert figure is not None
    assert list(figure.data[0].x) == [5, 6.5, 9]
    assert latency_curves([]) is None


@pytest.mark.parametrize(("findings", "verdict"), [([], "Nothing was lost."), ([finding()], "1 lost.")])
def test_the_verdict_comes_first(findings: list[dict[str, Any]], verdict: str, tmp_path: Path) -> None:
    write_page(report(*findings), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert verdict in text[: text.index("<h2>")]
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text.split("<script>")[0])


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium (Debian: chromium)")
def test_it_works_in_a_browser_and_no_text_of_an_event_becomes_code(tmp_path: Path) -> None:
    hostile = "</script><script>document.title='taken'</script>"
    write_page(report(finding(detail=hostile), finding(id="2")), tmp_path / "page.html")
    look = "<script>const svgs = [...document.querySelectorAll('svg')];"
    look += "const most = Math.max(...svgs.map((each) => each.getBoundingClientRect().right));"
    look += "document.body.dataset.widest = Math.round(most - document.documentElement.clientWidth);</script>"
    page = tmp_path / "page.html"
    page.write_text(page.read_text().replace("</body>", f"{look}</body>"))
    dom = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=500,900",
            "--virtual-time-budget=10000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    body = re.search(r"<body[^>]*>", dom)
    assert body is not None
    assert 'data-ready="yes"' in body[0]
    assert int(re.findall(r'data-widest="(-?\d+)"', body[0])[0]) <= 0
    assert "<title>Delivery audit: broken</title>" in dom
    assert re.search(r'<p class="dim" id="count">2 match</p>', dom)
    assert "&lt;/script&gt;&lt;script&gt;" in dom
