"""The table of metrics: each read from the part that knows it, and what heartbeat and page make of them."""

import json
import re
from typing import Any

import pytest

from edge.health_status import DeviceStatus, Health, HealthFinding
from edge.housekeeping import StatusReader
from edge.metrics import METRICS, Metric, Reading, heartbeat, read_all, render
from edge.spool.store import Spool
from eventplane import __version__
from eventplane.contract import Priority
from eventplane_mqtt import reasons
from eventplane_mqtt.mailbox import Disconnected, LinkName, Mailbox, Message
from lab.tools.dashboards import ROWS, device_dashboard, rows
from tests.unit.edge.builders import backlog
from tests.unit.edge.fakes import ALARM, Device, MakeDevice, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD
QUOTA = reasons.name(0x97)
FINDINGS = (HealthFinding("cloud_down", Health.DEGRADED, "no connection", "wait"),)
SAMPLE = re.compile(r'([a-z_:]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')


def reader_of(device: Device) -> StatusReader:
    reader = StatusReader(device.forwarder, device.time.system())
    reader.look(device.time.seconds)
    return reader


@pytest.fixture
def device(make: MakeDevice) -> Device:
    return make(bytes_per_day=10**9)


@pytest.fixture
def reader(device: Device, monkeypatch: pytest.MonkeyPatch) -> StatusReader:
    """Of a device with a day behind it, in which everything happened another number of times."""
    monkeypatch.setattr(Spool, "written_bytes", property(lambda _: 4_711))
    reader = reader_of(device)
    for _ in range(2):
        device.reconnect(CLOUD)
    for mid, failure in ((1, None), (2, QUOTA)):
        device.send(event(f"e{mid}"))
        device.turn(after=1.0)  # longer than it is held back for a batch
        device.turn(device.puback(mid, failure=failure))
    device.send(*(b"no event %d" % number for number in range(3)))
    device.resize(1024)
    device.send(*(event(f"low{number}") for number in range(4)))
    device.turn(Disconnected(LOCAL, device.local_link.generation, "gone"))
    reader.look(device.time.seconds)
    device.time.seconds += 7.0
    return reader


def page(reader: StatusReader, status: DeviceStatus) -> list[str]:
    return render(read_all(Reading(status, FINDINGS, reader.forwarder))).splitlines()


def value(lines: list[str], family: str) -> float:
    """Return the only sample of a family."""
    (found,) = (line for line in lines if line.startswith(family + " "))
    return float(found.split()[1])


def test_each_metric_is_read_where_it_is_counted(reader: StatusReader, device: Device) -> None:
    status = reader.status(device.time.seconds)
    assert status.links[LOCAL].for_s == 7.0
    ages = {each.priority: each.oldest_s for each in status.backlog if each.destination == "device.outbox"}
    assert ages[Priority.NORMAL] >= 7.0
    assert ages[Priority.URGENT] == 0.0
    lines = page(reader, status)
    for line in (
        'eventplane_connects_total{link="cloud"} 3',
        'eventplane_connects_total{link="local"} 1',
        'eventplane_link_up{link="cloud"} 1',
        'eventplane_link_up{link="local"} 0',
        'eventplane_link_up_seconds{link="local"} 0.0',
        "eventplane_refused_total 4",
        "eventplane_slowdowns_total 1",
        "eventplane_acknowledged_total 1",
        "eventplane_spool_written_bytes_total 4711",
        "eventplane_spool_capacity_bytes 1024",
        'eventplane_dead_letters_total{reason="not_json"} 3',
        f"eventplane_stored_total {device.spool.next_sequence - 1}",
        'eventplane_problem{problem="cloud_down",health="degraded"} 1',
        f'eventplane_pending{{destination="device.outbox",priority="normal"}} '
        f"{device.spool.pending('device.outbox', 1)}",
    ):
        assert line in lines
    assert value(lines, "eventplane_publishes_total") >= 2
    assert value(lines, "eventplane_published_events_total") >= 2
    assert value(lines, "eventplane_published_bytes_total") > value(lines, "eventplane_publishes_total")
    assert value(lines, "eventplane_spool_pressure") >= 1.0
    assert value(lines, "process_resident_memory_bytes") > 1e6


def test_a_cloud_that_refuses_for_want_of_quota_is_progress(device: Device) -> None:
    reader = reader_of(device)
    device.send(event("fire", ALARM))
    before = reader.progress()
    device.turn(device.puback(1, failure=QUOTA), after=1.0)
    after = reader.progress()
    assert after.answered == before.answered + 1
    assert after.waiting == before.waiting == 1
    assert device.forwarder.uplink.acknowledge_s == 0.0


def test_a_drop_is_dated_when_it_is_seen_and_the_link_itself_did_not_change(device: Device) -> None:
    reader = reader_of(device)
    share = device.links[LOCAL].share = Mailbox[Message]().share(LOCAL, 65_536)
    assert reader.status(device.time.seconds).links[LOCAL].since_drop_s is None
    share.count_dropped(3)
    share.pauses = 2
    assert not reader.look(device.time.seconds)
    device.time.seconds += 5.0
    assert not reader.look(device.time.seconds)
    state = reader.status(device.time.seconds).links[LOCAL]
    assert (state.dropped, state.since_drop_s, state.pauses) == (3, 5.0, 2)


