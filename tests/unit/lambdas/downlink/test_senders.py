"""Nobody commands the fleet who may not, and no device answers for another (issue 17)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from eventplane.conversation.attributes import REPLY_TYPE
from eventplane.device_reports import DEVICE_CONTRACT, STARTED, forwarder_source
from eventplane.downlink.desired import State
from eventplane.downlink.device import ACKNOWLEDGED, stored, to_data
from eventplane.downlink.rights import CONTRACT_KEYS
from eventplane.downlink.wire import key_of_sender
from eventplane.envelope import write_event
from eventplane.interest.uplink import UPLINK_INTEREST_TYPE, UPLINK_KEY
from tests.unit.lambdas.downlink.world import DESIRED, KEY_OF_PULSE, STATE, World, command, group, state

BURNT = "9" * 18


def by(text: str, **sender: str) -> str:
    """The event with another sender, or none."""
    members = json.loads(text)
    del members["senderservice"]
    return json.dumps(members | sender)


def said(world: World) -> list[tuple[str, str]]:
    """Reasons and details of the dead letters since this was asked last."""
    return [(each["reason"], each["detail"]) for each in world.letters()]


class TestSenders:
    @pytest.mark.parametrize(
        "sender",
        [
            {},
            {"senderdevice": "home-2"},
            {"senderdevice": "home-2", "senderservice": "carers"},
            {"senderdevice": "home-2", "senderservice": "device"},
            {"senderservice": "voice-service"},
            {"senderservice": "device"},
            {"senderservice": "eventplane"},
            {"senderservice": "nobody"},
            {"senderservice": "family-app"},
            {"senderservice": "operations"},
        ],
    )
    @pytest.mark.parametrize("target", ["home-1", "*"])
    def test_only_a_cloud_service_that_may_send_the_type_sends_down(
        self, world: World, sender: dict[str, str], target: str
    ) -> None:
        assert world.desire(by(state(1, target), **sender)) == frozenset()
        ((reason, detail),) = said(world)
        assert reason == "sender_not_allowed"
        assert sender.get("senderservice", "") in detail
        assert sender.get("senderdevice", "") in detail
        assert (world.sent, len(world.things())) == ([], 0)

    def test_a_contract_of_a_device_replaces_no_other_s(self, world: World) -> None:
        """Security review, finding 1: a device published a contract without alarm routes to `*`."""
        attack = {"type": DEVICE_CONTRACT, "statekey": f"{CONTRACT_KEYS}care-at-home", "todevice": "*"}
        for sender in ({"senderdevice": "home-2"}, {"senderservice": "carers"}):
            world.desire(by(state(1, **attack), **sender))
        assert world.reasons() == ["sender_not_allowed"] * 2
        assert (world.sent, len(world.things())) == ([], 0)

    def test_the_rest_of_an_event_for_many_is_checked_like_its_beginning(self, world: World) -> None:
        rest = {"accepted_at_ms": world.clock.now_ms, "after": "a", "is_found": True}
        forged = by(state(1, "*"), senderdevice="home-2")
        world.desire(json.dumps({"downlink": {**rest, "event": forged}}))
        assert world.reasons() == ["sender_not_allowed"]
        assert (world.sent, len(world.things())) == ([], 0)

    def test_no_event_is_taken_for_the_rest_of_another(self, world: World) -> None:
        """What a router writes is an event, whatever members its sender gave it."""
        for name in ("downlink", "Downlink"):
            body = json.loads(state(1)) | {name: {"event": state(7, "home-2"), "after": "", "is_found": True}}
            world.desire(json.dumps(body))
        assert len(world.reasons()) == 2
        assert (world.sent, len(world.things())) == ([], 0)


class TestAddresses:
    @pytest.mark.parametrize("text", [state(1, "*"), group(1, "north"), command(1, "*")])
    def test_who_may_address_one_device_addresses_no_more(self, strict: World, text: str) -> None:
        strict.desire(text)
        ((reason, detail),) = said(strict)
        assert reason == "address_not_allowed"
        assert "carers addressed" in detail
        assert "all devices" in detail or "group north" in detail
        assert len(strict.things()) == 0
        strict.desire(state(1))
        assert strict.versions() == [1]

    def test_who_may_address_everyone_does(self, strict: World) -> None:
        event = state(1, "*", type=UPLINK_INTEREST_TYPE, statekey=UPLINK_KEY)
        strict.desire(by(event, senderservice="operations"))
        assert (strict.reasons(), len(strict.things())) == ([], 2)

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            (state(1, "home-1"), 1),
            (group(1, "north"), 2),
            (state(1, "home-3"), 0),
            (group(1, "south"), 0),
            (state(1, "*"), 0),
        ],
    )
    def test_who_may_address_groups_reaches_their_devices_only(
        self, strict: World, text: str, count: int
    ) -> None:
        strict.make("home-3", groups=frozenset({"south"}))
        participants = dict(strict.contract.participants)
        participants["carers"] = replace(participants["carers"], may_address=("north", "west"))
        strict.contract = replace(strict.contract, participants=participants)
        strict.desire(text)
        assert len(strict.things()) == count
        assert strict.reasons() == ([] if count else ["address_not_allowed"])


class TestKeys:
    @pytest.mark.parametrize("key", [f"{CONTRACT_KEYS}care-at-home", f"{CONTRACT_KEYS}x", UPLINK_KEY])
    @pytest.mark.parametrize("deletes", [True, False])
    def test_the_keys_that_steer_the_forwarder_are_for_their_types(
        self, world: World, key: str, deletes: bool
    ) -> None:
        world.desire(state(1, statekey=key, **({"statedelete": True} if deletes else {})))
        assert (world.reasons(), len(world.things())) == (["key_not_allowed"], 0)

    def test_a_key_belongs_to_the_first_who_sent_it(self, two: World) -> None:
        """A second sender could otherwise bury what the first one says beneath newer versions."""
        two.desire(state(1))
        two.desire(by(state(2, type=NOTE), senderservice="notes"))
        ((reason, detail),) = said(two)
        assert (reason, "notes" in detail, "carers" in detail) == ("key_not_allowed", True, True)
        assert two.item().owner == "carers"
        two.desire(state(3))
        assert two.item().message is not None
        assert (two.reasons(), two.item().message.version) == ([], 3)  # type: ignore[union-attr]

    def test_who_may_send_the_same_type_shares_the_key(self, two: World) -> None:
        two.desire(state(1, type=SHARED))
        two.desire(by(state(2, type=SHARED), senderservice="notes"))
        two.desire(state(3))
        assert two.reasons() == []
        two.desire(by(state(4, type=NOTE), senderservice="notes"))
        assert two.reasons() == ["key_not_allowed"]

    def test_the_key_of_one_who_left_the_contract_is_free(self, two: World) -> None:
        two.desire(by(state(1, type=NOTE), senderservice="notes"))
        participants = dict(two.contract.participants)
        del participants["notes"]
        two.contract = replace(two.contract, participants=participants)
        two.desire(state(2))
        assert (two.reasons(), two.item().owner) == ([], "carers")

    def test_the_key_of_another_s_commands_is_not_to_be_had(self, two: World) -> None:
        """It was: a reply may be sent by everybody, and the first of a key was its owner."""
        takes = {"statekey": key_of_sender("carers", "/carers"), "source": "/notes"}
        two.desire(by(command(1, type=SHARED_COMMAND, **takes), senderservice="notes"))
        assert two.reasons() == ["invalid_state_key"]
        two.desire(by(command(2, type=REPLY_TYPE, **takes), senderservice="notes"))
        two.desire(command(3))
        assert two.reasons() == []
        assert [incoming.id for _, incoming in two.sent] == ["c2", "c3"]
        assert two.item(sk=f"c#{takes['statekey']}").owner == "carers"

    def test_two_senders_of_one_command_are_both_heard(self, two: World) -> None:
        """`source` and `id` are claims: who copied them must not make another's command a repetition."""
        names = {"type": SHARED_COMMAND, "statekey": "command/home/say", "id": "same"}
        two.desire(by(command(1, **names), senderservice="notes"), command(1, **names))
        two.store("home-1")
        two.store("home-1")
        item = two.item(sk="c#command/home/say")
        assert (item.state, len(item.recent), two.reasons()) == (State.IDLE, 2, [])


