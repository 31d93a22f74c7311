"""A device takes from the cloud what a cloud service of its contract sent, and nothing else (issue 17)."""

from __future__ import annotations

import json

import pytest

from edge.contract_updates import contract_key
from edge.forwarder import Reload
from eventplane.contract import Contract, compile_contract, contract_document
from eventplane.device_reports import DEVICE_CONTRACT
from eventplane.downlink.device import AckStatus
from eventplane.envelope import parse_event
from eventplane.interest.uplink import UPLINK_KEY
from eventplane.reasons import Reason
from tests.unit.edge.downlinks import KEY, command, state
from tests.unit.edge.fakes import READING, Device, MakeDevice, contract


def by(text: str, **sender: str) -> str:
    """The event with another sender, or none."""
    members = json.loads(text)
    del members["senderservice"]
    return json.dumps(members | sender)


def results(device: Device) -> list[tuple[AckStatus, str]]:
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
@pytest.mark.parametrize("text", [state(1), command(1), state(1, contract_key("test"), type=DEVICE_CONTRACT)])
def test_what_no_cloud_service_sent_is_refused(device: Device, text: str, sender: dict[str, str]) -> None:
    device.turn(device.from_cloud(by(text, **sender)))
    assert results(device) == [(AckStatus.REJECTED, "sender_not_allowed")]
    assert device.spool.state_count() == 0
    assert device.contracts_came == 0
    assert device.delivered("display") == []


@pytest.mark.parametrize("key", [contract_key("test"), contract_key("other"), UPLINK_KEY])
@pytest.mark.parametrize("deleted", [True, False])
def test_the_keys_that_steer_the_forwarder_are_for_their_types(
    device: Device, key: str, deleted: bool
) -> None:
    device.turn(device.from_cloud(state(1, key, type=READING, deleted=deleted)))
    assert results(device) == [(AckStatus.REJECTED, "key_not_allowed")]
    assert (device.spool.device_state("state", key), device.contracts_came) == (None, 0)


def test_services_see_who_sent_it_also_when_they_ask_for_the_state(device: Device) -> None:
    device.turn(device.from_cloud(state(1)), device.from_cloud(command(1)))
    seen = [parse_event(each).sender for each in device.delivered("display")]
    assert [(each.device, each.service) for each in seen] == [("", "app")] * 2
    device.turn(device.question_of("display", "q", KEY))
    (answer,) = device.answers("display")
    assert answer.json is not None
    assert str(parse_event(answer.json).sender) == "app"


def test_two_senders_of_one_id_are_two_events(make: MakeDevice) -> None:
    document = contract_document(contract())
    document["participants"]["other"] = document["participants"]["app"]
    device = make(plane=compile_contract(document, "test"))
    device.turn(device.from_cloud(state(1)))
    device.turn(device.from_cloud(by(state(1), senderservice="other")))
    assert results(device) == [(AckStatus.STORED, "")] * 2
    assert [each.sender for each in device.acknowledgements()] == ["app", "other"]
    assert len(device.delivered("display")) == 2


def without_app() -> Contract:
    document = contract_document(contract())
    document["participants"]["porter"] = document["participants"].pop("app")
    return compile_contract(document, "test")


def test_a_contract_that_lost_a_cloud_service_does_not_lock_out_its_successor(device: Device) -> None:
    key = contract_key("test")
    device.turn(Reload(without_app(), contract()))
    device.turn(device.from_cloud(by(state(1), senderservice="porter")))
    device.turn(device.from_cloud(state(2, key, type=DEVICE_CONTRACT, data=contract_document(contract()))))
    assert results(device) == [(AckStatus.STORED, "")] * 2


class TestResets:
    def test_a_lower_version_after_a_reset_is_newer_and_stays_so_after_a_crash(self, device: Device) -> None:
        device.turn(device.from_cloud(state(10**15)))
        device.turn(device.from_cloud(state(7)))
        device.turn(device.from_cloud(state(7, reset=1)))
        device.crash()
        device.start()
        device.connect()
        device.turn(device.from_cloud(state(10**15)), device.from_cloud(state(8, reset=1)))
        device.turn(device.from_cloud(state(9)), device.from_cloud(state(6, reset=1)))
        stored, older = (AckStatus.STORED, ""), (AckStatus.REJECTED, Reason.OLDER)
        assert results(device) == [stored, older, stored, older, stored, older, older]
        stored = device.spool.device_state("state", KEY)
        assert stored is not None
        assert (stored.state_version.reset, stored.state_version.version) == (1, 8)

    def test_a_reset_tombstone_is_followed_by_any_version(self, device: Device) -> None:
        device.turn(device.from_cloud(state(10**15, deleted=True)))
        device.turn(device.from_cloud(state(0, id="again", deleted=True, reset=1)))
        device.turn(device.from_cloud(state(1, reset=1)))
        assert [result for result, _ in results(device)] == [AckStatus.STORED] * 3
