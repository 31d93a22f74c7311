import json

import pytest

from edge.contract_updates import contract_key
from edge.forwarder import Reload
from edge.spool.files import marker_of
from eventplane.contract import Contract, contract_document
from eventplane.device_reports import DEVICE_CONTRACT, UPLINK_KEY
from eventplane.downlink.device import AckStatus
from eventplane.envelope import parse_event
from eventplane.reasons import Reason
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane_mqtt.mailbox import LinkName
from tests.small_contract import with_changes
from tests.unit.edge.builders import KEY, command, state
from tests.unit.edge.fakes import ALARM, READING, Device, MakeDevice, contract, event

LOCAL, CLOUD = LinkName.LOCAL, LinkName.CLOUD


def held(device: Device, key: str = KEY) -> str | None:
    stored = device.spool.device_state("state", key)
    return stored.json if stored else None


def results(device: Device) -> list[tuple[str, AckStatus, str]]:
    return [(each.id, each.result, each.reason) for each in device.acknowledgements()]


@pytest.mark.source("K2")
def test_a_state_is_stored_answered_delivered_and_only_then_acknowledged(device: Device) -> None:
    message = device.from_cloud(state(1, fence=3))
    device.turn(message)
    assert held(device) == state(1, fence=3)
    (answer,) = device.acknowledgements()
    assert (answer.result, answer.key, answer.version, answer.fence) == (AckStatus.STORED, KEY, 1, 3)
    assert (answer.source, answer.id) == ("/app", "v1")
    assert device.delivered("display") == [state(1, fence=3).encode()]
    assert device.cloud.last.acknowledged == [message.mid]
    assert device.local.last.acknowledged == []


@pytest.mark.source("K2")
def test_a_repetition_is_answered_again_and_not_delivered_again_also_after_a_crash(device: Device) -> None:
    device.send_down(state(1), state(1))
    device.turn(device.puback(1, LOCAL))
    device.restart()
    device.send_down(state(1))
    assert results(device) == [("v1", AckStatus.STORED, "")] * 3
    assert device.delivered("display") == []


class TestCommands:
    def test_one_that_nobody_reads_is_rejected(self, device: Device) -> None:
        device.send_down(command(1, subject="nobody"))
        assert results(device) == [("c1", AckStatus.REJECTED, Reason.UNROUTED)]
        assert device.spool.device_state("command", "command/app/ring") is None
        device.send_down(state(2), state(1))
        outcomes = {Reason.UNROUTED: 1, "stored": 1, Reason.OLDER: 1}
        assert device.forwarder.counts.downlink_outcomes == outcomes

    def test_the_services_own_receipt_ends_it_where_the_contract_says_so(self, device: Device) -> None:
        device.send_down(command(1, type=ALARM))
        assert device.spool.backlog()["call.inbox"] == 1
        device.confirm()
        assert device.spool.backlog()["call.inbox"] == 0


class TestSalvaged:
    """The spool was damaged, and the cloud comes again with what it has no answer to."""

    def recover(self, device: Device) -> None:
        device.crash()
        marker_of(device.path).touch()
        device.start()
        assert device.spool.origin.kind == "recovered"

    def test_a_delivery_that_was_saved_is_not_made_anew(self, device: Device) -> None:
        device.disconnect(LOCAL)
        device.send_down(command(1, type=ALARM))
        self.recover(device)
        device.connect()
        device.send_down(command(1, type=ALARM))
        (delivered,) = device.delivered("call")
        device.turn(device.receipt_of("call", write_receipts([Receipt(digest(delivered))])))
        assert device.spool.backlog()["call.inbox"] == 0
        assert results(device) == [("c1", AckStatus.STORED, "")] * 2

    def test_one_that_was_made_or_lost_is_made_again(self, device: Device) -> None:
        device.send_down(state(1))
        device.turn(device.puback(1, LOCAL))
        self.recover(device)
        device.connect()
        device.send_down(state(1))
        assert device.ids_at("display") == ["v1"]
        device.send_down(state(1))
        assert device.ids_at("display") == ["v1"]


def test_what_came_down_never_goes_up_again(device: Device) -> None:
    device.send_down(state(1), command(1))
    device.turn(after=1.0)
    device.acknowledge_all()
    up = [each for batch in device.uplinked() for each in batch]
    assert not {"v1", "c1"} & set(up)
    assert len(up) == 1


