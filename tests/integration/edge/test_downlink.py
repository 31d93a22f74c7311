"""What a cloud sends to a home, with a real Mosquitto at both ends and the forwarder as a process."""

import base64
import gzip
from typing import Any

import pytest

from contract.loader import load_contract
from edge.contract_updates import contract_key
from eventplane.contract import Contract, contract_document
from eventplane.device_reports import DEVICE_CONTRACT
from eventplane.downlink.device import AckStatus
from eventplane.downlink.wire import VERSION
from eventplane.envelope import Envelope, write_event
from eventplane.reasons import Reason
from tests.integration.edge.conftest import SECONDS, Home, RecordingCloud, down, wait_for
from tests.small_contract import with_changes

THRESHOLD = "org.eventplane.setting.threshold.v1"
RING = "org.eventplane.command.ring.v1"
KEY, RINGS = "setting/climate/threshold", "command/app/ring"


def plane(**routes: str) -> Contract:
    """The shipped contract, and routes from a type to a service on the device.

    The climate-service confirms: what a killed broker has accepted for a service, it loses with its session.
    """
    added = {
        f"routes/down-{name}": {"filter": {"exact": {"type": type_}}, "to": f"{name}-service.inbox"}
        for name, type_ in routes.items()
    }
    return with_changes(load_contract(), {"participants/climate-service/inbox": {"receipts": True}, **added})


def event(type_: str, version: int, key: str = KEY, *, order: int = 0, **members: Any) -> str:
    """An event as the cloud sends it; a command has an `order`."""
    attributes = {"id": f"{key}-{version}-{order}", "source": "/app", "type": type_}
    text = write_event(attributes, members.get("data")).json
    if "data_base64" in members:
        text = f'{text[:-1]},"data_base64":"{members["data_base64"]}"}}'
    return down(text, "carers", key, version=version, order=order)


@pytest.fixture
def home_contract() -> Contract:
    return plane(climate=THRESHOLD, call=RING)


@pytest.mark.source("K2")
def test_states_and_commands_arrive(home: Home, cloud: RecordingCloud) -> None:
    answer = cloud.send_until_answered(event(THRESHOLD, 1, data={"c": 19}), KEY, 1)
    assert answer.result is AckStatus.STORED
    newer = event(THRESHOLD, 2, data={"c": 21})
    assert cloud.send_until_answered(newer, KEY, 2).result is AckStatus.STORED
    came: list[Envelope] = []
    climate = home.listen("climate-service", came.append)
    state = climate.state(KEY, SECONDS)
    assert state.json == newer
    assert str(state.sender) == "carers"
    assert climate.state("setting/climate/other", SECONDS) is None
    assert home.connect("health-service").state(KEY, SECONDS) is None
    cloud.send_until_answered(event(THRESHOLD, 3, data={"c": 23}), KEY, 3)
    wait_for(lambda: any(each.attributes[VERSION] == "3" for each in came))
    rung: list[Envelope] = []
    home.listen("call-service", rung.append)
    cloud.send_until_answered(event(RING, 1, RINGS, order=1), RINGS, 1)
    wait_for(lambda: bool(rung))  # then the service has subscribed: what it misses comes behind newer ones
    for order in (2, 3):
        cloud.send_until_answered(event(RING, order, RINGS, order=order), RINGS, order)
    wait_for(lambda: len({each.id for each in rung}) == 3)
    assert list(dict.fromkeys(each.attributes[VERSION] for each in rung)) == ["1", "2", "3"]
    wait_for(home.drained)


def test_no_kill_brings_an_older_state(home: Home, cloud: RecordingCloud) -> None:
    came: list[int] = []
    home.listen("climate-service", lambda each: came.append(int(str(each.attributes[VERSION]))))
    last = 60
    for version in range(1, last + 1):
        cloud.send_down(event(THRESHOLD, version, data={"c": version}))
        if version % 20 == 0:
            home.forwarder.kill()
            home.forwarder.start()
        if version % 25 == 0:
            home.broker.child.kill()
            home.broker.child.start()
    assert cloud.send_until_answered(event(THRESHOLD, last, data={"c": last}), KEY, last)
    wait_for(lambda: bool(came) and came[-1] == last)
    # A copy of the very last may come again; the service of a home's broker that was killed sees it so.
    assert came == sorted(came)
    wait_for(home.drained)


def test_a_contract_comes_down(home: Home, cloud: RecordingCloud) -> None:
    other = plane(climate=THRESHOLD, call=RING, voice=RING)
    key = contract_key(other.name)
    packed = base64.b64encode(gzip.compress(other.canonical, mtime=0)).decode()
    answer = cloud.send_until_answered(event(DEVICE_CONTRACT, 1, key, data_base64=packed), key, 1)
    assert answer.result is AckStatus.STORED
    wait_for(lambda: f"contract {other.version} follows" in home.log())
    broken = contract_document(other)
    broken["routes"]["down-voice"]["to"] = "nobody.inbox"
    refused = cloud.send_until_answered(event(DEVICE_CONTRACT, 2, key, data=broken), key, 2)
    assert (refused.result, refused.reason) == (AckStatus.REJECTED, Reason.CONTRACT_REFUSED)
    assert "nobody" in refused.detail
    home.forwarder.kill()
    home.forwarder.start()
    rung: list[Envelope] = []
    home.listen("voice-service", rung.append)
    cloud.send_until_answered(event(RING, 1, RINGS, order=1), RINGS, 1)
    wait_for(lambda: len(rung) == 1)
