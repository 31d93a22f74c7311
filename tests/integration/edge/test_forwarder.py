"""The forwarder as a process between two real brokers, with what can happen to it in a home."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from secrets import token_hex

import pytest

from eventplane.device_reports import DISCARDED, STARTED
from eventplane.envelope import Envelope
from eventplane.names import EPOCH, SEQUENCE
from eventplane_client import UnhandleableError
from eventplane_client.errors import NoRoomError
from local.certificates import Authority
from local.process import Child
from tests.integration.edge.conftest import (
    SECONDS,
    THING,
    CloudBroker,
    Home,
    event,
    ids,
    send,
    wait_for,
)

ALARM = "org.eventplane.alarm.keyword.v1"
DEAD_LETTER = "org.eventplane.deadletter.v1"


def test_events_reach_the_cloud_numbered_and_in_their_own_words(home: Home, cloud: CloudBroker) -> None:
    service = home.connect("health-service")
    send(service, 0, 100)
    service.flush(SECONDS)
    wait_for(lambda: cloud.has(ids(100)))
    wait_for(home.drained)
    first = next(each for each in cloud.events if each.id == "e7")
    assert first.json.endswith(event(7).json[1:])
    assert len({each.attributes[EPOCH] for each in cloud.events}) == 1
    assert sorted({int(str(each.attributes[SEQUENCE])) for each in cloud.events}) == list(range(1, 102))
    started = next(each for each in cloud.events if each.type == STARTED)
    assert started.source == f"/devices/{THING}/forwarder"
    assert int(str(started.attributes[SEQUENCE])) == 1


@pytest.mark.source("P-W4")
def test_what_is_malformed_becomes_a_dead_letter_and_blocks_nothing(home: Home, cloud: CloudBroker) -> None:
    refused: list[tuple[bytes, str]] = []
    service = home.transport(
        "health-service", on_refused=lambda payload, reason: refused.append((payload, reason))
    )
    service.send(b"not an event")
    service.send(event(1, "com.example.nobody-wants-it"))
    service.send(event(2).stamped(**{EPOCH: "forged"}))
    service.send(event(3))
    service.flush(SECONDS)
    wait_for(lambda: cloud.has({"e3"}) and len({e.key for e in cloud.events if e.type == DEAD_LETTER}) == 3)
    reasons = ["not_json", "sender_not_allowed", "reserved_attribute"]
    wait_for(lambda: [reason for _, reason in refused] == reasons)
    letters = {
        str(each.attributes["deadletterreason"]): each for each in cloud.events if each.type == DEAD_LETTER
    }
    assert sorted(letters) == sorted(reasons)
    assert json.loads(letters["not_json"].json)["data"]["channel"] == "health-service.outbox"


@pytest.mark.source("P1", "P10")
def test_an_alarm_rings_at_home_and_is_done_with_the_services_own_receipt(
    home: Home, cloud: CloudBroker
) -> None:
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


def test_an_event_that_a_service_can_never_handle_becomes_a_dead_letter(
    home: Home, cloud: CloudBroker
) -> None:
    def refuse(_alarm: Envelope) -> None:
        raise UnhandleableError("no_such_room", "there is nobody to call")

    home.listen("call-service", refuse)
    home.connect("voice-service").put(event(1, ALARM))
    wait_for(lambda: any(each.attributes.get("deadletterreason") == "no_such_room" for each in cloud.events))
    wait_for(home.drained)


@pytest.mark.source("P5", "N5")
def test_kill_of_the_forwarder_mid_stream_loses_nothing(home: Home, cloud: CloudBroker) -> None:
    service = home.connect("health-service")
    sender = threading.Thread(target=send, args=(service, 0, 600))
    sender.start()
    for threshold in (100, 300):
        wait_for(lambda threshold=threshold: len(cloud.events) >= threshold)
        home.forwarder.kill()
        home.forwarder.start()
    sender.join(SECONDS)
    service.flush(SECONDS)
    wait_for(lambda: cloud.has(ids(600)))
    wait_for(home.drained)
    assert_one_epoch_without_gaps(cloud)


@pytest.mark.source("N5")
def test_kill_of_the_homes_broker_mid_stream_loses_nothing(home: Home, cloud: CloudBroker) -> None:
    service = home.connect("health-service")
    sender = threading.Thread(target=send, args=(service, 0, 600))
    sender.start()
    for threshold in (100, 300):
        wait_for(lambda threshold=threshold: len(cloud.events) >= threshold)
        home.broker.child.kill()
        home.broker.child.start()
    sender.join(SECONDS)
    service.flush(SECONDS)
    wait_for(lambda: cloud.has(ids(600)))
    wait_for(home.drained)


@pytest.mark.source("P8")
def test_a_cloud_that_was_away_gets_everything_in_batches(home: Home, cloud: CloudBroker) -> None:
    cloud.stop()
    service = home.connect("health-service")
    send(service, 0, 300)
    service.flush(SECONDS)
    home.forwarder.kill()
    home.forwarder.start()
    cloud.start()
    wait_for(lambda: cloud.has(ids(300)))
    wait_for(home.drained)
    assert len(cloud.payloads) < 60
    assert_one_epoch_without_gaps(cloud)


def test_a_certificate_that_the_cloud_refuses_is_reported_and_can_be_replaced(
    home: Home, cloud: CloudBroker, tmp_path: Path
) -> None:
    good = tmp_path / "certificates" / "home-1.crt"
    key = good.with_suffix(".key")
    right = {file: file.read_bytes() for file in (good, key)}
    stranger = Authority(tmp_path / "strangers").issue("home-1")
    home.forwarder.kill()
    good.write_bytes(stranger.certificate.read_bytes())
    key.write_bytes(stranger.key.read_bytes())
    home.forwarder.start()
    wait_for(lambda: "unknown ca" in home.log())
    service = home.connect("health-service")
    service.put(event(1), SECONDS)
    assert not cloud.events
    for file, content in right.items():
        file.write_bytes(content)
    wait_for(lambda: cloud.has({"e1"}))


def test_a_full_spool_refuses_readings_and_still_lets_an_alarm_ring(home: Home, cloud: CloudBroker) -> None:
    cloud.stop()
    home.forwarder.kill()
    settings = home.spool.parent.parent / "edge.toml"
    settings.write_text("spool_capacity_bytes = 4194304\n" + settings.read_text())
    home.forwarder.start()
    refused = 0
    calls: list[Envelope] = []
    service = home.connect("health-service")
    home.listen("call-service", calls.append)
    # 8 MB, more than there is room for.
    for number in range(200):
        try:
            service.put(event(number).stamped(pad=token_hex(20_000)), SECONDS)
        except NoRoomError:
            refused += 1
    assert 50 < refused < 150
    home.connect("voice-service").put(event(1000, ALARM))
    wait_for(lambda: [each.id for each in calls] == ["e1000"])
    cloud.start()
    wait_for(home.drained)
    wait_for(lambda: any(each.type == DISCARDED for each in cloud.events))
    told = [each.data() for each in cloud.events if each.type == DISCARDED]
    wait_for(lambda: cloud.has({"e0", "e1000"}))
    assert told[0]["not_stored"][0]["reason"] == "spool_full"
    assert told[0]["deliveries"] == []


@pytest.mark.parametrize(
    ("change", "status", "complaint"),
    [
        (("port = ", "port = 0 #"), 78, "setting 'local.port'"),
        (("contract.json", "missing.json"), 78, "missing.json"),
    ],
)
def test_what_it_cannot_start_with_it_says(
    home: Home, change: tuple[str, str], status: int, complaint: str
) -> None:
    home.forwarder.kill()
    settings = home.spool.parent.parent / "edge.toml"
    settings.write_text(settings.read_text().replace(*change, 1))
    # Or it would go by the contract that was in force before.
    home.spool.with_name(f"{home.spool.name}.contract").unlink()
    child: Child = home.forwarder
    child._ready = None
    child.start()
    assert child.wait() == status
    assert complaint in home.log()


def test_a_second_forwarder_on_the_same_spool_ends(home: Home) -> None:
    command = [sys.executable, "-m", "edge", "--settings", str(home.settings)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert second.returncode == 74
    assert "another forwarder" in second.stderr + second.stdout


def assert_one_epoch_without_gaps(cloud: CloudBroker) -> None:
    """The numbers that arrived are those of one life of the spool, none missing and none given twice."""
    stamps = {(each.attributes[EPOCH], int(str(each.attributes[SEQUENCE])), each.id) for each in cloud.events}
    assert len({epoch for epoch, _, _ in stamps}) == 1
    assert sorted(number for _, number, _ in stamps) == list(range(1, len(stamps) + 1))


def test_the_command_send_stores_an_alarm_of_one_s_own_which_goes_to_the_cloud(
    home: Home, cloud: CloudBroker, tmp_path: Path
) -> None:
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
    assert json.loads(done.stdout) == {"id": "mine", "source": "/desk", "sender": "voice-service"}
    wait_for(lambda: cloud.has({"mine"}))
