"""What the forwarder says of itself: the events, held against the contract's schemas, and when they come."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edge import reports
from edge.counts import MOST_KINDS, MOST_OTHER_KINDS, OTHER_CHANNELS, OTHER_TYPES, Counts, NotStored
from edge.errors import SpoolUnavailableError
from edge.forwarder import Reload
from edge.numbering import stamp
from edge.reports import Heading
from edge.spool import LossReport, Manifest, SpoolOrigin
from edge.spool.tables import MOST_RANGES
from eventplane.contract import Place
from eventplane.device_reports import (
    DISCARDED,
    DISK_FAILED,
    HEARTBEAT,
    MANIFEST,
    STARTED,
    event_digest,
    is_irreplaceable,
)
from eventplane.downlink.wire import KIND
from eventplane.envelope import Envelope
from eventplane.reasons import Outcome
from eventplane.router import Router
from eventplane_mqtt.mailbox import LinkName
from glue_jobs.delivery_audit.claims import HourRow
from glue_jobs.delivery_audit.completeness import Scope
from glue_jobs.delivery_audit.device import DeviceRows, judge_device
from glue_jobs.delivery_audit.event_group import HOUR_MS
from glue_jobs.delivery_audit.number_ranges import pack_events
from tests.plane import shipped_contract
from tests.unit.edge.fakes import ALARM, DEAD_LETTER, READING, Device, MakeDevice, contract, event

HEADING = Heading("thing", "e0", 7, "2024-01-01T00:00:00Z")
TALLY = LossReport("device.outbox", Outcome.EXPIRED, "expirytime", 4, ((-3, -2), (5, 6)))

ALL = [
    reports.started(HEADING, SpoolOrigin("created")),
    reports.started(HEADING, SpoolOrigin("recovered", "page 7 is torn", 12, "lost")),
    reports.started(HEADING, SpoolOrigin("recovered", "page 7 is torn", 12, "lost", 3, ((4, 5), (9, 9)))),
    reports.started(HEADING, SpoolOrigin("recovered", "it is no database", 0, "", None)),
    reports.discarded(HEADING, [TALLY], {}),
    reports.discarded(HEADING, [], {NotStored("sensor.outbox", READING, "spool_full"): 3}),
    reports.manifest(
        HEADING,
        [Manifest("device.outbox", 1, 9, 9, 255), Manifest("call.inbox", 1, 0, 0, 0)],
        {"device.outbox": 7},
        3_600.0,
        pending={"device.outbox": [8, 9]},
    ),
    reports.manifest(HEADING, [Manifest("device.outbox", 1, 9, 9, 255)], {}, 60.5, is_final=True),
    reports.heartbeat(HEADING, 300.0, {"uptime_s": 12, "contract": "v"}),
    reports.disk_failed(HEADING, SpoolUnavailableError(Path("s.db"), "disk I/O error", "replace it"), 61.4),
]


@pytest.mark.parametrize("report", ALL, ids=lambda each: each.type)
def test_every_report_fits_its_schema_and_has_a_reader(report: Envelope) -> None:
    plane = shipped_contract()
    (schema,) = plane.event_types[report.type].schemas.values()
    jsonschema.validate(report.data(), dict(schema))
    assert report.source == "/devices/thing/forwarder"
    assert report.id == "e0-7"
    assert [each.destination for each in Router(plane, Place.DEVICE).route(report)] == ["device.outbox"]
    assert "operations.inbox" in [each.destination for each in Router(plane, Place.CLOUD).route(report)]


def test_a_manifest_writes_digests_as_everybody_can_compare_them() -> None:
    (stated,) = reports.manifest(HEADING, [Manifest("d", 1, 9, 9, 255)], {}, 3_600.0).data()["statements"]
    assert stated["digest"] == "0" * 30 + "ff"


@pytest.mark.parametrize("report", ALL, ids=lambda each: each.type)
def test_reports_about_other_events_are_irreplaceable(report: Envelope) -> None:
    assert is_irreplaceable(report.json) is (report.type not in (HEARTBEAT, DISK_FAILED))


@pytest.mark.parametrize(
    "json",
    [
        event("e").json,
        event("e", subject=MANIFEST).json,
        f"not an event {MANIFEST}",
        event("e", subject=KIND).json,
    ],
)
def test_an_event_of_a_service_comes_again(json: str) -> None:
    assert not is_irreplaceable(json)


def test_a_new_store_reports_that_it_started_once(make: MakeDevice) -> None:
    device = make(connected=False, settled=False)
    device.send(event("e"))
    (report,) = device.waiting(type=STARTED)
    assert report.attributes["devicesequence"] == "000000000001"
    assert report.attributes["time"] == "2024-05-01T12:16:40.000Z"
    assert report.data() == {
        "birth": "created",
        "epoch": device.spool.epoch,
        "damage": "",
        "salvaged": 0,
        "lost_epoch": "",
        "lost": 0,
        "lost_ranges": [],
    }
    device.restart(connected=False)
    assert len(device.waiting(type=STARTED)) == 1


def test_manifests_state_every_stored_event_once_whatever_crashes(make: MakeDevice) -> None:
    device = make(connected=False, settled=False)
    for number in range(6):
        device.send(event(f"e{number}"), after=0.1)
        if number % 2:
            device.restart(connected=False)
    (last, *_) = device.spool.manifests()
    everything = device.waiting()
    statements = [each for report in device.waiting(type=MANIFEST) for each in report.data()["statements"]]
    uplinked = [each for each in statements if each["destination"] == "device.outbox"]
    spans = [(each["first"], each["last"]) for each in uplinked] + [(last.first, last.last)]
    assert spans[0][0] == 1
    assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == len(everything) == device.spool.next_sequence - 1
    for each in uplinked:
        those = everything[each["first"] - 1 : each["last"]]
        digest = sum(int.from_bytes(event_digest(one.json.encode()), "big") for one in those) % 2**128
        assert (each["count"], each["digest"]) == (len(those), f"{digest:032x}")


EMPTY = "0" * 32


def stated(report: Envelope) -> dict[str, tuple[int, int, int]]:
    """First and last sequence and the count of each destination."""
    statements = report.data()["statements"]
    return {each["destination"]: (each["first"], each["last"], each["count"]) for each in statements}


def test_a_manifest_comes_in_its_interval_and_states_every_destination(device: Device) -> None:
    device.send(event("fire", ALARM))
    device.turn(after=1.1e6)
    device.turn(after=1.1e6)
    first, second = device.waiting(type=MANIFEST)
    assert stated(first) == {"device.outbox": (2, 2, 1), "call.inbox": (2, 2, 1), "display.inbox": (1, 0, 0)}
    assert stated(second) == {"device.outbox": (3, 3, 1), "call.inbox": (3, 2, 0), "display.inbox": (1, 0, 0)}
    assert second.data()["statements"][-1]["digest"] == EMPTY


def test_a_manifest_states_how_far_each_destination_had_acknowledged(make: MakeDevice) -> None:
    """The review: without it an event that IoT Core acknowledged and lost looks lost on the device."""
    device = make()
    device.send(*(event(f"e{n}") for n in range(5)))  # numbers 2 to 6
    device.send(event("fire", ALARM))
    device.turn(device.puback(2))  # the alarm's
    device.turn(after=1.1e6)
    (first,) = device.waiting(type=MANIFEST)
    device.reconnect(LinkName.CLOUD)
    device.acknowledge_all()
    device.turn(after=1.1e6)
    (second,) = device.waiting(type=MANIFEST)
    # The alarm is number 7.
    for manifest, number, to, pending in ((first, "8", 1, [2, 3, 4, 5, 6]), (second, "9", 8, None)):
        assert manifest.attributes["devicesequence"] == number.zfill(12)
        stated = device.statement(manifest)
        assert (stated["acknowledged_to"], stated.get("pending")) == (to, pending)


def test_a_manifest_names_the_contract_that_decided_all_of_it(make: MakeDevice) -> None:
    device = make(settled=False)
    before, after = device.forwarder.contract, contract(uplink_prefix="org.eventplane.a")
    for each in (None, None, Reload(after), None, None):
        device.turn(*([each] if each else []), after=1.1e6)
    names = [each.data().get("contract") for each in device.waiting(type=MANIFEST)]
    # The first may have what was stored before the start, the fourth what was stored before the change.
    assert names == [None, before.version, before.version, None, after.version]


def test_an_event_that_the_cloud_refused_is_reported_as_ended(make: MakeDevice) -> None:
    """It is not pending and was never acknowledged: without the report the cloud would have lost it."""
    device = make()
    device.send(event("e0", ALARM))
    device.turn(device.puback(1, failure="payload format invalid"))
    device.turn(after=61.0)
    (report,) = device.waiting(type=DISCARDED)
    assert report.data()["deliveries"] == [
        {
            "destination": "device.outbox",
            "outcome": "dead_lettered",
            "reason": "refused_by_cloud",
            "count": 1,
            "ranges": [[2, 2]],
        }
    ]


def test_a_start_without_new_events_sends_an_empty_manifest_after_a_while(make: MakeDevice) -> None:
    device = make(connected=False, first_report_s=60.0)
    device.turn(after=59.0)
    assert device.waiting(type=MANIFEST) == []
    device.turn(after=1.0)
    (report,) = device.waiting(type=MANIFEST)
    assert stated(report) == {"device.outbox": (2, 1, 0), "call.inbox": (1, 0, 0), "display.inbox": (1, 0, 0)}
    device.turn(after=3600.0)
    assert len(device.waiting(type=MANIFEST)) == 1


def test_a_restart_loop_states_once_what_was_stored_before_it(make: MakeDevice) -> None:
    device = make(connected=False, first_report_s=60.0)
    device.send(*(event(f"e{n}") for n in range(3)))
    for _ in range(20):
        device.restart(connected=False)
        device.turn(after=50.0)
    (report,) = device.waiting(type=MANIFEST)
    assert stated(report)["device.outbox"] == (2, 4, 3)


def test_irreplaceable_reports_do_not_expire_with_their_channel(make: MakeDevice) -> None:
    device = make(connected=False, settled=False, plane=contract(expiry_s=10))
    device.send(event("e"), b"garbage")
    device.restart(connected=False)
    device.turn(after=40.0)
    device.redial()
    for _ in range(3):
        device.acknowledge_all()
        device.turn(after=1.0)
    assert [each.type for each in device.sent_up()] == [STARTED, DEAD_LETTER, MANIFEST, DISCARDED]


def test_a_heartbeat_has_figures_and_expires_when_newer_ones_exist(make: MakeDevice) -> None:
    device = make(connected=False, heartbeat_s=300.0, first_report_s=60.0)
    device.turn(after=59.0)
    assert device.waiting(2, HEARTBEAT) == []
    assert device.forwarder._timeout_s() <= 1.0  # type: ignore[operator]
    device.turn(after=1.0)
    (beat,) = device.waiting(2, HEARTBEAT)
    assert beat.data() == {"interval_s": 300.0, "figures": {"answer": 42}}
    (waiting,) = device.spool.read("device.outbox", 2, 0, 10)
    assert waiting.expires_ms == device.spool.clock() + 600_000
    device.turn(after=299.0)
    device.turn(after=1.0)
    assert len(device.waiting(2, HEARTBEAT)) == 2


def test_a_heartbeat_takes_no_room_that_others_need(make: MakeDevice) -> None:
    device = make(connected=False, heartbeat_s=300.0)
    device.resize(device.spool.space.used_bytes)
    device.turn(after=300.0)
    assert device.waiting(2, HEARTBEAT) == []
    device.resize(100 * device.spool.space.capacity_bytes)
    device.turn(after=300.0)
    assert len(device.waiting(2, HEARTBEAT)) == 1


def test_reports_wait_for_a_minute_when_there_is_no_room(make: MakeDevice) -> None:
    device = make(connected=False, settled=False)
    assert len(device.waiting(type=STARTED)) == 1
    device.send(event("fire", ALARM))
    device.resize(device.spool.space.used_bytes)
    device.send(event("flood", ALARM))
    for _ in range(60):
        device.turn(after=1.0)
    assert device.waiting(type=DISCARDED) == []
    device.resize(100 * device.spool.space.capacity_bytes)
    device.turn(after=61.0)
    (report,) = device.waiting(type=DISCARDED)
    data: dict[str, Any] = report.data()
    assert [each["count"] for each in data["not_stored"]] == [1]


@pytest.mark.parametrize(("acknowledged", "hop"), [(True, "iot_rule"), (False, "device_cloud")])
def test_stated_events_are_acknowledged(device: Device, acknowledged: bool, hop: str) -> None:
    device.send(*(event(f"e{n}", ALARM) for n in range(3)))  # numbers 2 to 4
    if acknowledged:
        device.acknowledge_all()
    device.turn(after=1.1e6)
    (manifest,) = device.waiting(type=MANIFEST)
    number = int(str(manifest.attributes["devicesequence"]))
    report = 0, "tap/1", MANIFEST, manifest.source, manifest.id, device.spool.epoch, number, manifest.json
    # The rule lost number 3.
    numbers = [1, 2, *range(4, number + 1)]
    events = pack_events((each, each, each) for each in numbers)
    hour = HourRow("thing", device.spool.epoch, 0, True, events, b"", 0, [], (0, "tap/1"), None, 0, [report])
    judged = judge_device(DeviceRows("thing", [hour]), Scope(frozenset({"device.outbox"}), 1))
    assert [(each.hop, each.sequence) for each in judged.findings] == [(hop, 3)]


def test_the_audit_finds_the_alarm_that_nobody_in_the_home_took(make: MakeDevice) -> None:
    """The review: the emergency call in the home was stated, and not judged."""
    device = make()
    device.send(event("fire", ALARM))  # number 2
    device.confirm()
    device.send(event("fall", ALARM), event("again", ALARM))
    device.turn(after=1.1e6)
    device.turn(after=1.1e6)
    rows = []
    for hour, manifest in enumerate(device.waiting(type=MANIFEST)):
        number, epoch = int(str(manifest.attributes["devicesequence"])), device.spool.epoch
        named = hour * HOUR_MS, "tap/1", MANIFEST, manifest.source, manifest.id, epoch, number
        digest = int.from_bytes(event_digest(manifest.json.encode())[8:], "big")
        events, first, report = pack_events([(number, 0, digest)]), (0, "tap/1"), (*named, manifest.json)
        rows.append(HourRow("thing", epoch, hour, True, events, b"", 0, [], first, None, 0, [report]))
    scope = Scope(
        frozenset({"device.outbox"}), 9 * HOUR_MS, {"call.inbox": True, "display.inbox": False}, HOUR_MS
    )
    judged = judge_device(DeviceRows("thing", rows), scope)
    at_home = [each for each in judged.findings if each.hop == "device_inbox"]
    assert [(each.kind, each.sequence) for each in at_home] == [("lost", 3), ("lost", 4)]
    assert {each.destination for each in at_home} == {"call.inbox"}
    assert judged.homes["call.inbox", "receipt"] == 1


def test_the_largest_report_fits_an_event() -> None:
    counts = Counts()
    for number in range(3 * MOST_KINDS):
        channel = f"{number:04}" + "c" * 5_000
        counts.lost(NotStored(channel, f"{number:04}" + "\N{OLD PERSIAN SIGN A}" * 90_000, "spool_full"))
    ranges = tuple((-(1 << 40) + 3 * n, -(1 << 40) + 3 * n + 1) for n in range(MOST_RANGES))
    tally = LossReport("device.outbox", Outcome.DROPPED, "spool_full", 2 * MOST_RANGES, ranges)
    heading = Heading("t" * 128, "e" * 16, 10**11, "2024-01-01T00:00:00.000Z")
    report = reports.discarded(heading, [tally], counts.not_stored)
    assert len(stamp(report, "e" * 16, 10**11).json) > 50_000


@pytest.mark.parametrize(
    ("channel", "type", "others", "listed"),
    [
        ("sensor.outbox", "type-{}", "sensor.outbox", MOST_KINDS),
        ("service-{}.inbox", READING, OTHER_CHANNELS, MOST_KINDS + MOST_OTHER_KINDS),
    ],
)
def test_a_report_is_bounded(channel: str, type: str, others: str, listed: int) -> None:
    counts = Counts()
    for number in range(5 * MOST_KINDS):
        counts.lost(NotStored(channel.format(number), type.format(number), "offline"))
    assert len(counts.not_stored) == listed + 1
    assert counts.not_stored[NotStored(others, OTHER_TYPES, "offline")] == 5 * MOST_KINDS - listed
    assert counts.unreported == 5 * MOST_KINDS


def test_what_happens_while_a_report_is_stored_is_left_for_the_next() -> None:
    counts, kind = Counts(), NotStored("sensor.outbox", "t", "offline")
    counts.lost(kind, 2)
    told = dict(counts.not_stored)
    counts.lost(kind)
    counts.reported(told)
    assert counts.not_stored == {kind: 1}
    assert counts.unreported == 1
