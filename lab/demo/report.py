"""A run's result for people: a table in the terminal and an HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from lab.audit_page import page
from lab.audit_page.words import count
from lab.audits import taken
from lab.consumers import ReceivedEvent
from lab.demo.faults import RepairedFault
from lab.demo.summary import ALARM_CENTRE

_COLUMNS: Final = {
    "expected": "expected",
    "received": "handled",
    "ended_otherwise": "ended",
    "lost": "lost",
    "unexpected": "extra",
    "duplicates": "copies",
}
"""Figures of a service, and short heads that leave the table within 80 columns."""


def headline(summary: Mapping[str, Any]) -> str:
    """The verdict in one sentence."""
    if summary["verdict"] == "passed":
        return (
            f"{summary['events_sent']:,} events from {summary['homes']} homes, "
            f"{summary['faults_injected']} faults, nothing lost; the audit agrees"
        )
    agreement = "agrees" if summary["audit_agrees"] else "does not agree with the consumers' counts"
    if not summary["object_deleted"]["noticed"]:
        agreement += ", did not notice that an object of the archive was deleted"
    irregular = "".join(f", {count} {name}" for name, count in summary["audit_irregular"].items() if count)
    return (
        f"FAILED: {summary['lost']} lost, {summary['ended_otherwise']} refused, expired or dropped and "
        f"{summary['unexpected']} unexpected by the consumers' counts; "
        f"the audit {agreement} and found {summary['audit_lost']} lost{irregular}"
    )


def deletion_told(summary: Mapping[str, Any]) -> str:
    """Return the audit's result on the archive that lacks an object."""
    told = summary["object_deleted"]
    return (
        f"with one archive object deleted the audit says: {told['verdict']}, {told['lost']:,} lost; "
        f"the object told of {told['events']:,} events"
    )


def alarms_told(summary: Mapping[str, Any]) -> str:
    """Return the delays of alarms to the alarm centre, those of homes with a fault by themselves."""
    parts = []
    for homes, is_struck in (("without", False), ("with", True)):
        took = [each["seconds"] for each in summary["alarms"] if (each["fault"] is not None) == is_struck]
        if took:
            parts.append(
                f"homes {homes} a fault {len(took):,}, median {median(took):.2f} s, longest {max(took):.2f} s"
            )
    return f"alarms at the alarm centre: {'; '.join(parts) or 'none'}"


def print_table(summary: Mapping[str, Any], console: Console) -> None:
    """The result in colours."""
    passed = summary["verdict"] == "passed"
    table = Table(title=headline(summary), title_style="bold green" if passed else "bold red")
    table.add_column("inbox", no_wrap=True)
    for column in (*_COLUMNS.values(), "audited"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in summary["services"]:
        # The reports would not fit; a line below has their sum.
        is_bad = each["ended_otherwise"] or each["lost"] or each["unexpected"]
        counts = (*(each[name] for name in _COLUMNS), summary["audited"].get(each["service"]))
        table.add_row(each["service"], *map(count, counts), style="red" if is_bad else "green")
    console.print(table)
    for fault in summary["faults"]:
        console.print(
            f"  {fault['kind']} at {fault['home']} after {fault['after_events']:,} events, "
            f"repaired after {fault['seconds']} s"
        )
    for notice in summary["notices"]:
        after = "" if notice["late_s"] is None else f", {notice['late_s']} s after its time"
        console.print(f"  {notice['service']} was told: {notice['title']}{after}")
    for letter in summary["payload_letters"]:
        console.print(f"  a dead letter of {letter['sender']}: {letter['reason']}, {letter['detail']}")
    console.print(f"  rang in the homes: {taken(summary['rang'])} alarms, by the audit")
    console.print(f"  taken at the alarm centre: {taken(summary['taken'])} alarms and calls, by the audit")
    console.print(f"  {alarms_told(summary)}")
    console.print(f"  {deletion_told(summary)}")
    console.print(
        f"  {summary['urgent_sent']:,} urgent events; {summary['malformed_sent']} malformed messages, "
        f"{summary['dead_lettered']} dead letters, {summary['device_reports']} device reports; "
        f"{summary['wall_seconds']} s in all"
    )


def write_page(summary: Mapping[str, Any], path: Path, audit_page: str) -> None:
    """The report as one self-contained HTML file; `audit_page` is the way from it to the audit's own."""
    lost = [
        dict(zip(("source", "id", "route"), each, strict=True))
        for each in summary["object_deleted"]["evidence"]
    ]
    audited = summary["audited"]
    text = (
        page.environment(Path(__file__).parent)
        .get_template("report.html.j2")
        .render(
            summary=summary,
            audit_page=audit_page,
            deletion=deletion_told(summary),
            headline=headline(summary),
            tiles=_tiles(summary),
            services=[{**each, "audited": audited.get(each["service"])} for each in summary["services"]],
            lost=lost,
        )
    )
    path.write_text(text, encoding="utf-8")


def _tiles(summary: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """Return name, figure and whether it is bad."""
    return [
        ("events sent", f"{summary['events_sent']:,}", False),
        ("of them urgent", f"{summary['urgent_sent']:,}", False),
        ("homes", f"{summary['homes']}", False),
        ("alarms that rang in homes", taken(summary["rang"]), False),
        ("alarms and calls taken", taken(summary["taken"]), False),
        ("lost, as the consumers count", f"{summary['lost']}", summary["lost"] > 0),
        ("lost, as the audit finds", f"{summary['audit_lost']}", summary["audit_lost"] > 0),
        ("duplicates", f"{summary['duplicates']:,}", False),
        ("faults", f"{summary['faults_injected']}", False),
        ("seconds", f"{summary['wall_seconds']}", False),
    ]


@dataclass(frozen=True, slots=True)
class Rang:
    """An event at the alarm centre, `seconds` after its sending; `fault`: what struck its home."""

    home: str
    type: str
    seconds: float
    fault: str | None


def alarms(kept: Iterable[ReceivedEvent], faults: Iterable[RepairedFault]) -> list[Rang]:
    """Return the alarms of homes without a fault first, the quickest first."""
    struck = {fault.home: fault.kind for fault in faults}
    found = []
    for each in kept:
        event, home = each.event, each.event.get("senderdevice", "")
        # The `time` of a replayed reading is years old, so the time of sending goes first.
        sent = event.get("recordedtime") or event.get("time")
        if each.service == ALARM_CENTRE and sent:
            seconds = each.arrived_ms / 1_000 - datetime.fromisoformat(sent).timestamp()
            found.append(Rang(home, event["type"], round(seconds, 3), struck.get(home)))
    return sorted(found, key=lambda alarm: (alarm.fault is not None, alarm.seconds))
