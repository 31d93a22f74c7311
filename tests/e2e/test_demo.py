"""The whole house in one run: everything arrives despite the faults, and the audit notices a deletion."""

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.audit_page.page import trace_command
from lab.audits import read_report
from lab.cloud import ROOT
from lab.demo.run import DemoOptions, run
from lab.demo.summary import MAX_EVIDENCE
from lab.input import open_input
from tests.plane import shipped_contract

EVENTS = 400
HOMES = 3

Record = tuple[str, str, str]
"""What the ledger has of an event: source, id, route."""


WITH_RECEIPTS = {each.address for each in shipped_contract().channels if each.asks_for_receipts}


def recorded(file: Path) -> set[Record]:
    """What only the ledger knows of: what a reader left a receipt for is no loss without its record."""
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    others = [row for row in rows if row["destination"] not in WITH_RECEIPTS]
    return {(row["source"], row["id"], row["route"]) for row in others}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def summary(output: Path, shared_data: Path) -> dict[str, Any]:
    """One run on real input: two homes of patients with alerts, one room."""
    source = open_input(shared_data, homes=HOMES, events=EVENTS, seed=7)
    return run(DemoOptions(source, "test", 7, output), Console())


@pytest.mark.source("P10")
def test_everything_arrives_despite_the_faults(summary: dict[str, Any]) -> None:
    assert summary["verdict"] == "passed"
    assert (summary["lost"], summary["unexpected"], summary["audit_lost"]) == (0, 0, 0)
    assert summary["audit_agrees"]
    assert {fault["kind"] for fault in summary["faults"]} == {
        "network cut",
        "forwarder killed (-9)",
        "Mosquitto killed (-9)",
    }


@pytest.mark.source("P9")
def test_carers_and_relatives_are_told_what_to_check_when_a_home_is_lost(summary: dict[str, Any]) -> None:
    told = [(each["service"], each["phase"]) for each in summary["notices"]]
    assert set(told) == {(who, phase) for who in ("carers", "family-app") for phase in ("opened", "over")}
    assert all(each["check"] for each in summary["notices"])
    assert all(each["late_s"] is not None for each in summary["notices"] if each["phase"] == "opened")


@pytest.mark.source("P11")
def test_a_wrong_payload_is_a_letter(summary: dict[str, Any], output: Path) -> None:
    (letter,) = summary["payload_letters"]
    assert (letter["sender"], letter["reason"]) == ("simple-client/", "payload_invalid")
    assert "$.value" in letter["detail"]
    assert letter["detail"].endswith("(schema https://schemas.eventplane.org/reading.v1.1.json)")
    page = (output / "report.html").read_text()
    assert "reading.v1.1.json" in page
    assert "cannot be reached" in page


def test_every_service_gets_its_share(summary: dict[str, Any]) -> None:
    delivered = summary["delivered"]
    # The four good events of the device without forwarder, what carers told, and a call for each alarm.
    assert summary["events_sent"] == EVENTS + 4 + 2 * HOMES + delivered["call-service"]
    # In each home, also in the one that was cut off.
    assert summary["told"] == delivered["voice-service"] + delivered["health-service"] == 2 * HOMES
    assert summary["urgent_sent"] == 2 * delivered["call-service"]
    assert delivered["alarm-centre"] == summary["urgent_sent"]
    assert delivered["care-analytics"] == EVENTS + 4
    assert delivered["family-app"] == delivered["call-service"] > 0
    assert summary["dead_lettered"] == summary["malformed_sent"] >= 8
    # Every forwarder reports that it started.
    assert delivered["operations"] == summary["dead_lettered"] + HOMES


def test_the_results_are_written(summary: dict[str, Any], output: Path) -> None:
    assert json.loads((output / "summary.json").read_text())["verdict"] == summary["verdict"]
    page = (output / "report.html").read_text()
    assert "nothing lost; the audit agrees" in page
    assert all(service in page for service in summary["delivered"])


def test_the_audit_notices_an_object_that_was_deleted_by_hand(summary: dict[str, Any], output: Path) -> None:
    told = summary["object_deleted"]
    archive, copy = output / "run" / "archive", output / "run" / "archive-without-one"
    gone, left = recorded(archive / told["object"]), set[Record]()
    for file in (copy / "ledger").rglob("*.gz"):
        left |= recorded(file)
    missed = sorted(gone - left, key=str)
    assert (told["verdict"], told["noticed"], told["lost"]) == ("broken", True, len(missed) or None)
    assert told["evidence"] == missed[:MAX_EVIDENCE]
    assert f"the audit says: broken, {told['lost']} lost" in (output / "report.html").read_text()


def test_the_page_s_command_follows_what_was_lost(summary: dict[str, Any], output: Path) -> None:
    report = read_report(output / "run" / "audit-without-one")
    lost = next(each for each in report["findings"] if each["kind"] == "lost")
    command = trace_command(lost, str(output / "run" / "archive-without-one"))
    assert command is not None
    assert (output / "run" / "audit-without-one" / "audit.html").exists()
    words = [sys.executable, "-m", *shlex.split(command)]
    traced = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert traced.returncode == 3, traced.stderr  # its end is not known
    assert "no router has decided" in traced.stdout
