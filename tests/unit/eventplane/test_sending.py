"""Who may send what, by the sender that the transport authenticated."""

from typing import Any

import pytest

from eventplane.contract import Contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import (
    ACKNOWLEDGED,
    DEVICE_CONTRACT,
    HEARTBEAT,
    MANIFEST,
    forwarder_source,
    router_source,
)
from eventplane.envelope import Envelope, Sender, parse_event, parse_sender, sender_in_frame, write_event
from eventplane.errors import EnvelopeError
from eventplane.names import EPOCH, NOTICE, PLANE, PLANE_CLIENT, REPLY_TYPE, SEQUENCE, VERDICT
from eventplane.reasons import Reason
from eventplane.sending import SendingRights, sent_again, stamp_sender, without_stamp
from tests.small_contract import small_contract

ALARM = "org.example.alarm.v1"
READING = "org.example.reading.v1"
MESSAGE = "org.example.message.v1"
FREE = "org.example.free.v1"

VOICE, SENSOR, HOME = Sender("home-1", "voice"), Sender("home-1", "sensor"), Sender("home-1")
FORWARDER = Sender("home-1", "device")
CARERS, DESK = Sender(service="carers"), Sender(service="desk")


def contract(**sends: list[str] | None) -> Contract:
    """`voice` and `sensor` are on the device, the others in the cloud; None: no `sends`."""
    kinds = {"device": "device", "voice": "device_service", "sensor": "device_service"}
    kinds |= dict.fromkeys(("carers", "desk", "presence-monitor", "audit", "downlink"), "cloud_service")
    participants = {
        name: {"kind": kind} | ({} if sends.get(name) is None else {"sends": sends[name]})
        for name, kind in kinds.items()
    }
    return small_contract(participants, {"all": ({"prefix": {"type": "org."}}, "desk.inbox")})


CONTRACT = contract(
    voice=[ALARM], device=["org.eventplane.device.*"], carers=[MESSAGE, DEVICE_CONTRACT], sensor=[READING]
)


def event(type: str, source: str = "/s", data: Any = None) -> Envelope:
    return write_event({"id": "1", "source": source, "type": type}, data)


def refused(sender: Sender, sent: Envelope, rights: SendingRights | None = None) -> bool:
    rights = rights or SendingRights(CONTRACT)
    refusal = rights.refusal(sent.stamped(**sender.attributes))
    assert refusal is None or (refusal.reason == Reason.SENDER_NOT_ALLOWED and str(sender) in refusal.detail)
    return refusal is not None


@pytest.mark.parametrize(
    ("sender", "type"),
    [
        (VOICE, ALARM),
        (HOME, ALARM),
        (HOME, READING),
        (CARERS, MESSAGE),
        (CARERS, DEVICE_CONTRACT),
        (DESK, FREE),
        (Sender(service="presence-monitor"), NOTICE),
        (Sender(service="audit"), VERDICT),
        (VOICE, REPLY_TYPE),
        (CARERS, REPLY_TYPE),
        (Sender(service=PLANE), DEAD_LETTER_TYPE),
    ],
)
def test_a_sender_may_send_what_the_contract_gives_it(sender: Sender, type: str) -> None:
    assert not refused(sender, event(type))


@pytest.mark.parametrize(
    ("sender", "type"),
    [
        (SENSOR, ALARM),
        (VOICE, FREE),
        (HOME, MESSAGE),
        (HOME, FREE),
        (HOME, DEVICE_CONTRACT),
        (FORWARDER, DEVICE_CONTRACT),
        (DESK, MESSAGE),
        (DESK, DEVICE_CONTRACT),
        (DESK, HEARTBEAT),
        (DESK, ALARM),
        (CARERS, NOTICE),
        (HOME, NOTICE),
        (HOME, VERDICT),
        (CARERS, VERDICT),
        (SENSOR, HEARTBEAT),
        # A device cannot speak as a cloud service, nor as one that the contract does not have.
        (Sender("home-1", "carers"), MESSAGE),
        (Sender("home-1", "carers"), REPLY_TYPE),
        (Sender("home-1", "unknown"), FREE),
        (Sender("home-1", PLANE), DEAD_LETTER_TYPE),
    ],
)
def test_a_sender_may_send_nothing_else(sender: Sender, type: str) -> None:
    assert refused(sender, event(type))


@pytest.mark.parametrize("sender", [FORWARDER, HOME])
@pytest.mark.parametrize("type", [HEARTBEAT, MANIFEST, ACKNOWLEDGED])
def test_a_device_reports_about_itself_only(sender: Sender, type: str) -> None:
    assert not refused(sender, event(type, forwarder_source("home-1")))
    assert refused(sender, event(type, forwarder_source("home-2")))
    assert refused(sender, event(type, "/s"))


