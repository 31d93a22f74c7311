"""The page of an audit: what it says, draws and tells to type. That it works is tested in a browser."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lab.audit_page.drawings import BANDS, heat_map
from lab.audit_page.page import trace_command, write_page
from tests.audit_report import finding, hour, report


def test_the_heat_map_tells_states_apart() -> None:
    drawn = heat_map(
        [
            hour("home-1", "2026-03-01T00"),
            hour("home-1", "2026-03-01T02", pending=1),
            hour("home-1", "2026-03-01T03", unrecorded=1, pending=1),
            hour("home-2", "2026-03-01T00", events=999, lost=1),
            hour("home-2", "2026-03-01T01", events=91, lost=9),
            hour("home-2", "2026-03-01T02", events=90, lost=10),
            hour("home-2", "2026-03-01T03", events=0, lost=3),
        ]
    )
    assert drawn is not None
    bands = {name: [cell and BANDS[cell.band] for cell in cells] for name, cells in drawn.rows}
    assert bands == {
        "home-2": ["under 1 % lost", "under 10 % lost", "10 % lost or more", "10 % lost or more"],
        "home-1": ["complete", None, "waiting", "unrecorded"],
    }
    assert list(bands) == ["home-2", "home-1"]
    cell = drawn.rows[0][1][1]
    assert cell.text == "2026-03-01 01:00: 91 events, 9 lost"


def test_no_name_becomes_a_command() -> None:
    command = trace_command(finding(source="--live", id="a'; rm -rf /"), "build/archive")
    assert command is not None
    assert shlex.split(command)[2:] == [
        *("--from", "1970-01-01", "--to", "1970-01-02"),
        *("--archive", "build/archive", "--contract", "build/archive/contracts/abc.json"),
        *("--", "--live", "a'; rm -rf /"),
    ]
    assert trace_command(finding(source=None, id=None), None) is None


@pytest.mark.parametrize(
    ("findings", "verdict"), [([], "Nothing was lost,"), ([finding()], "1 events lost on the way: router.")]
)
def test_the_verdict_comes_first(findings: list[dict[str, Any]], verdict: str, tmp_path: Path) -> None:
    write_page(report(*findings), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    banner = text[: text.index("<h2>")]
    assert verdict in banner
    assert "10 of 10 device events are attested by manifests: 100 %." in banner
    assert "3 events for inboxes on devices: 2 confirmed by their readers, 1 taken by the broker." in banner
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text.split("<script>")[0])
