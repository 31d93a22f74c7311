"""The functions enforce who may send to devices, and that no device answers for another.

The core decides (tests/unit/eventplane/downlink/test_rights.py); here, that the functions ask it.
"""

import json
from dataclasses import replace

import pytest

from eventplane.device_reports import (
    ACKNOWLEDGED,
    STARTED,
    UPLINK_INTEREST_TYPE,
    UPLINK_KEY,
    forwarder_source,
)
from eventplane.downlink.desired import Phase
from eventplane.downlink.device import stored, to_data
from eventplane.downlink.table import DESIRED as DESIRED_ITEMS
from eventplane.envelope import write_event
from tests.unit.lambdas.downlink.world import DESIRED, STATE, World, command, group, state

NOTE, SHARED = "org.eventplane.note.v1", "org.eventplane.home.message.v1"


def by(text: str, **sender: str) -> str:
    """The event with another sender, or none."""
    members = json.loads(text)
    del members["senderservice"]
    return json.dumps(members | sender)


def refused(world: World) -> str:
    """The reason and the detail of the one dead letter; nothing was written or sent for it."""
    (letter,) = world.letters()
    return f"{letter['reason']}: {letter['detail']}"


@pytest.mark.parametrize("target", ["home-1", "*"])
@pytest.mark.parametrize(
    "sender", [{}, {"senderdevice": "home-2", "senderservice": "carers"}, {"senderservice": "family-app"}]
)
def test_a_sender_without_right_writes_nothing(world: World, sender: dict[str, str], target: str) -> None:
    assert world.desire(by(state(1, target), **sender)) == frozenset()
    said = refused(world)
    assert said.startswith("sender_not_allowed")
    assert all(each in said for each in sender.values())
    assert (world.sent, world.things()) == ([], [])


def test_the_rest_of_an_event_for_many_is_checked_too(world: World) -> None:
    rest = {"accepted_at_ms": world.clock(), "after": "a", "is_found": True}
    forged = {**rest, "event": by(state(1, "*"), senderdevice="home-2")}
    world.desire(json.dumps({"downlink": forged}))
    assert world.reasons() == ["sender_not_allowed"]
    # What a router writes is an event, with any members of its sender.
    for name in ("downlink", "Downlink"):
        world.desire(json.dumps(json.loads(state(1)) | {name: {**rest, "event": state(7, "home-2")}}))
    assert len(world.reasons()) == 2
    assert (world.sent, world.things()) == ([], [])


@pytest.mark.parametrize("text", [state(1, "*"), group(1, "north"), command(1, "*")])
def test_a_sender_that_may_address_one_device_cannot_address_more(strict: World, text: str) -> None:
    strict.desire(text)
    said = refused(strict)
    assert said.startswith("address_not_allowed: carers addressed")
    assert "all devices" in said or "group north" in said
    strict.desire(state(1))
    assert (strict.versions(), strict.things()) == ([1], ["home-1"])
    event = state(1, "*", type=UPLINK_INTEREST_TYPE, statekey=UPLINK_KEY)
    strict.desire(by(event, senderservice="operations"))
    assert (strict.reasons(), strict.things()) == ([], ["home-1", "home-1", "home-2"])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (group(1, "north"), 2),
        (state(1, "home-3"), 0),
    ],
)
def test_a_sender_that_may_address_groups_reaches_only_these(strict: World, text: str, count: int) -> None:
    strict.make("home-3", groups=frozenset({"south"}))
    participants = dict(strict.contract.participants)
    participants["carers"] = replace(participants["carers"], may_address=("north", "west"))
    strict.contract = replace(strict.contract, participants=participants)
    strict.desire(text)
    assert len(strict.things()) == count
    assert strict.reasons() == ([] if count else ["address_not_allowed"])


@pytest.fixture
def two(world: World) -> World:
    """Beside carers there is `notes`, which sends `NOTE` alone and `SHARED` as carers do."""
    participants, types = dict(world.contract.participants), dict(world.contract.event_types)
    participants["notes"] = replace(participants["carers"], name="notes", sends=(NOTE, SHARED), asks=())
    types[NOTE] = replace(types[STATE], name=NOTE)
    world.contract = replace(world.contract, participants=participants, event_types=types)
    return world


def test_a_key_belongs_to_its_first_sender(two: World) -> None:
    """A second sender could otherwise replace the first one's state by newer versions."""
    two.desire(by(state(1, type=NOTE), senderservice="notes"))
    two.desire(state(2))
    said = refused(two)
    assert (said.startswith("key_not_allowed"), "notes" in said, "carers" in said) == (True, True, True)
    assert two.item().owner == "notes"
    participants = dict(two.contract.participants)
    del participants["notes"]
    two.contract = replace(two.contract, participants=participants)
    two.desire(state(3))
    assert (two.reasons(), two.item().owner) == ([], "carers")


def test_commands_of_two_senders_with_one_id_are_both_sent(two: World) -> None:
    """`source` and `id` are claims: a copy of them must not make another's command a duplicate."""
    names = {"type": SHARED, "statekey": "command/home/say", "id": "same"}
    two.desire(by(command(1, **names), senderservice="notes"), command(1, **names))
    for _ in range(2):
        two.store("home-1")
    item = two.item(sk="c#command/home/say")
    assert (item.state, len(item.recent), two.reasons()) == (Phase.IDLE, 2, [])


@pytest.mark.parametrize(
    ("sender", "is_taken"),
    [
        ({"senderdevice": "home-2", "senderservice": "device"}, True),
        ({"senderdevice": "home-2"}, True),
        ({}, False),
        ({"senderdevice": "home-1", "senderservice": "device"}, False),
        ({"senderdevice": "home-2", "senderservice": "voice-service"}, False),
        ({"senderservice": "device"}, False),
    ],
)
def test_only_its_device_acknowledges(world: World, sender: dict[str, str], is_taken: bool) -> None:
    """Security review, finding 2: a forged acknowledgement removed a carer's pending command."""
    world.line("home-2", "connected")
    world.desire(command(1, "home-2"))
    ((_, incoming),) = world.sent
    names = {"id": "1", "source": forwarder_source("home-2"), "type": ACKNOWLEDGED}
    assert (
        world.tell(write_event({**names, **sender}, to_data([stored(incoming)], "life")).json) == frozenset()
    )
    world.answer("home-1", stored(incoming))
    (found,) = world.dynamodb.items(DESIRED)
    item = DESIRED_ITEMS.from_item(found)
    assert (item.thing, item.state) == ("home-2", Phase.IDLE if is_taken else Phase.SENDING)
    assert world.reasons() == ([] if is_taken else ["sender_not_allowed"])


def test_a_start_counts_only_from_its_device(world: World) -> None:
    world.desire(state(1))
    before = world.item()
    world.taken("work")
    names = {"id": "1", "source": forwarder_source("home-1"), "type": STARTED}
    for sender in ({"senderdevice": "home-2"}, {}):
        world.tell(write_event({**names, **sender}, {"epoch": "forged"}).json)
    assert (world.reasons(), world.taken("work")) == (["sender_not_allowed"] * 2, [])
    for type in (SHARED, "org.eventplane.device.heartbeat.v1"):
        assert world.say("home-1", type, {"epoch": "e", "acknowledged": []}) == frozenset()
    assert world.item() == before