def test_an_urgent_event_that_waits_has_an_age_of_its_own(device: Device) -> None:
    reader = reader_of(device)
    device.disconnect(CLOUD)
    device.send(event("fire", ALARM))
    device.time.seconds += 30.0
    found = reader.status(device.time.seconds)
    assert reader.heartbeat(device.time.seconds)["oldest_urgent_s"] == pytest.approx(30.0)
    waiting = {(each.destination, each.priority): each.pending for each in found.backlog if each.pending}
    assert waiting == {("device.outbox", Priority.URGENT): 1, ("call.inbox", Priority.URGENT): 1}


@pytest.mark.source("P18")
def test_families_begin_with_help_and_type(reader: StatusReader, device: Device) -> None:
    device.forwarder.counts.downlink_outcomes.update(stored=5, older=1)
    device.forwarder.counts.discards["expired", "ttl"] += 4  # type: ignore[index]
    status = reader.status(device.time.seconds)._replace(certificate_left_s=86_400.0)
    family = ""
    seen: list[str] = []
    for line in page(reader, status):
        if line.startswith("# HELP "):
            family = line.split()[2]
            seen.append(family)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            assert line.split()[3] in ("counter", "gauge")
        else:
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1] == family
            float(found[3])
    assert seen == [each.name for each in METRICS]
    assert len(set(seen)) == len(seen)


def test_a_family_without_samples_is_left_out(device: Device) -> None:
    reader = reader_of(device)
    text = render(read_all(Reading(reader.status(device.time.seconds), (), device.forwarder)))
    assert "dead_letters" not in text
    assert "certificate" not in text
    assert text.endswith("\n")


def test_labels_are_escaped(device: Device) -> None:
    reader = reader_of(device)
    lines = page(reader, reader.status(device.time.seconds)._replace(thing='a"b\\c\nd'))
    assert any('thing="a\\"b\\\\c\\nd"' in line for line in lines)
    assert all(SAMPLE.fullmatch(line) for line in lines if not line.startswith("#"))


def test_the_heartbeat_is_flat_and_small(reader: StatusReader, device: Device) -> None:
    status = reader.status(device.time.seconds)
    waits = (backlog(2.54), backlog(1.0, destination="call.inbox"), backlog(9.0, Priority.NORMAL))
    beat: dict[str, Any] = heartbeat(Reading(status._replace(backlog=waits), (), device.forwarder))
    assert beat == {
        "contract": device.contract.version,
        "image": device.contract.version,
        "version": f"{__version__} (source)",
        "oldest_urgent_s": 2.5,
        "oldest_normal_s": 9.0,
        "oldest_low_s": 0,
        "pending": 9,
        "pending_urgent": 6,
        "pending_normal": 3,
        "pending_low": 0,
        "stored": device.spool.next_sequence - 1,
        "refused": 4,
        "dead_letters": 3,
        "discards": 3,
        "cloud_up_s": round(status.links[CLOUD].for_s),
        "cloud_connects": 3,
        "local_connects": 1,
        "received_dropped": 0,
        "published_events": beat["published_events"],
        "published_bytes": beat["published_bytes"],
        "on_disk": 1,
        "disk_free_bytes": beat["disk_free_bytes"],
        "spool_pressure": round(device.spool.space.pressure, 3),
        "written_bytes": 4_711,
        "uptime_s": round(status.uptime_s),
        "rss_bytes": beat["rss_bytes"],
    }
    assert all(isinstance(each, int | float | str) for each in beat.values())
    assert beat["disk_free_bytes"] > 0


DOCUMENT = json.loads(device_dashboard())
GRAPHS = [each for each in DOCUMENT["panels"] if each["type"] != "row"]
QUERIES = [target["expr"] for panel in GRAPHS for target in panel["targets"]]


def test_it_shows_every_metric_and_none_that_is_not() -> None:
    shown = {name for query in QUERIES for name in re.findall(r"\b(?:eventplane|process)_\w+", query)}
    assert shown == {each.name for each in METRICS}


def test_a_metric_without_a_panel_gets_one() -> None:
    new = (Metric("eventplane_new_total", "New.", lambda _: 1), Metric("eventplane_new", "New.", lambda _: 1))
    assert rows() == ROWS
    *known, others = rows((*METRICS, *new))
    assert tuple(known) == ROWS
    assert [each.queries[0].promql for each in others.panels] == [
        "rate(eventplane_new_total{$i}[$__rate_interval])",
        "eventplane_new{$i}",
    ]


def test_counters_are_shown_as_rates_and_gauges_as_they_are() -> None:
    kinds = {each.name: each.kind for each in METRICS}
    for query in QUERIES:
        for ranged in re.findall(r"(\w+)\{[^}]*\}\[", query):
            assert kinds[ranged] == "counter", query


def test_each_query_is_about_the_chosen_devices_and_closes_what_it_opens() -> None:
    for query in QUERIES:
        assert query.count('{instance=~"$instance"}') == len(
            re.findall(r"\b(?:eventplane|process)_\w+", query)
        )
        assert [query.count(each) for each in "({["] == [query.count(each) for each in ")}]"]
