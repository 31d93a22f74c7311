"""What else somebody tries who has one device's certificate: ids, commands, frames, other devices' names."""

import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eventplane.batch import pack
from eventplane.contract import Downlink
from eventplane.device_reports import ACKNOWLEDGED, forwarder_source
from eventplane.downlink.device import Acknowledgement, AckStatus, to_data
from eventplane.envelope import Envelope, write_event
from eventplane.limits import MAX_BATCH_BYTES, MAX_BATCH_EVENTS
from eventplane.names import SUSPECTED
from eventplane.topics import basic_ingest_topic, device_topic
from lab.things import Thing
from parts.fleet.lifecycle import MOST_TAKEOVERS
from parts.provisioning import ProvisioningError
from parts.provisioning.renewal import Renewed
from tests.adversary.conftest import Attempt
from tests.adversary.forgeries import DEVICE, NOT_ALLOWED, PULSE, SHUT, down
from tests.adversary.world import ALARM, HELP, READING, THIEF, VICTIM, VOICE, World, new_id
from tests.integration.cloud import make_claim
from tests.integration.downlink import MESSAGE
from tests.integration.mqtt import TestClient
from tests.integration.test_fleet_provisioning import Fleet, HomeDevice, certificate_status

REFUSAL_S = 5.0


def reading(id: str) -> Envelope:
    """An event that the thief may send: it is of its own home."""
    return write_event({"id": id, "source": f"/homes/{THIEF}/health", "type": READING}, PULSE)


def senders(world: World, event: Envelope) -> list[object]:
    """From which devices the alarm centre got events with the `source` and `id` of `event`, in order."""
    return [
        each.attributes.get("senderdevice")
        for each in world.inboxes.events["alarm-centre"]
        if (each.source, each.id) == (event.source, event.id)
    ]


# Identity


def test_a_false_alarm_in_the_victims_name(world: World, attempt: Attempt) -> None:
    """thief/: raise a false alarm with the `source` of another home's"""
    alarm = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    world.thief.naming("voice-service").send(alarm)
    assert world.comes(lambda: bool(senders(world, alarm)))
    attempt.refused(
        VICTIM not in senders(world, alarm), f"the alarm centre got it from {senders(world, alarm)}"
    )
    named = {(f"{THIEF}/voice-service", "delivered")}

    def ledger() -> set[tuple[str, str]]:
        return {(each.get("sender", ""), each["outcome"]) for each in world.decisions(alarm)}

    attempt.reported(senders(world, alarm) == [THIEF] and world.comes(lambda: ledger() == named), ledger())


def test_an_alarm_is_not_silenced_by_its_id(world: World, attempt: Attempt) -> None:
    """thief/: send another home's next alarm first, so that it counts as a duplicate"""
    victims = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    world.thief.naming("voice-service").send(victims)
    # The alarm centre reads by the client library, which hands out each event once.
    assert world.comes(lambda: senders(world, victims) == [THIEF])
    world.home.services["voice-service"].put(victims)
    attempt.refused(world.comes(lambda: VICTIM in senders(world, victims)), "the alarm centre never heard it")
    attempt.refused(world.comes(lambda: "call-service" in world.who_got(victims)), "nor did the call service")
    attempt.reported(senders(world, victims) == [THIEF, VICTIM], f"it heard {senders(world, victims)}")


# Commands that wait


def acknowledgement(world: World, key: str, source: str) -> Envelope:
    """That the command which waits under `key` is stored, with everything that the plane knows of it."""
    item = world.plane.item(VICTIM, key, Downlink.COMMAND)
    assert item.message is not None
    message = item.message
    ack = Acknowledgement(
        kind=Downlink.COMMAND, key=key, uid=message.uid, version=message.version, order=message.order,
        sender=message.sender, fence=item.fence, source=message.source, id=message.id,
        result=AckStatus.STORED,
    )  # fmt: skip
    return write_event(
        {"id": new_id(), "source": source, "type": ACKNOWLEDGED}, to_data([ack], item.epoch or "e")
    )