@pytest.mark.parametrize(
    "attributes",
    [{"subject": "nobody"}, {"deviceepoch": "0123", "devicesequence": "000000000009"}],
    ids=["without a reader", "of a device, with the numbers of its way up"],
)
def test_any_state_is_kept(device: Device, attributes: dict[str, str]) -> None:
    device.send_down(state(1, **attributes))
    assert held(device) == state(1, **attributes)
    assert results(device) == [("v1", AckStatus.STORED, "")]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"garbage", "not_json"),
        (event("e").json.encode(), Reason.NOT_FOR_A_DEVICE),
        (state(1).replace('"downkind":"state"', '"downkind":"wish"').encode(), Reason.NOT_FOR_A_DEVICE),
        (state(1).replace(KEY, "no-key").encode(), Reason.NOT_FOR_A_DEVICE),
    ],
)
def test_what_names_no_key_becomes_a_dead_letter(device: Device, payload: bytes, reason: str) -> None:
    message = device.from_cloud(payload)
    device.turn(message, device.from_cloud(state(1, "setting/climate/good")))
    assert device.cloud.last.acknowledged[0] == message.mid
    device.send_down(payload)
    device.turn(after=1.0)
    device.acknowledge_all()
    (letter,) = device.letters()
    assert letter.attributes["deadletterreason"] == reason
    assert letter.data()["channel"] == "device.inbox"
    assert held(device, "setting/climate/good") is not None


