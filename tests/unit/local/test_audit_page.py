"""The page of an audit: what it says, draws and tells to type. That it works is tested in a browser."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from local.audit_page import __main__ as command
from local.audit_page import words
from local.audit_page.drawings import BANDS, HOUR_MS, MOST_DEVICES, flow, heat_map, latencies
from local.audit_page.page import objects_at, trace_command, write_page
from tests.audit_report import finding, hour, report

MOST_BYTES = 1_500_000


def test_the_heat_map_tells_lost_unrecorded_pending_and_complete_from_no_event() -> None:
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
        "home-1": ["complete", None, "pending", "unrecorded"],
    }
    assert list(bands) == ["home-2", "home-1"]
    cell = drawn.rows[0][1][1]
    assert cell is not None
    assert cell.text == "2026-03-01 01:00: 91 events, 9 lost"


def test_a_window_of_weeks_is_drawn_by_day_and_a_fleet_by_its_worst() -> None:
    days = [hour("home-1", f"2026-03-{day:02}T05", lost=1) for day in (1, 1, 31)]
    drawn = heat_map([*days, *(hour(f"other-{n}", "2026-03-02T00") for n in range(50))])
    assert drawn is not None
    assert (drawn.step_ms, drawn.devices, len(drawn.rows)) == (24 * HOUR_MS, 51, MOST_DEVICES)
    name, cells = drawn.rows[0]
    assert (name, len(cells), drawn.ticks[0]) == ("home-1", 31, (0, "03-01"))
    assert cells[0] is not None
    assert cells[0].text == "2026-03-01 00:00: 20 events, 2 lost"
    assert heat_map([]) is None


def route(name: str, inbox: str | None, **counts: int) -> dict[str, Any]:
    """A row about all devices together."""
    return {"device": None, "route": name, "inbox": inbox, "lost": 0, **counts}


def test_the_flow_leads_from_devices_over_routes_to_inboxes_and_counts_a_loss_once() -> None:
    drawn = flow(
        [
            route("alarms", "help.inbox", delivered=1_000, lost=3, unrecorded=250),
            {"device": "home-7", "route": "alarms", "inbox": "help.inbox", "hop": "router", "lost": 2},
        ]
    )
    assert drawn is not None
    assert sorted(each.text for each in drawn.ribbons) == [
        "alarms → help.inbox: 1,000 delivered or without a route",
        "alarms → help.inbox: 253 lost, unrecorded or dead-lettered",
        "all devices → alarms: 1,000 delivered or without a route",
        "all devices → alarms: 251 lost, unrecorded or dead-lettered",
        "home-7 → alarms: 2 lost, unrecorded or dead-lettered",
    ]
    assert {node.name: node.x for node in drawn.nodes} == {
        "all devices": 0,
        "home-7": 0,
        "alarms": 330,
        "help.inbox": 660,
    }


def test_what_reached_no_route_ends_at_the_hop_that_lost_it() -> None:
    lost = {"device": "home-7", "route": None, "inbox": None, "hop": "iot_rule", "lost": 1}
    drawn = flow([lost, route("(unrouted)", None, unrouted=4)])
    assert drawn is not None
    assert {"home-7 → lost: IoT Core's rule: 1 lost, unrecorded or dead-lettered"} < {
        each.text for each in drawn.ribbons
    }
    assert "(unrouted) → no inbox: 4 delivered or without a route" in {each.text for each in drawn.ribbons}
    assert flow([]) is None
    assert flow([route("quiet", "a.inbox", delivered=0)]) is None


def row(priority: str | None, p50: float, most: float, samples: int = 4) -> dict[str, Any]:
    """The latency of a hop."""
    quantiles = {"p50_ms": p50, "p95_ms": p50, "p99_ms": most, "max_ms": most}
    return {"hop": "cloud_to_inbox", "priority": priority, "samples": samples, **quantiles}


@pytest.mark.parametrize("most", [-5.0, 0.0, 1.0, 10.0, 10.5, 99_999.0, 1e12])
def test_no_curve_leaves_its_box(most: float) -> None:
    (drawn,) = latencies([row("urgent", -1e9, most)])
    assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y, _ in drawn.curves[0].points)


@pytest.mark.parametrize(
    ("milliseconds", "told"),
    [(None, "-"), (0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (-90_000, "-1.5 min"), (36e6, "10 h")],
)
def test_durations_are_told_in_a_unit_that_fits(milliseconds: float | None, told: str) -> None:
    assert words.duration(milliseconds) == told


@pytest.mark.parametrize(
    ("part", "told"), [(None, "unknown"), (0.0632, "6.3 %"), (0.99999, "99.9 %"), (1.0, "100 %")]
)
def test_less_than_all_is_never_100_percent(part: float | None, told: str) -> None:
    assert words.share(part) == told


def test_the_coverage_is_a_sentence_also_without_a_list_of_devices() -> None:
    coverage = report()["coverage"]
    coverage |= {
        "share": 128 / 2026,
        "events": {"manifest": 128, "numbering": 1690, "tap": 208, "nothing": 3},
    }
    attested = "128 of 2,026 device events are attested by manifests: 6.3 %."
    assert words.covered(coverage) == f"{attested} 2 of 2 expected devices are attested."
    assert (
        words.covered({**coverage, "fleet": None})
        == f"{attested} No list says which devices should be there."
    )


def test_objects_are_linked_in_a_folder_and_in_a_bucket(tmp_path: Path) -> None:
    page = tmp_path / "audit" / "audit.html"
    assert objects_at(str(tmp_path / "my archive"), page) == "../my%20archive/"
    console = "https://s3.console.aws.amazon.com/s3/buckets/events?prefix="
    assert objects_at("s3://events", page) == console
    assert objects_at("s3://events/plane/", page) == f"{console}plane/"
    assert objects_at(None, page) is None


def test_the_command_follows_the_event_and_no_name_becomes_an_option_or_a_command() -> None:
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
def test_the_verdict_and_its_coverage_come_first_and_nothing_from_elsewhere(
    findings: list[dict[str, Any]], verdict: str, tmp_path: Path
) -> None:
    write_page(report(*findings), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    banner = text[: text.index("<h2>")]
    assert verdict in banner
    assert "10 of 10 device events are attested by manifests: 100 %." in banner
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", text.split("<script>")[0])


def test_a_missing_hour_is_one_line_and_a_silent_device_is_in_the_table(tmp_path: Path) -> None:
    hole = {
        "kind": "missing_records",
        "folder": "ledger",
        "from_ms": 7 * HOUR_MS,
        "until_ms": 8 * HOUR_MS,
        "unrecorded": 250,
        "archive_file": "ledger/date=1970-01-01/hour=07",
        "detail": "no object",
    }
    silent = {"client_id": "home-9", "coverage": "silent", "gaps": None, "skew_ms": None}
    document = report(devices=[silent], archive={"folders": [], "holes": [hole]})
    write_page(document, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    line = "1970-01-01 07:00 to 08:00: missing records, no object; 250 events have no record"
    assert text.count(line) == 1
    assert re.search(r'home-9</button></th><td class="words">silent', text)


def test_the_page_says_where_the_chain_begins(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    chain = report()["chain"]
    for more, sentence in (
        ({}, "The chain begins here: there is no earlier verdict to compare with."),
        ({"before": "d", "begins": "2026-03-02T00:00:00Z"}, "begins with the audit of 2026-03-02T00:00:00Z."),
        ({"before": "d"}, "begins with an audit of version 0.3.0 or older."),
    ):
        write_page(report(chain={**chain, **more}), page)
        assert sentence in page.read_text()


def test_the_page_of_the_largest_report_stays_small(tmp_path: Path) -> None:
    findings = [finding(id=f"{n:036}", source=f"/homes/{n:06}/{40 * 'x'}", sequence=n) for n in range(1_000)]
    hours = [
        hour(f"home-{n:06}", f"2026-03-{day:02}T{at:02}")
        for n in range(200)
        for day in (1, 2, 3)
        for at in range(24)
    ]
    page = tmp_path / "page.html"
    write_page(report(*findings, hours=hours), page, "s3://a-bucket")
    assert page.stat().st_size < MOST_BYTES


def test_a_folder_without_a_report_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words_after in ([], ["--date", "2026-03-01"]):
        monkeypatch.setattr("sys.argv", ["audit_page", str(tmp_path), *words_after])
        assert command.main() == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.count("\n") == 1
        assert "run the audit with this --OUTPUT and --DATE first" in told.err
