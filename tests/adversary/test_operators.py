"""Attacks on operators: dead letters that are a trap to redrive, and a device that floods the plane."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contract import load_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE, Refusal, dead_letter
from eventplane.envelope import Envelope, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.topics import basic_ingest_topic, device_topic, urgent_rule
from lab.things import Thing
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import PULSE, SHUT, down
from tests.adversary.world import ALARM, HELP, READING, THIEF, VICTIM, VOICE, World, new_id
from tests.integration.downlink import MESSAGE
from tests.integration.mqtt import TestClient

DEVICES, ALARMS = 12, 25
"""Stolen devices, and what each sends: less than one may send in a minute."""

FRAMES = 700
"""More publishes than a device may send in a minute (stacks/environments.toml)."""

Original = Callable[[str], tuple[Envelope, bytes]]


def _message(id: str) -> tuple[Envelope, bytes]:
    event = write_event({"id": id, "source": "/carers", "type": MESSAGE, **down()}, SHUT)
    return event, event.json.encode()


def _alarm(id: str) -> tuple[Envelope, bytes]:
    event = write_event({"id": id, "source": VOICE, "type": ALARM}, HELP)
    return event, event.json.encode()


def _frame(id: str) -> tuple[Envelope, bytes]:
    event, payload = _alarm(id)
    frame = IngestFrame(payload, device_topic(VICTIM, "outbox"), VICTIM, "", 1_772_437_800_000)
    return event, frame_text(frame).encode()


TRAPS: dict[str, tuple[str, str, Original]] = {
    "a carer's message, from the carers' outbox": ("carers.outbox", "not_json", _message),
    "an alarm, from the alarm centre's inbox": ("alarm-centre.inbox", "not_taken", _alarm),
    "a frame of another home, from the devices' outbox": ("device.outbox", "bad_frame", _frame),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_letter_that_is_a_trap(world: World, attempt: Attempt, trap: str) -> None:
    """thief/: write a dead letter, for operators to redrive, whose original is"""
    channel, reason, original = TRAPS[trap]
    event, content = original(new_id())
    data = dead_letter(
        id="1", source="/", time="2026-03-01T08:30:00Z", refusal=Refusal(reason, "the queue was away"),
        channel=channel, original=content, contract_version=load_contract().version,
    ).data()  # fmt: skip
    letter = write_event(
        {"id": new_id(), "source": f"/devices/{THIEF}/router", "type": DEAD_LETTER_TYPE}, data
    )
    world.inboxes.drain()
    world.thief.send(letter)
    # It may say that of its own router; nobody reads the inbox meanwhile.
    assert world.comes(
        lambda: "operations.inbox" in [each["destination"] for each in world.decisions(letter)]
    )
    shown = world.operator("dead-letters", "show", letter.id, "--letters", "--json")
    done = world.operator("dead-letters", "redrive", letter.id, "--letters")
    assert world.is_heard(world.calls_for_help())
    attempt.refused(
        "1 moved" not in done.stdout and not world.who_got(event), (done.stdout, world.who_got(event))
    )
    attempt.reported(THIEF in shown.stdout and world.deciders(letter) == {f"{THIEF}/"}, shown.stdout)


@pytest.mark.parametrize("flood_of", ["readings", "false alarms"])
def test_a_flood(world: World, attempt: Attempt, intruder: Thing, flood_of: str) -> None:
    """a flooding device: publish 700 times a minute, so that others' alarms have to wait,"""
    assert world.operator("fleet", "register", intruder.name).returncode == 0
    rule, source = world.plane.outputs["IngestRule"], f"/homes/{intruder.name}/service"
    if flood_of == "readings":
        topic, kind, data = basic_ingest_topic(rule, intruder.name), READING, PULSE
    else:
        topic, kind, data = basic_ingest_topic(urgent_rule(rule), intruder.name), ALARM, HELP
    flood = [write_event({"id": f"{n}", "source": source, "type": kind}, data) for n in range(FRAMES)]
    with TestClient.of_thing(intruder) as device:
        device.publish_all(topic, (each.json.encode() for each in flood))
        attempt.refused(world.is_heard(world.calls_for_help()), "an alarm was not heard")

        def is_noticed() -> bool:
            world.sweep()
            world.inboxes.drain()
            named = [each for each in world.inboxes.events["operations"] if "flooding" in each.type]
            return intruder.name in [each.attributes.get("subject") for each in named]

        attempt.reported(world.comes(is_noticed), "operations were not told who floods")
        done = world.operator("fleet", "quarantine", intruder.name, "--why", "it floods")
        assert done.returncode == 0, done.stderr
        attempt.refused(not device.publish(topic, flood[0].json.encode(), 5.0), "its connection goes on")
    attempt.refused(TestClient.of_thing(intruder).is_refused(), "it came back")
    attempt.reported(
        "it floods" in world.operator("fleet", "show", intruder.name).stdout, "no reason is kept"
    )
    freed = world.operator("fleet", "release", intruder.name)
    assert freed.returncode == 0, freed.stderr
    assert world.comes(lambda: not TestClient.of_thing(intruder).is_refused())


def test_a_flood_over_many_devices(world: World, attempt: Attempt, tmp_path: Path) -> None:
    """thieves of 12 devices: raise 300 false alarms at once, each at a rate that a device may have"""
    rule = world.plane.outputs["IngestRule"]
    names = [f"flood-{number}" for number in range(DEVICES)]
    things = [world.plane.provision(each, tmp_path / each) for each in names]
    assert world.operator("fleet", "register", *names).returncode == 0
    flood = {
        name: [
            write_event({"id": new_id(), "source": f"/homes/{name}/service", "type": ALARM}, HELP)
            for _ in range(ALARMS)
        ]
        for name in names
    }

    def raise_alarms(thing: Thing) -> bool:
        topic = basic_ingest_topic(urgent_rule(rule), thing.name)
        with TestClient.of_thing(thing) as device:
            return device.publish_all(topic, (each.json.encode() for each in flood[thing.name]))

    with ThreadPoolExecutor(DEVICES) as workers:
        sent = workers.map(raise_alarms, things)
        alarms = [world.calls_for_help() for _ in range(3)]
        attempt.refused(all(map(world.is_heard, alarms)), "an alarm was not heard")
        assert all(sent)
    expected = {(name, each.id) for name, events in flood.items() for each in events}

    def got() -> set[tuple[object, str]]:
        found = world.inboxes.events["alarm-centre"]
        return {(each.attributes.get("senderdevice"), each.id) for each in found} & expected

    attempt.reported(world.comes(lambda: got() == expected), f"{len(expected - got())} without their sender")