NOTE = "org.eventplane.note.v1"
SHARED = "org.eventplane.home.shared.v1"
SHARED_COMMAND = "org.eventplane.home.message.v1"


@pytest.fixture
def two(world: World) -> World:
    """Beside carers there is `notes`; both send `SHARED` and `SHARED_COMMAND`."""
    participants = dict(world.contract.participants)
    participants["notes"] = replace(
        participants["carers"], name="notes", sends=(NOTE, SHARED, SHARED_COMMAND), asks=()
    )
    types = dict(world.contract.event_types)
    types |= {name: replace(types[STATE], name=name) for name in (NOTE, SHARED)}
    world.contract = replace(world.contract, participants=participants, event_types=types)
    return world


class TestVersions:
    """Security review, finding 1: `stateversion` 999999999999999999 burnt a key."""

    def test_a_version_that_nothing_can_follow_is_refused(self, world: World) -> None:
        world.desire(state(1))
        world.desire(state(1, id="burn", stateversion=BURNT), state(1, "*", id="all", stateversion=BURNT))
        letters = said(world)
        # One letter for an event to all devices, not one for each.
        assert [reason for reason, _ in letters] == ["version_jump"] * 2
        assert all("desired reset" in detail for _, detail in letters)
        world.desire(state(2))
        assert world.item().message is not None
        assert world.item().message.version == 2  # type: ignore[union-attr]

    def test_a_counter_grows_by_steps(self, world: World) -> None:
        world.desire(state(5), state(1, id="far", stateversion=str(5 + 1_000_001)))
        ((reason, detail),) = said(world)
        assert (reason, f"reset {KEY_OF_PULSE} --device home-1" in detail) == ("version_jump", True)
        world.desire(state(1, id="near", stateversion=str(5 + 1_000_000)))
        assert world.reasons() == []
        # A key of counters does not become one of times by mistake.
        world.desire(state(1, id="time", stateversion=str(world.clock.now_ms)))
        assert world.reasons() == ["version_jump"]

    def test_a_key_of_times_goes_on_by_times(self, world: World) -> None:
        world.desire(state(1, stateversion=str(world.clock.now_ms - 10**10)))
        world.desire(state(2, stateversion=str(world.clock.now_ms)))
        assert world.reasons() == []


