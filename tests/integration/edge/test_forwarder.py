"""The forwarder as a process between two real brokers, with what can happen to it in a home."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eventplane.device_reports import STARTED
from eventplane.envelope import Envelope
from eventplane.names import EPOCH, SEQUENCE
from tests.endpoint import EndpointServer
from tests.integration.edge.conftest import (
    SECONDS,
    THING,
    Home,
    MakeHome,
    RecordingCloud,
    event,
    ids,
    send,
    wait_for,
)

ALARM = "org.eventplane.alarm.keyword.v1"


def test_events_reach_the_cloud_unchanged(home: Home, cloud: RecordingCloud) -> None:
    service = home.connect("health-service")
    send(service, 0, 100)
    service.flush(SECONDS)
    wait_for(lambda: cloud.has(ids(100)))
    wait_for(home.drained)
    first = next(each for each in cloud.events if each.id == "e7")
    assert first.json.endswith(event(7).json[1:])
    assert_one_epoch_without_gaps(cloud)
    started = next(each for each in cloud.events if each.type == STARTED)
    assert started.source == f"/devices/{THING}/forwarder"
    assert int(str(started.attributes[SEQUENCE])) == 1
    wait_for(lambda: home.health().get("status") == "ok")
    assert home.metric("eventplane_stored_total") >= 101
    assert home.metric("eventplane_published_events_total") >= 101
    assert home.metric('eventplane_pending{destination="device.outbox",priority="normal"}') == 0
    assert home.metric('eventplane_connects_total{link="local"}') == 1
    assert home.metric("process_resident_memory_bytes") > 5e6


def test_the_proxy_leads_both_ways(make_home: MakeHome, cloud: RecordingCloud, proxy: EndpointServer) -> None:
    home = make_home(cloud.port)
    service = home.connect("health-service")
    send(service, 0, 3)
    wait_for(lambda: cloud.has(ids(3)))
    assert {each.target for each in proxy.received} == {"127.0.0.1:443"}


@pytest.mark.source("P1", "P10")
def test_an_alarm_rings_at_home(home: Home, cloud: RecordingCloud) -> None:
    calls: list[Envelope] = []
    stubborn = threading.Event()

    def place_call(alarm: Envelope) -> None:
        if not stubborn.is_set():
            stubborn.set()
            raise ValueError("the line is busy")
        calls.append(alarm)
        caller.send(event(100, "org.eventplane.call.placed.v1"))

    cloud.stop()
    caller = home.listen("call-service", place_call)
    voice = home.connect("voice-service")
    voice.put(event(1, ALARM))
    wait_for(lambda: {call.id for call in calls} == {"e1"})  # at least once: a copy may cross its receipt
    caller.flush(SECONDS)
    cloud.start()
    wait_for(lambda: cloud.has({"e1", "e100"}))
    wait_for(home.drained)


@pytest.mark.source("P5", "P8", "N5")
def test_kills_lose_and_repeat_nothing(home: Home, cloud: RecordingCloud) -> None:
    cloud.stop()
    service = home.connect("health-service")
    send(service, 0, 300)
    service.flush(SECONDS)
    home.forwarder.kill()
    home.forwarder.start()
    cloud.start()
    wait_for(lambda: cloud.has(ids(300)))
    assert len(cloud.payloads) < 60  # in batches
    sender = threading.Thread(target=send, args=(service, 300, 900))
    sender.start()
    broker = home.broker.child
    for count, victims in ((400, [home.forwarder]), (500, [broker]), (600, [broker, home.forwarder])):
        wait_for(lambda count=count: len(cloud.events) >= count)
        for each in victims:
            each.kill()
        for each in victims:
            each.start()
    sender.join(SECONDS)
    service.flush(SECONDS)
    wait_for(lambda: cloud.has(ids(900)))
    wait_for(home.drained)
    assert_one_epoch_without_gaps(cloud)


def assert_one_epoch_without_gaps(cloud: RecordingCloud) -> None:
    """The numbers that arrived are those of one life of the spool, none missing and none given twice."""
    stamps = {(each.attributes[EPOCH], int(str(each.attributes[SEQUENCE])), each.id) for each in cloud.events}
    assert len({epoch for epoch, _, _ in stamps}) == 1
    assert sorted(number for _, number, _ in stamps) == list(range(1, len(stamps) + 1))


def test_the_command_send_stores_an_alarm(home: Home, cloud: RecordingCloud, tmp_path: Path) -> None:
    file = tmp_path / "event.yaml"
    file.write_text(
        "specversion: '1.0'\nid: mine\nsource: /desk\ntype: org.eventplane.alarm.keyword.v1\n"
        "time: 2026-03-01T14:00:00Z\ndata: {room: kitchen, keyword: help}\n"
    )
    words = ["--json", "send", str(file), "--broker", f"mqtt://127.0.0.1:{home.broker.port}"]
    done = subprocess.run(
        [sys.executable, "-m", "eventplane", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    sent = json.loads(done.stdout)
    assert (sent["id"], sent["sender"], sent["refused"]) == ("mine", "voice-service", None)
    wait_for(lambda: cloud.has({"mine"}))