@pytest.mark.parametrize("sender", [FORWARDER, HOME])
def test_a_device_writes_dead_letters_as_its_own_router_only(sender: Sender) -> None:
    assert not refused(sender, event(DEAD_LETTER_TYPE, router_source("home-1")))
    assert refused(sender, event(DEAD_LETTER_TYPE, router_source("home-2")))
    assert refused(sender, event(DEAD_LETTER_TYPE, "/eventplane/cloud/router"))


@pytest.mark.parametrize(
    ("sender", "channel", "is_refused"),
    [
        (CARERS, "carers.inbox", False),
        (CARERS, "carers.outbox", False),
        (CARERS, "desk.inbox", True),
        (CARERS, "device.outbox", True),
        (CARERS, None, True),
        (VOICE, "voice.inbox", False),
        (VOICE, "carers.outbox", True),
        (Sender(service="downlink"), "device.inbox", False),
        (Sender(service="downlink"), "carers.inbox", True),
    ],
)
def test_dead_letters_of_own_channels_only(sender: Sender, channel: str | None, is_refused: bool) -> None:
    assert refused(sender, event(DEAD_LETTER_TYPE, data={"channel": channel})) is is_refused


@pytest.mark.parametrize("data", [None, [], "carers.inbox", {"channel": ["carers.inbox"]}, {"channel": {}}])
def test_a_dead_letter_of_any_form_is_judged(data: Any) -> None:
    assert refused(CARERS, event(DEAD_LETTER_TYPE, data=data))


def test_without_sends_only_undeclared_types() -> None:
    rights = SendingRights(contract(voice=[ALARM]))
    assert not refused(CARERS, event(FREE), rights)
    assert not refused(SENSOR, event(FREE), rights)
    assert refused(CARERS, event(ALARM), rights)
    assert refused(SENSOR, event(ALARM), rights)
    assert refused(CARERS, event(DEVICE_CONTRACT), rights)


def test_a_type_that_was_allowed_is_still_judged_by_its_source() -> None:
    rights = SendingRights(contract())
    assert not refused(HOME, event(HEARTBEAT, forwarder_source("home-1")), rights)
    assert refused(HOME, event(HEARTBEAT, forwarder_source("home-2")), rights)


def test_the_device_vouches_for_its_services() -> None:
    from_service = stamp_sender(event(ALARM), Sender(service="voice"))
    in_cloud = stamp_sender(from_service, sender_in_frame("home-1", from_service.attributes))
    assert str(in_cloud.sender) == "home-1/voice"
    assert parse_event(in_cloud.json).attributes == in_cloud.attributes
    assert without_stamp(in_cloud) == from_service
    assert without_stamp(from_service) == event(ALARM)


@pytest.mark.parametrize("name", ["senderdevice", "senderservice"])
@pytest.mark.parametrize("sender", [Sender(service="carers"), sender_in_frame(PLANE_CLIENT, {})])
def test_an_event_that_names_its_sender_is_refused(name: str, sender: Sender) -> None:
    forged = event(ALARM).stamped(**{name: "home-2"})
    with pytest.raises(EnvelopeError, match="reserved_attribute") as caught:
        stamp_sender(forged, sender)
    assert name in caught.value.detail


def test_a_device_s_event_names_this_device_or_none() -> None:
    for members in ({}, {"senderservice": None}, {"senderdevice": None}):
        assert sender_in_frame("home-1", members) == Sender("home-1")
    with pytest.raises(EnvelopeError, match="reserved_attribute"):
        stamp_sender(event(ALARM).stamped(senderdevice="home-2"), Sender("home-1"))


@pytest.mark.parametrize(
    ("sender", "text"),
    [
        (VOICE, "home-1/voice"),
        (HOME, "home-1/"),
        (CARERS, "carers"),
        (Sender("home-1", "a/b"), "home-1/a/b"),
        (Sender("home-1", "/"), "home-1//"),
        (Sender(), ""),
    ],
)
def test_a_sender_is_read_from_its_text(sender: Sender, text: str) -> None:
    assert str(sender) == text
    assert parse_sender(text) == sender


def test_records_allow_letters_of_any_channel() -> None:
    rights = SendingRights(contract())
    assert rights.may_have_sent(VOICE, DEAD_LETTER_TYPE, "/anything")
    assert rights.may_have_sent(HOME, DEAD_LETTER_TYPE, router_source("home-1"))
    assert not rights.may_have_sent(HOME, DEAD_LETTER_TYPE, router_source("home-2"))
    assert not rights.may_have_sent(FORWARDER, HEARTBEAT, forwarder_source("home-2"))
    # Of any other type the contract decides.
    declared = SendingRights(CONTRACT)
    assert declared.may_have_sent(VOICE, ALARM, "/s")
    assert not declared.may_have_sent(VOICE, MESSAGE, "/s")


def test_sending_on_strips_the_sender() -> None:
    sent = event(ALARM)
    numbered = sent.stamped(**VOICE.attributes, **{EPOCH: "e", SEQUENCE: "000000000001"})
    assert sent_again(numbered).attributes == sent.attributes
    assert sent_again(sent) is sent
