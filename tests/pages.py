"""Every page that the project writes, with something in each of its tables."""

from pathlib import Path
from typing import Any

from contract.catalogue import catalogue
from lab.audit_page.page import write_page
from lab.demo import report as demo_report
from tests.audit_report import HOUR_MS, device, finding, hour, report
from tests.plane import shipped_contract
from tests.unit.lab.test_demo import audit, summary_of, verdict

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
LONG = "a-device-with-a-name-that-nobody-would-want-to-read-on-a-phone"


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
        hours=[
            hour("home-1", "1970-01-01T01", lost=1),
            hour(LONG, "1970-01-02T05"),
            hour("home-2", "1970-01-01T01", pending=1),
        ],
        devices=[device(LONG, lost=1), device("home-1", gaps=3), device(HOSTILE)],
        flow=[{"device": None, "route": "to-care", "inbox": "care.inbox", "delivered": 9, "lost": 2}, lost],
        trend=[{**day, "lost": 1, "unrecorded": 0, "pending": 0}],
        archive={"folders": [], "holes": [hole]},
        dead_letters=[{"place": "cloud", "reason": f"a_reason_{LONG}", "count": 3, "missing": 1}],
        quarantine=[quarantined],
    )


def write_pages(folder: Path) -> dict[str, Path]:
    """Write the pages into `folder`, and return their files by name."""
    files = {name: folder / f"{name}.html" for name in ("audit", "demo", "catalogue")}
    write_page(everything(), files["audit"])
    judged = audit(desk=9)
    summary: dict[str, Any] = summary_of([verdict("desk", 9, expected=10, lost=(("/a", "1"),))], judged)
    notice = {
        "service": "carers",
        "title": "Device home-1 cannot be reached",
        "late_s": 0.8,
        "check": ["Call."],
    }
    letter = {"sender": "simple-client/", "reason": "payload_invalid", "detail": "$.value: no number"}
    alarm = {"home": "home-1", "type": "fall", "seconds": 0.25, "fault": "network cut"}
    summary |= {"alarms": [alarm], "notices": [notice], "payload_letters": [letter]}
    demo_report.write_page(summary, files["demo"], "run/audit/audit.html")
    files["catalogue"].write_text(catalogue(shipped_contract()))
    return files
