"""The devices gathered by Spark: in the driver and by the executors alike, from the tap's rows alone."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.audit.hostile import hostile_reports
from contract import load_contract
from eventplane.device_reports import key_digest, short_digest
from eventplane.names import CANARY_CLIENTS, EPOCH, SEQUENCE
from eventplane.sender import PLANE_CLIENT
from glue_jobs.delivery_audit.claims import HourRow
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.devices import Counts, Fleet, Listed, judge_fleet
from glue_jobs.delivery_audit.event_group import HOUR_MS, NotInTap
from glue_jobs.delivery_audit.large import SparkDevices, SparkTables, found_row
from glue_jobs.delivery_audit.number_ranges import pack_events
from glue_jobs.delivery_audit.plain_rows import SentRow
from glue_jobs.delivery_audit.rows import device_hours
from glue_jobs.delivery_audit.small import PlainDevices
from tests.golden_digests import SHORT
from tests.unit.glue_jobs.home import DAY_END_MS, NOON_MS, SCOPE, SIREN, Home

COLUMNS = (
    "client_id string, service string, source string, id string, type string, epoch string, sequence bigint, "
    "accepted_at_ms bigint, recorded_at_ms bigint, file string, within boolean, report string, "
    "asks_best_effort boolean, digest string, due_at_home string"
)
NOBODY = NotInTap(
    "ghost", "ghost/voice", "//ghost", "e", "t", "doors", "doors.inbox", "v1", NOON_MS, "ledger/1"
)


def fleet_of(spark: SparkSession) -> DataFrame:
    first, second, third = Home("home-1"), Home("home-2", "e2"), Home("home-3", "e3")
    first.started()
    while first.at_ms < DAY_END_MS:
        first.send(2)
        first.manifest()
        first.wait(1)
    second.started()
    second.send(3)
    second.live("send 1 under=home-1, manifest, lose 1, manifest")
    third.simple(2)
    # The store of the fourth goes on under the client id of the fifth.
    moved = Home("home-4", "e4").live("start, send 2, manifest, wait 1, send 3")
    moved.client_id = "home-5"
    moved.live("manifest, wait 1, send 1, manifest")
    # It claims the epochs of others, one of them beside two owners.
    liar = Home("home-6", "e4").live("send 1, manifest, wait 1")
    liar.begin("e1")
    liar.number = 10**6
    liar.live("send 2, manifest")
    events = [each for home in (first, second, third, moved, liar) for each in home.events]
    others = [
        (each, None, "/s", "i", "t", None, None, NOON_MS, None, "tap/1", True, None, False, None, "")
        for each in (*CANARY_CLIENTS, PLANE_CLIENT)
    ]
    return spark.createDataFrame([*(each.tap() for each in events), *others], COLUMNS)


def of_both(
    spark: SparkSession,
    folder: Path,
    tap: DataFrame,
    scope: Scope,
    *,
    strays: Sequence[NotInTap] = (),
    registry: Listed | None = None,
    counts: Counts | None = None,
    absent: Collection[int] = (),
) -> list[tuple[Fleet, Mapping[str, list[Any]]]]:
    """Return what is known of all devices if they are judged in this process, and by the executors."""
    tables = SparkTables(spark, f"{folder}/{len([*folder.iterdir()])}")
    hours = device_hours(tap, [load_contract()])
    found = tables.found(
        spark.sparkContext.parallelize([found_row("not_in_tap", each) for each in strays], 1)
    )
    sent = [SentRow(HourRow(*row[:-2]), *row[-2:]) for row in hours.collect()]
    alone = PlainDevices(sent, {"finding": [], "not_in_tap": [*strays]}, counts or {}, registry)
    small = judge_fleet(alone, scope, absent=absent)
    together = SparkDevices(hours, tables.found, found, counts or {}, registry)
    fleet, rows = judge_fleet(together, scope, absent=absent)
    return [small, (fleet, {kind: [*map(tuple, rows[kind].collect())] for kind in ("finding", "day")})]


def test_the_driver_and_the_executors_judge_alike(spark: SparkSession, tmp_path: Path) -> None:
    registry = [(name, "provisioned", 0) for name in ("home-1", "home-2", "home-9")]
    gone = frozenset({NOON_MS // HOUR_MS + 5})
    scope = Scope(SCOPE.uplinks, SCOPE.watermark_ms, end_ms=DAY_END_MS, gone=gone, has_fleet=True)
    counts = {"home-1": [("late", NOON_MS // HOUR_MS, 1)]}
    more = {"strays": [NOBODY], "registry": registry, "counts": counts}
    (small, found), (large, others) = of_both(spark, tmp_path, fleet_of(spark), scope, **more)
    assert (small, _plain(found)) == (large, _plain(others))
    assert small.standings == {"attested": 1, "partly": 1, "silent": 1, "unregistered": 4, "expected": 3}
    assert [(each.kind, each.device) for each in sorted(small.findings, key=lambda each: each.kind)] == [
        ("contradiction", None),
        ("contradiction", None),
        ("epoch_change", "home-6"),
        ("foreign_epoch", "home-1"),
        ("forged", "ghost"),
        ("lost", "home-2"),
    ]
    coverage = small.coverage("fleet/1", 7)
    assert coverage.events == {"manifest": 59, "numbering": 0, "tap": 2, "nothing": 0}
    assert coverage.share == pytest.approx(59 / 61)


def _plain(found: Mapping[str, list[Any]]) -> list[str]:
    return sorted(str([str(value) for value in each]) for kind in ("finding", "day") for each in found[kind])


def test_the_digests_are_those_of_the_forwarder(spark: SparkSession) -> None:
    key = "voice", "//home-1/\u00fc", "\u5bb6-1"
    rows = [
        ("home-1", *key, "t", "e1", 1, NOON_MS, None, "tap/1", True, None, False, digest, "")
        for digest in (*SHORT.values(), "", None)
    ]
    (hour,) = device_hours(spark.createDataFrame(rows, COLUMNS), [load_contract()]).collect()
    by_key = int.from_bytes(key_digest(key)[8:], "big")
    # What has no digest, which no tap row does, is counted all the same.
    expected = [*(int(each, 16) for each in SHORT.values()), 0, 0]
    assert hour["events"] == pack_events((1, by_key, each) for each in expected)


def test_an_hour_that_most_miss_is_a_hole(spark: SparkSession, tmp_path: Path) -> None:
    """The review: tap, ledger and handovers of an hour gone: 5 of 250 are called lost by the devices."""
    homes = [Home(f"home-{number}", f"e{number}") for number in range(3)]
    for home in homes:
        home.started()
        for hour in range(6):
            home.send(2, tap=hour != 3)
            home.manifest(tap=hour != 3)
            home.wait(1)
    absent = [NOON_MS // HOUR_MS + 3]
    tap = spark.createDataFrame([each.tap() for home in homes for each in home.events], COLUMNS)
    alone = spark.createDataFrame([each.tap() for each in homes[0].events], COLUMNS)
    scope = Scope(SCOPE.uplinks, SCOPE.watermark_ms)
    for fleet, _ in of_both(spark, tmp_path, tap, scope, absent=absent):
        assert (fleet.findings, fleet.holes) == ([], {absent[0]: 9})
    # One device alone may have lost it.
    for lone, _ in of_both(spark, tmp_path, alone, scope, absent=absent):
        assert "lost" in {each.kind for each in lone.findings}


def test_hostile_reports_are_isolated(spark: SparkSession, tmp_path: Path) -> None:
    """The review: one report of one device ends the audit of all. `make audit-hostile` is the large."""
    random = Random(1)
    homes = [Home(f"home-{number}", f"e{number}") for number in range(5)]
    for home in homes:
        home.live("start, send 3, lose 1, manifest, wait 1, send 2, expire 3, manifest, wait 1")
    rows = [each.tap() for home in homes for each in home.events]
    clients = [home.client_id for home in homes[:2]]
    epochs = {home.client_id: home.epoch for home in homes}
    hostile = [
        (client, "device", report.source, report.id, report.type, str(report.attributes[EPOCH]),
         int(str(report.attributes[SEQUENCE])), NOON_MS + HOUR_MS, None, "tap/1", True, report.json, False,
         short_digest(report.json.encode()), "")
        for client, report in hostile_reports(clients, epochs, 200, random)
    ]  # fmt: skip
    scope = Scope(SCOPE.uplinks, SCOPE.watermark_ms, {SIREN: True}, end_ms=DAY_END_MS)
    said = [
        _of_others(fleet, found, clients)
        for tap in (spark.createDataFrame(rows, COLUMNS), spark.createDataFrame([*rows, *hostile], COLUMNS))
        for fleet, found in of_both(spark, tmp_path, tap, scope)
    ]
    assert said[0]
    assert said == said[:1] * 4


def _of_others(fleet: Fleet, found: Mapping[str, list[Any]], clients: list[str]) -> list[str]:
    """Return what is said of the devices that are none of `clients`."""
    told = [*_plain(found), *(str(tuple(each.items())) for each in [*fleet.worst, *fleet.hours])]
    return sorted(text for text in told if not any(f"'{each}'" in text for each in clients))
