"""Who sent an event, as services see it: nobody speaks for another, and nobody is silenced by another."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import write_event
from eventplane.reasons import Reason
from eventplane_client import ClientSettings, Sender, cloud_event_of, connect
from eventplane_client.errors import RefusedError
from eventplane_client.memory import MemoryPlane
from tests.plane import shipped_contract
from tests.unit.client.worlds import event
from tests.unit.client.worlds import memory_client as client

CONTRACT = shipped_contract()
SECONDS = 20.0


@pytest.fixture
def plane() -> MemoryPlane:
    """With the plane's own contract; the alarm centre receives everything."""
    plane = MemoryPlane(contract=CONTRACT)
    plane.subscribe("alarm-centre", "all", None)
    return plane


def test_a_service_sees_who_sent_an_event(plane: MemoryPlane) -> None:
    with client(plane, "voice-service") as voice, client(plane, "alarm-centre") as centre:
        voice.put(event("1"))
        received = centre.subscribe().receive(0)
        assert received.sender == received.event.sender == Sender("", "voice-service")
        received.ack()


def test_who_may_not_send_a_type_is_refused_with_a_dead_letter_that_names_it(plane: MemoryPlane) -> None:
    with client(plane, "family-app") as forger, pytest.raises(RefusedError) as caught:
        forger.put(event("1"))
    assert caught.value.reason == Reason.SENDER_NOT_ALLOWED
    (letter,) = plane.events
    assert (letter.type, str(letter.sender)) == (DEAD_LETTER_TYPE, "eventplane")
    assert letter.data()["channel"] == "family-app.outbox"
    assert letter.data()["sender"] == {"device": "", "service": "family-app"}
    assert "family-app" in letter.data()["detail"]


def test_a_sender_that_the_event_names_itself_is_refused(plane: MemoryPlane) -> None:
    for name in ("senderservice", "senderdevice"):
        with pytest.raises(RefusedError, match="reserved_attribute"):
            plane.put(event(name).stamped(**{name: "voice-service"}), "family-app")
    assert {each.attributes["deadletterreason"] for each in plane.events} == {"reserved_attribute"}


@pytest.mark.parametrize("form", ["envelope", "json", "sdk"])
def test_who_puts_what_it_received_is_its_sender(form: str) -> None:
    plane = MemoryPlane()
    plane.subscribe("relay", "all", None)
    plane.put(event("1"), "voice-service")
    with client(plane, "relay") as relay, relay.subscribe() as inbox:
        got = inbox.get(0)
        assert got.sender == Sender("", "voice-service")
        plane.unsubscribe("relay", "all")
        plane.subscribe("next", "all", None)
        relay.put({"envelope": got, "json": got.json, "sdk": cloud_event_of(got)}[form])
    again = plane.events[-1]
    assert (again.claim, again.sender) == (got.claim, Sender("", "relay"))


def test_who_puts_what_came_from_a_device_leaves_that_devices_numbers_out() -> None:
    plane = MemoryPlane()
    plane.subscribe("next", "all", None)
    got = write_event(
        {
            "senderservice": "voice-service",
            "senderdevice": "home-1",
            "deviceepoch": "one",
            "devicesequence": "000000000007",
            "routerhops": 1,
            "id": "2",
            "source": "/homes/1",
            "type": "alarm",
            "sequence": "7",
        }
    )
    with client(plane, "relay") as relay:
        relay.put(got)
    (again,) = plane.events
    assert {*got.attributes} - {*again.attributes} == {"senderdevice", "deviceepoch", "devicesequence"}
    assert again.sender == Sender("", "relay")


def test_a_dead_letter_of_a_reader_is_about_its_own_inbox_and_may_be_sent(plane: MemoryPlane) -> None:
    plane.max_receives = 1
    with client(plane, "voice-service") as voice, client(plane, "alarm-centre") as centre:
        voice.put(event("1"))
        with centre.subscribe() as inbox:
            inbox.receive(0).nack("no such room")
    letter = plane.events[-1]
    assert (letter.type, str(letter.sender)) == (DEAD_LETTER_TYPE, "alarm-centre")
    assert letter.data()["channel"] == "alarm-centre.inbox"
    assert letter.data()["sender"] == {"device": "", "service": "voice-service"}


def test_the_settings_name_the_contract_that_is_enforced(tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    file.write_bytes(CONTRACT.canonical)
    settings = ClientSettings("family-app", "memory:enforced", contract=str(file))
    with connect(settings) as app, pytest.raises(RefusedError, match=Reason.SENDER_NOT_ALLOWED):
        app.put(event("1"))
