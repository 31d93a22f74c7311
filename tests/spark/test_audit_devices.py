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
    archive.begin_epoch("reborn", "e2")
    reborn.started("recovered", lost_epoch="e1", epoch="e2")

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
    assert row["hour"] == "2026-03-01T12"
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
    early = audit(as_of=LATER)
    assert found(early) == known_at_once
    assert (early["totals"]["lost"], early["totals"]["pending"]) == (0, 6)
    assert early["verdict"] == "broken"  # a forgery needs no time to show

    report = audit()
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
    homes = {each["client_id"]: each for each in report["devices"] if each["epoch"] == "e1"}
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
    assert details["epoch_change", "reborn"] == "recovered; epoch before: e1"
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


def test_a_forged_range_does_not_fill_the_disk(archive: SmallArchive, audit: Audit) -> None:
    home = Device(archive, "home-1")
    home.send()
    home.manifest(last=10**15)
    report = audit()
    (finding,) = report["findings"]
    assert (finding["kind"], finding["sequence"]) == ("lost", 3)
    assert finding["detail"].startswith(f"numbers 3 to {10**15}; stated by manifest ")


def test_what_iot_core_acknowledged_and_the_tap_never_saw_is_lost_behind_the_device(
    archive: SmallArchive, audit: Audit
) -> None:
    """The review: a rule that is throttled loses what IoT Core has acknowledged, and nobody is told."""
    home = Device(archive, "home-1")
    home.started()
    home.send()
    home.lose(2)  # 3, 4
    home.send()
    home.lose()  # 6: still in the spool, by what it states
    home.manifest(last=6, acknowledged_to=5)
    home.manifest(last=7, acknowledged_to=5)

    drained = Device(archive, "drained")
    drained.lose(2)
    drained.manifest(last=2, acknowledged_to=0)
    drained.manifest(last=3, acknowledged_to=3)  # what one leaves open the next one settles

    local = Device(archive, "local")
    local.lose(3)  # one of them had no route to the cloud
    local.send()
    local.manifest(last=4, count=3, acknowledged_to=2)

    gave_up = Device(archive, "gave-up")
    gave_up.lose(2)
    gave_up.discarded("dead_lettered", (1, 1))
    gave_up.manifest(last=3, acknowledged_to=3)

    boaster = Device(archive, "boaster")
    boaster.lose()
    boaster.manifest(last=1, acknowledged_to=10**9)
    boaster.lose()  # 3: the manifest of number 2 can know nothing of it
    older = Device(archive, "boaster")
    older._stated = 1
    older.manifest(last=3)

    early = audit(as_of=LATER)
    assert (early["totals"]["lost"], early["totals"]["acknowledged_lost"]) == (0, 0)
    report = audit()
    lost = [each for each in report["findings"] if each["kind"] == "lost"]
    assert sorted((each["device"], each["sequence"] or 0, each["hop"]) for each in lost) == [
        ("boaster", 1, "iot_rule"),
        ("boaster", 3, "device_cloud"),
        ("drained", 1, "iot_rule"),
        ("drained", 2, "iot_rule"),
        ("gave-up", 2, "iot_rule"),
        ("home-1", 3, "iot_rule"),
        ("home-1", 4, "iot_rule"),
        ("home-1", 6, "device_cloud"),
        ("local", 0, "device_cloud"),  # two of three, of which two were acknowledged: one of these at least
        ("local", 0, "iot_rule"),
    ]
    assert report["lost_by_hop"] == {"device_cloud": 3, "iot_rule": 7, "router": 0, "inbox_consumer": 0}
    assert (report["totals"]["lost"], report["totals"]["acknowledged_lost"]) == (10, 7)
    homes = {each["client_id"]: each for each in report["devices"]}
    assert (homes["home-1"]["lost"], homes["home-1"]["acknowledged_lost"]) == (3, 2)
    details = {(each["device"], each["sequence"]): each["detail"] for each in lost}
    assert details["home-1", 3].endswith(", and acknowledged by IoT Core")