@pytest.mark.parametrize("name", ["the other home's", "its own"])
def test_a_command_that_waits_is_not_taken_away(world: World, attempt: Attempt, name: str) -> None:
    """thief/: acknowledge a carer's message that waits for a home which is cut off, in this name"""
    key = f"command/home/{new_id()}"
    world.home.link.cut()
    try:
        message = {"text": "The nurse comes at ten.", "from": "Care office"}
        command = world.plane.send("Carers", MESSAGE, new_id(), message, **down(VICTIM, key))
        assert world.comes(lambda: world.plane.commands(VICTIM, key) == 1)
        source = forwarder_source(VICTIM if name == "the other home's" else THIEF)
        forged = acknowledgement(world, key, source)
        world.thief.send(forged)
        if source == forwarder_source(THIEF):
            # It may say this of itself, and nothing waits for it.
            attempt.reported(
                world.comes(lambda: world.deciders(forged) == {f"{THIEF}/"}), world.decisions(forged)
            )
        else:
            problem = world.problem_of_trace(forged, DEVICE, NOT_ALLOWED)
            attempt.reported(not problem, problem)
    finally:
        world.home.link.heal()
    attempt.refused(
        world.comes(lambda: command.id in [each.id for each in world.home.got["voice-service"]]),
        "the message never came",
    )


# Payloads

HUGE = reading("huge").json.replace('"value":72', '"value":' + "7" * 90_000).encode()
NESTED = b"[" * 40_000 + b"]" * 40_000


@dataclass(frozen=True)
class Bomb:
    """A payload, the part of it that becomes a dead letter, and the reason."""

    payload: bytes
    original: bytes
    reason: str


def whole(payload: bytes, reason: str) -> Bomb:
    """A payload that is one dead letter as a whole."""
    return Bomb(payload, payload, reason)


