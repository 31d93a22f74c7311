"""Device to cloud: what devices state against what the tap has seen; one home for each fault."""

from __future__ import annotations

from typing import Any

from tests.spark.device import Device
from tests.spark.reading import Audit
from tests.spark.small_archive import NOON_MS, SmallArchive

LATER = "2026-03-01T12:30:00Z"
"""Within the lateness that an audit allows for what was accepted at noon."""


def plant(archive: SmallArchive) -> None:
    """Eight homes, the first of which has no fault."""
    whole = Device(archive, "whole")
    whole.started()
    whole.send(3)
    whole.manifest(last=4)
    whole.send()
    whole.manifest(last=6)

    holed = Device(archive, "holed")
    holed.started()
    holed.send(2)
    holed.lose(2)
    holed.send()
    holed.manifest(last=6)
    holed.lose()  # behind it the tap has seen nothing but what states it
    holed.manifest(last=8)

    gave_up = Device(archive, "gave-up")
    gave_up.started()
    gave_up.send()
    gave_up.lose(3)
    gave_up.discarded("expired", (3, 4), refused=7)
    gave_up.manifest(last=6)

    silent = Device(archive, "silent")
    silent.started()
    silent.send()
    silent.manifest(last=2)
    silent.send()
    silent.manifest(last=4, seen=False)
    silent.send()
    silent.manifest(last=6)

    local = Device(archive, "local")
    local.started()
    local.lose(2)  # they had no route to the cloud
    local.send()
    local.manifest(last=4, count=2)
    local.lose(3)
    local.send()
    local.manifest(last=9, count=3)

    reborn = Device(archive, "reborn")
    reborn.started()
    reborn.send()
    lost = reborn.epoch
    archive.begin_epoch("reborn", "e2")
    reborn.started("recovered", lost_epoch=lost)

    archive.send(home="fast", recordedtime="2026-03-01T12:01:00Z")

    liar = Device(archive, "liar")
    liar.started()
    liar.report_as("whole")


def found(report: dict[str, Any]) -> set[tuple[str, str, int | None]]:
    assert {each["hop"] for each in report["findings"]} <= {"device_cloud"}
    return {(each["kind"], each["device"], each["sequence"]) for each in report["findings"]}


def hour(device: str, report: dict[str, Any]) -> dict[str, int]:
    """The figures of the one hour of `device`."""
    (row,) = (each for each in report["hours"] if each["client_id"] == device)
    assert (row["from_ms"], row["until_ms"]) == (NOON_MS, NOON_MS + 3_600_000)
    return {name: row[name] for name in ("events", "lost", "late", "pending")}


def test_each_fault_is_found_where_it_was_planted_and_pending_is_not_lost(
    archive: SmallArchive, audit: Audit
) -> None:
    plant(archive)
    known_at_once = {
        ("expired", "gave-up", 3),
        ("expired", "gave-up", 4),
        ("dropped", "gave-up", None),
        ("epoch_change", "reborn", 1),
        ("clock_skew", "fast", None),
        ("forged", "liar", 2),
    }
    early = audit(as_of=LATER, output="audit")
    assert found(early) == known_at_once
    assert (early["totals"]["lost"], early["totals"]["pending"]) == (0, 6)
    assert early["verdict"] == "broken"  # a forgery needs no time to show

    report = audit(output="audit")
    assert found(report) - known_at_once == {
        ("lost", "holed", 4),
        ("lost", "holed", 5),
        ("lost", "holed", 8),
        ("lost", "gave-up", 5),
        ("lost", "silent", 5),  # the missing manifest itself
        ("missing_manifest", "silent", None),
        ("lost", "local", None),  # one of three, and nobody can tell which
    }
    assert report["lost_by_hop"] == {"device_cloud": 6, "iot_rule": 0, "router": 0, "inbox_consumer": 0}
    assert report["revision"]["number"] == 1
    assert report["revision"]["changed"]["lost"] == [0, 6]
    homes = {each["client_id"]: each for each in report["devices"] if each["epoch"] != "e2"}
    assert [homes["gave-up"][name] for name in ("stated", "missing", "explained", "lost", "not_stored")] == [
        6,
        3,
        2,
        1,
        7,
    ]
    assert homes["fast"]["skew_ms"] == 61_000  # a minute, and the second that others take on their way
    details = {(each["kind"], each["device"]): each["detail"] for each in report["findings"]}
    assert details["missing_manifest", "silent"] == "no manifest states the numbers 3 to 4"
    assert details["lost", "local"].startswith("1 events; stated by manifest ")
    assert details["epoch_change", "reborn"] == "recovered; epoch before: e1-reborn"
    assert details["dropped", "gave-up"] == "7 not stored: spool_full, from voice.outbox"
    # By the hour: what came, and what the manifests of the hour miss, first too young to be judged.
    assert hour("holed", early) == {"events": 6, "lost": 0, "late": 0, "pending": 3}
    assert hour("holed", report) == {"events": 6, "lost": 3, "late": 0, "pending": 0}
    assert hour("whole", report)["lost"] == 0


def test_what_a_device_states_on_one_day_may_have_come_on_the_day_before(
    archive: SmallArchive, audit: Audit
) -> None:
    midnight = NOON_MS + 12 * 3_600_000
    home = Device(archive, "home-1")
    home.send(2)
    home.send(2, at_ms=midnight - 1)
    home.lose()
    home.manifest(last=5, at_ms=midnight)
    report = audit("2026-03-02")
    (finding,) = report["findings"]
    assert (finding["kind"], finding["sequence"], finding["date"]) == ("lost", 5, "2026-03-02")
    assert finding["archive_file"].startswith("tap/date=2026-03-02/")
    assert (report["totals"]["events_archived"], report["totals"]["lost"]) == (1, 1)