class TestAnswers:
    """Security review, finding 2: a forged acknowledgement removed a carer's pending command."""

    def forged(self, world: World, **sender: str) -> str:
        world.line("home-2", "connected")
        world.desire(command(1, "home-2"))
        ((_, incoming),) = world.sent
        data = to_data([stored(incoming)], "life")
        source = forwarder_source("home-2")
        return write_event({"id": "1", "source": source, "type": ACKNOWLEDGED, **sender}, data).json

    @pytest.mark.parametrize(
        "sender",
        [
            {},
            {"senderdevice": "home-1"},
            {"senderdevice": "home-1", "senderservice": "device"},
            {"senderdevice": "home-2", "senderservice": "voice-service"},
            {"senderservice": "device"},
            {"senderservice": "carers"},
            {"senderservice": "eventplane"},
        ],
    )
    def test_a_device_s_answer_comes_from_that_device(self, world: World, sender: dict[str, str]) -> None:
        text = self.forged(world, **sender)
        assert world.tell(text) == frozenset()
        assert world.reasons() == ["sender_not_allowed"]
        (found,) = world.dynamodb.items(DESIRED)
        assert found["state"]["S"] == State.SENDING

    @pytest.mark.parametrize("sender", [{"senderservice": "device"}, {}])
    def test_a_device_answers_for_itself(self, world: World, sender: dict[str, str]) -> None:
        world.tell(self.forged(world, senderdevice="home-2", **sender))
        (found,) = world.dynamodb.items(DESIRED)
        assert (world.reasons(), found["state"]["S"]) == ([], State.IDLE)

    def test_an_answer_of_one_home_never_touches_another_s(self, world: World) -> None:
        self.forged(world)
        ((_, incoming),) = world.sent
        world.answer("home-1", stored(incoming))
        (found,) = world.dynamodb.items(DESIRED)
        assert (found["thing"]["S"], found["state"]["S"]) == ("home-2", State.SENDING)

    def test_nobody_says_that_another_home_began_anew(self, world: World) -> None:
        world.desire(state(1))
        world.store("home-1")
        names: dict[str, Any] = {"id": "1", "source": forwarder_source("home-1"), "type": STARTED}
        for sender in ({"senderdevice": "home-2"}, {}):
            world.tell(write_event({**names, **sender}, {"epoch": "forged"}).json)
        assert world.reasons() == ["sender_not_allowed"] * 2
        assert world.taken("work")[1:] == []

    @pytest.mark.parametrize("type", ["org.eventplane.home.message.v1", "org.eventplane.device.heartbeat.v1"])
    def test_other_events_of_a_device_change_nothing(self, world: World, type: str) -> None:
        world.desire(state(1))
        before = world.item()
        assert world.say("home-1", type, {"epoch": "e", "acknowledged": []}) == frozenset()
        assert world.item() == before