BOMBS: dict[str, Callable[[], Bomb]] = {
    "a batch that unpacks to 120 MiB": lambda: whole(zlib.compress(bytes(120 * 1024 * 1024), 9), "too_large"),
    "a batch just beyond 4 MiB": lambda: whole(
        pack([reading(new_id()).stamped(subject="x" * 60_000)] * (MAX_BATCH_BYTES // 60_000 + 1)),
        "too_large",
    ),
    "1,001 events": lambda: whole(pack([reading("same")] * (MAX_BATCH_EVENTS + 1)), "too_many"),
    "an event that is nested 40,000 levels": lambda: Bomb(
        zlib.compress(b"[" + NESTED + b"]"), NESTED, "too_deep"
    ),
    "a number of 90,000 digits": lambda: Bomb(zlib.compress(b"[" + HUGE + b"]"), HUGE, "number_too_long"),
    "a compressed batch that is cut off": lambda: whole(pack([reading(new_id())])[:-10], "not_zlib"),
    "bytes that are no event": lambda: whole(bytes(range(256)), "not_utf8"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_payload_is_one_dead_letter(world: World, attempt: Attempt, bomb: str) -> None:
    """thief/: publish a payload to break its reader"""
    made = BOMBS[bomb]()
    world.thief.publish(made.payload)
    assert world.comes(lambda: world.letter_about(made.original) is not None)
    letter = world.letter_about(made.original)
    found = letter.sender, letter.data["reason"]
    attempt.reported(found == (DEVICE, made.reason), (found, letter.data["detail"]))
    # Whatever it did to the router: the next in line is served.
    attempt.refused(world.is_heard(world.calls_for_help()), "an alarm after it was not heard")


def test_one_bad_item_among_good_ones(world: World, attempt: Attempt) -> None:
    """thief/: hide a forged message in a frame between two readings of its own"""
    before, forged, after = (
        reading(new_id()),
        write_event({"id": new_id(), "source": "/carers", "type": MESSAGE, **down()}, SHUT),
        reading(new_id()),
    )
    world.thief.publish(pack([before, forged, after]))
    problem = world.problem_of_trace(forged, DEVICE, NOT_ALLOWED)
    attempt.reported(not problem, problem)
    attempt.refused(not world.who_got(forged), world.who_got(forged))
    for each in (before, after):
        attempt.refused(
            world.comes(lambda each=each: world.who_got(each) == ["care-analytics"]),  # type: ignore[misc]
            f"a good reading came to {world.who_got(each)}",
        )


# Other devices' names, which IoT Core refuses: its log is the trace, as in the account (AWS IoT logging).


@pytest.mark.parametrize(
    "topic",
    [
        basic_ingest_topic("{rule}", VICTIM),
        basic_ingest_topic("{rule}_urgent", VICTIM),
        device_topic(VICTIM, "inbox"),
        device_topic("{thing}", "inbox"),
    ],
)
def test_a_publish_in_anothers_name(world: World, attempt: Attempt, intruder: Thing, topic: str) -> None:
    """another stolen certificate: publish to"""
    event = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    target = topic.format(rule=world.plane.outputs["IngestRule"], thing=intruder.name)
    with TestClient.of_thing(intruder) as device:
        is_taken = device.publish(target, event.json.encode(), REFUSAL_S)
    attempt.refused(not is_taken and not world.who_got(event), f"taken: {is_taken}, {world.who_got(event)}")
    attempt.reported(world.comes(lambda: world.logged("PUBLISH", intruder.name, target)), "not logged")


def test_a_connection_in_another_devices_name(world: World, attempt: Attempt, intruder: Thing) -> None:
    """another stolen certificate: connect by the client id of another home, which would push it out"""
    before = world.home.forwarder.log.read_text().count("cloud broker connected")
    is_refused = TestClient(VICTIM, intruder.host, intruder.port, intruder).is_refused()
    assert world.is_heard(world.calls_for_help())
    after = world.home.forwarder.log.read_text().count("cloud broker connected")
    attempt.refused(is_refused and after == before, "it was let in, or the home was pushed out")
    attempt.reported(world.comes(lambda: world.logged("CONNECT", VICTIM, "refused")), "not logged")


@pytest.mark.parametrize("topic", [device_topic(VICTIM, "inbox"), "devices/#", "$aws/events/#"])
def test_a_subscription_to_others_topics(world: World, attempt: Attempt, intruder: Thing, topic: str) -> None:
    """another stolen certificate: subscribe to"""
    with TestClient.of_thing(intruder) as device:
        attempt.refused(device.is_refused_to(topic), "it may listen")
    attempt.reported(world.comes(lambda: world.logged("SUBSCRIBE", intruder.name)), "not logged")


def test_the_claim_of_the_factory(world: World, attempt: Attempt, tmp_path: Path) -> None:
    """the claim certificate of the factory: publish an alarm for a home"""
    claim = make_claim(world.cloud, world.plane.outputs["ClaimPolicy"], tmp_path)
    event = write_event({"id": new_id(), "source": VOICE, "type": ALARM}, HELP)
    topic = basic_ingest_topic(world.plane.outputs["IngestRule"], VICTIM)
    with TestClient.of_thing(claim) as device:
        is_taken = device.publish(topic, event.json.encode(), REFUSAL_S)
    attempt.refused(not is_taken and not world.who_got(event), "it was taken")
    attempt.reported(world.comes(lambda: world.logged("PUBLISH", claim.name, topic)), "not logged")


# Keys in two hands


@pytest.fixture
def fleet(world: World, tmp_path: Path) -> Fleet:
    claim = make_claim(world.cloud, world.plane.outputs["ClaimPolicy"], tmp_path)
    # AWS IoT waits for the hook for 5 s, and a first call may take longer on a busy machine.
    world.cloud.client("lambda").invoke(FunctionName="eventplane-local-provisioning-hook", Payload=b"{}")
    return Fleet(world.plane, tmp_path, claim)


@pytest.fixture
def true(fleet: Fleet) -> HomeDevice:
    """A device that has left the factory."""
    name = new_id()
    assert fleet.command("register", name).returncode == 0
    return fleet.device(name)


def copied(world: World, true: HomeDevice) -> tuple[HomeDevice, str]:
    """Whoever has a copy of what the device holds, once it is in service, and the certificate's id."""
    assert true.provision() is Renewed.RENEWED
    assert world.comes(lambda: bool(true.fleet.known(true.name).certificate))
    thief = true.fleet.device(true.name, "-thief")
    shutil.copy(true.pair, thief.pair)
    return thief, true.fleet.known(true.name).certificate or ""


def is_suspected(world: World, name: str, suspicion: str) -> bool:
    """Whether operations were told this of the device."""
    world.inboxes.drain()
    told = [each.data() for each in world.inboxes.events["operations"] if each.type == SUSPECTED]
    return (name, suspicion) in [(each["device"], each["suspicion"]) for each in told]


def test_a_copy_becomes_the_only_certificate(world: World, attempt: Attempt, true: HomeDevice) -> None:
    """a copied certificate: renew with it and connect, so that the true one is retired"""
    thief, own = copied(world, true)
    assert thief.provision() is Renewed.RENEWED
    attempt.reported(world.comes(lambda: is_suspected(world, true.name, "early_renewal")), "nobody was told")
    assert world.comes(lambda: certificate_status(true.fleet, own) == "INACTIVE")
    done = world.operator("fleet", "recover", true.name)
    assert done.returncode == 0, done.stderr
    attempt.refused(TestClient.of_thing(thief.thing).is_refused(), "the thief's certificate is good")
    with pytest.raises(ProvisioningError):
        thief.ask_for(true.name)
    assert replace(true, max_age_s=86_400.0).provision() is Renewed.RENEWED, "nobody needs to visit it"
    attempt.refused(not TestClient.of_thing(true.thing).is_refused(), "the device is locked out")
    attempt.refused(TestClient.of_thing(thief.thing).is_refused(), "the thief's certificate is good again")


def test_a_copy_takes_over_the_connection(world: World, attempt: Attempt, true: HomeDevice) -> None:
    """a copied certificate: push the device out of its connection, again and again"""
    thief, own = copied(world, true)
    for _ in range(2 * MOST_TAKEOVERS):
        with TestClient.of_thing(true.thing), TestClient.of_thing(thief.thing):
            pass
    attempt.reported(world.comes(lambda: is_suspected(world, true.name, "two_holders")), "nobody was told")
    done = world.operator("fleet", "condemn", true.name, own)
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        attempt.refused(TestClient.of_thing(thief.thing).is_refused(), "the copy is good")
        assert world.operator("fleet", "quarantine", true.name).returncode == 0
        assert world.operator("fleet", "release", true.name).returncode == 0


def test_the_claim_unseats_a_device(world: World, attempt: Attempt, true: HomeDevice) -> None:
    """the claim certificate of the factory: register a device that has not connected yet once more"""
    name, thief = true.name, true.fleet.device(true.name, "-thief")
    for each in (true, thief):
        each.ask_for(name)
    own, thiefs = true.fleet.known(name).pending
    with TestClient.of_thing(true.thing):
        assert world.comes(lambda: true.fleet.known(name).certificate == own)
        assert world.comes(lambda: certificate_status(true.fleet, thiefs) == "REVOKED")
    attempt.refused(TestClient.of_thing(thief.thing).is_refused(), "it is let in as the device")
    attempt.reported(world.comes(lambda: world.logged("refusing client certificate", thiefs)), "not logged")


def test_a_deactivated_certificate_is_replayed(world: World, attempt: Attempt, intruder: Thing) -> None:
    """a deactivated certificate: connect with it, attached and with its policy as it was"""
    iot = world.cloud.client("iot")
    (arn,) = iot.list_thing_principals(thingName=intruder.name)["principals"]
    certificate = arn.rsplit("/", 1)[-1]
    assert not TestClient.of_thing(intruder).is_refused()
    iot.update_certificate(certificateId=certificate, newStatus="INACTIVE")
    attempt.refused(TestClient.of_thing(intruder).is_refused(), "it is let in")
    attempt.reported(
        world.comes(lambda: world.logged("refusing client certificate", certificate)), "not logged"
    )