class TestBounds:
    def test_there_are_not_too_many_keys(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("edge.downlink", "edge.spool.states"):
            monkeypatch.setattr(f"{module}.MOST_KEYS", 8)
        for first in (0, 4):
            device.send_down(*(state(1, f"a/b/{n}") for n in range(first, first + 4)))
        device.send_down(state(1, "one/too/many"), state(2, "a/b/0"))
        assert results(device)[-2:] == [
            ("v1", AckStatus.REJECTED, Reason.TOO_MANY_KEYS),
            ("v2", AckStatus.STORED, ""),
        ]
        # A deletion makes room.
        device.send_down(state(3, "a/b/1", deleted=True))
        device.send_down(state(2, "one/too/many"))
        assert results(device)[-1] == ("v2", AckStatus.STORED, "")
        assert device.spool.state_count() == 8

    def test_states_take_a_quarter_of_the_room_at_most(self, make: MakeDevice) -> None:
        device = make(capacity_bytes=1024 * 1024)
        large = "x" * 60_000
        device.send_down(*(state(1, f"a/b/{n}", data=large) for n in range(3)))
        device.send_down(*(state(2, f"a/b/{n}", data=large) for n in range(3, 6)))
        outcomes = [each.reason for each in device.acknowledgements()]
        assert outcomes == ["", "", "", "", Reason.TOO_MUCH_STATE, Reason.TOO_MUCH_STATE]
        device.send_down(state(3, "a/b/0", deleted=True))
        device.send_down(state(3, "a/b/5", data=large))
        assert device.acknowledgements()[-1].result is AckStatus.STORED

    def test_what_finds_no_room_is_not_answered_and_comes_again(self, make: MakeDevice) -> None:
        device = make(connected=False, capacity_bytes=1024 * 1024)
        device.connect(LOCAL)
        device.connect(CLOUD)
        device.resize(device.spool.space.used_bytes)
        message = device.from_cloud(state(1))
        device.turn(message)
        assert results(device) == []
        assert held(device) is None
        assert device.cloud.last.acknowledged == [message.mid]
        device.resize(1024 * 1024)
        device.send_down(state(1))
        assert results(device) == [("v1", AckStatus.STORED, "")]

    @pytest.mark.source("N4")
    def test_where_too_many_deliveries_wait_not_even_a_refusal_is_answered(self, make: MakeDevice) -> None:
        device = make(connected=False)
        device.connect(LOCAL)
        device.connect(CLOUD)
        device.send(event("waits", ALARM))
        device.spool.space.capacity_deliveries = device.spool.space.used_deliveries
        device.send_down(command(1, subject="nobody"), state(1))
        assert (results(device), held(device)) == ([], None)
        assert device.spool.space.used_deliveries == device.spool.space.capacity_deliveries
        device.spool.space.capacity_deliveries = 100
        device.send_down(command(1, subject="nobody"))
        assert results(device) == [("c1", AckStatus.REJECTED, Reason.UNROUTED)]


class TestQuestions:
    @pytest.mark.source("N6")
    def test_a_service_that_starts_later_asks_for_the_current_state(self, device: Device) -> None:
        device.send_down(state(1), state(2), state(1, "k/deleted"), state(2, "k/deleted", deleted=True))
        keys = (KEY, "no/such/key", "k/deleted")
        device.turn(*(device.question_of("display", key, key) for key in keys))
        assert [(each.id, each.json) for each in device.answers("display")] == [
            (KEY, state(2)),
            ("no/such/key", None),
            ("k/deleted", None),
        ]
        # No route brings it to this one.
        device.turn(device.question_of("call", "q", KEY))
        assert device.answers("call")[0].json is None

    def test_a_malformed_question_is_acknowledged_and_ignored(self, device: Device) -> None:
        question = device.question_of("display", "q", "")
        device.turn(question)
        assert device.answers("display") == []
        assert device.local.last.acknowledged == [question.mid]


def test_an_inbox_that_promises_nothing_still_holds_the_state(make: MakeDevice) -> None:
    plane = contract(display={"inbox": {"delivery_guarantee": "best_effort"}})
    device = make(plane=plane)
    device.send_down(state(1), command(1))
    assert device.ids_at("display") == ["v1", "c1"]
    assert device.spool.backlog()["device.outbox"] == 1
    assert held(device) == state(1)


def by(text: str, **sender: str) -> str:
    """The event with another sender, or none."""
    members = json.loads(text)
    del members["senderservice"]
    return json.dumps(members | sender)


def answers(device: Device) -> list[tuple[AckStatus, str]]:
    return [(each.result, each.reason) for each in device.acknowledgements()]


@pytest.mark.parametrize(
    "sender",
    [
        {},
        {"senderservice": "nobody"},
        {"senderservice": "sensor"},
        {"senderservice": "device"},
        {"senderservice": "eventplane"},
        {"senderdevice": "thing", "senderservice": "app"},
        {"senderdevice": "other"},
    ],
)
@pytest.mark.parametrize(
    "text", [state(1), command(1), state(1, contract_key("small"), type=DEVICE_CONTRACT)]
)
def test_what_no_cloud_service_sent_is_refused(device: Device, text: str, sender: dict[str, str]) -> None:
    device.send_down(by(text, **sender))
    assert answers(device) == [(AckStatus.REJECTED, "sender_not_allowed")]
    assert device.spool.state_count() == 0
    assert device.contracts_came == 0
    assert device.delivered("display") == []


@pytest.mark.parametrize("key", [contract_key("small"), contract_key("other"), UPLINK_KEY])
@pytest.mark.parametrize("deleted", [True, False])
def test_steering_keys_are_for_their_types(device: Device, key: str, deleted: bool) -> None:
    device.send_down(state(1, key, type=READING, deleted=deleted))
    assert answers(device) == [(AckStatus.REJECTED, "key_not_allowed")]
    assert (device.spool.device_state("state", key), device.contracts_came) == (None, 0)


def test_services_see_who_sent_it_also_when_they_ask_for_the_state(device: Device) -> None:
    device.send_down(state(1), command(1))
    seen = [parse_event(each).sender for each in device.delivered("display")]
    assert [(each.device, each.service) for each in seen] == [("", "app")] * 2
    device.turn(device.question_of("display", "q", KEY))
    (answer,) = device.answers("display")
    assert answer.json is not None
    assert str(parse_event(answer.json).sender) == "app"


def test_two_senders_of_one_id_are_two_events(make: MakeDevice) -> None:
    device = make(plane=with_changes(contract(), {"participants/other": app()}))
    device.send_down(state(1))
    device.send_down(by(state(1), senderservice="other"))
    assert answers(device) == [(AckStatus.STORED, "")] * 2
    assert [each.sender for each in device.acknowledgements()] == ["app", "other"]
    assert len(device.delivered("display")) == 2


def without_app() -> Contract:
    return with_changes(contract(), {"participants/app": None, "participants/porter": app()})


def app() -> object:
    return contract_document(contract())["participants"]["app"]


def test_a_contract_that_lost_a_cloud_service_does_not_lock_out_its_successor(device: Device) -> None:
    key = contract_key("small")
    device.turn(Reload(without_app(), contract()))
    device.send_down(by(state(1), senderservice="porter"))
    device.send_down(state(2, key, type=DEVICE_CONTRACT, data=contract_document(contract())))
    assert answers(device) == [(AckStatus.STORED, "")] * 2
