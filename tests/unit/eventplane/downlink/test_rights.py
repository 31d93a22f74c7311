"""Who may send to which devices, and under which key."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.contract import Downlink, compile_contract
from eventplane.device_reports import DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.downlink.addressing import addressed
from eventplane.downlink.rights import CONTRACT_KEYS, DownlinkRights
from eventplane.envelope import Envelope, write_event
from eventplane.reasons import Reason
from eventplane.sender import Sender

TELL, OTHER = "tell", "other"
ONE, NORTH, ALL = Sender(service="one"), Sender(service="north-desk"), Sender(service="all-desk")
SECOND, SILENT = Sender(service="second"), Sender(service="silent")


def _rights() -> DownlinkRights:
    def cloud(*sends: str, **more: Any) -> dict[str, Any]:
        return {"kind": "cloud_service", "description": "d", "sends": list(sends), **more}

    document = {
        "format": 6,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "d"},
            "bell": {"kind": "device_service", "description": "d", "sends": [TELL]},
            "one": cloud(TELL, DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, may_address="one"),
            "north-desk": cloud(TELL, may_address=["north", "east"]),
            "all-desk": cloud(TELL, may_address="everyone"),
            "second": cloud(TELL, OTHER),
            "silent": cloud(),
            "downlink": cloud(),
        },
        "event_types": {
            TELL: {"description": "d", "downlink": "state"},
            OTHER: {"description": "d", "downlink": "state"},
        },
        "routes": {"down": {"filter": {"exact": {"type": TELL}}, "to": "device.inbox"}},
    }
    return DownlinkRights(compile_contract(document, "small"))


RIGHTS = _rights()


def event(sender: Sender, type: str = TELL, **attributes: Any) -> Envelope:
    named = {
        "id": "1",
        "source": "/s",
        "type": type,
        "statekey": "state/one/lamp",
        "stateversion": "7",
        **attributes,
    }
    return write_event(named).stamped(**sender.attributes)


def refused(sender: Sender, *groups: str, type: str = TELL, **to: str) -> str | None:
    sent = event(sender, type, **(to or {"todevice": "home-1"}))
    refusal = RIGHTS.refusal(sent, addressed(sent, Downlink.STATE, 1_000), groups)
    return refusal and refusal.reason


@pytest.mark.parametrize(
    "sender",
    [Sender(), Sender(service="unknown"), Sender("home-1", "bell"), Sender("home-1"), Sender("home-1", "one"),
     Sender(service="bell"), Sender(service="device")],
)  # fmt: skip
def test_devices_and_unknown_senders_may_not_send_to_devices(sender: Sender) -> None:
    refusal = RIGHTS.entry_refusal(event(sender), Downlink.STATE, "state/one/lamp")
    assert refusal is not None
    assert refusal.reason == Reason.SENDER_NOT_ALLOWED
    assert refusal.detail.startswith(f"{str(sender) or 'nobody'} sent 'tell' to devices")


@pytest.mark.parametrize(
    ("key", "type"), [(f"{CONTRACT_KEYS}x", DEVICE_CONTRACT), (UPLINK_KEY, UPLINK_INTEREST_TYPE)]
)
def test_the_keys_that_configure_a_forwarder_are_for_their_types(key: str, type: str) -> None:
    assert RIGHTS.entry_refusal(event(ONE, type), Downlink.STATE, key) is None
    refusal = RIGHTS.entry_refusal(event(ONE), Downlink.STATE, key)
    assert refusal is not None
    assert refusal.reason == Reason.KEY_NOT_ALLOWED
    assert key in refusal.detail
    assert f"is for {type}" in refusal.detail
    # A command is stored under no key of a state.
    assert RIGHTS.entry_refusal(event(ONE), Downlink.COMMAND, key) is None


def test_a_type_that_the_sender_may_not_send_is_refused_on_the_way_down() -> None:
    assert refused(SILENT) == Reason.SENDER_NOT_ALLOWED
    assert refused(ALL, type=OTHER) == Reason.SENDER_NOT_ALLOWED
    assert refused(SECOND, type=OTHER) is None
    for sender in (ONE, NORTH, ALL, SECOND):
        assert RIGHTS.entry_refusal(event(sender), Downlink.STATE, "state/one/lamp") is None


def test_the_whole_check_has_the_rules_of_the_entry() -> None:
    forged = event(Sender("home-1", "bell"), todevice="home-1")
    refusal = RIGHTS.refusal(forged, addressed(forged, Downlink.STATE, 1_000))
    assert refusal is not None
    assert refusal.reason == Reason.SENDER_NOT_ALLOWED


@pytest.mark.parametrize(
    ("sender", "groups", "to", "is_allowed"),
    [
        (ONE, (), {"todevice": "home-1"}, True),
        (ONE, ("north",), {"togroup": "north"}, False),
        (ONE, (), {"todevice": "*"}, False),
        (NORTH, ("north", "south"), {"todevice": "home-1"}, True),
        (NORTH, ("south",), {"todevice": "home-1"}, False),
        (NORTH, (), {"todevice": "home-1"}, False),
        (NORTH, (), {"togroup": "east"}, True),
        (NORTH, (), {"togroup": "south"}, False),
        # The groups are those of one device: they give no right to another group.
        (NORTH, ("north",), {"togroup": "south"}, False),
        (NORTH, (), {"todevice": "*"}, False),
        (ALL, (), {"todevice": "home-1"}, True),
        (ALL, (), {"togroup": "south"}, True),
        (ALL, (), {"todevice": "*"}, True),
    ],
)
def test_a_sender_reaches_the_devices_that_it_may_address(
    sender: Sender, groups: tuple[str, ...], to: dict[str, str], is_allowed: bool
) -> None:
    assert refused(sender, *groups, **to) == (None if is_allowed else Reason.ADDRESS_NOT_ALLOWED)


def test_a_key_may_be_written_by_its_owner_and_by_senders_that_its_owner_could_replace() -> None:
    key = "state/second/lamp"
    assert RIGHTS.key_refusal(event(SECOND, OTHER), key, "second") is None
    assert RIGHTS.key_refusal(event(ONE), key, "second") is None  # the owner could send it as well
    refusal = RIGHTS.key_refusal(event(SECOND, OTHER), key, "one")
    assert refusal is not None
    assert refusal.reason == Reason.KEY_NOT_ALLOWED
    assert "belongs to one" in refusal.detail


def test_a_key_whose_owner_has_left_the_contract_is_free() -> None:
    assert RIGHTS.owner("one") == "one"
    assert RIGHTS.owner("gone") == ""
    assert RIGHTS.key_refusal(event(SECOND, OTHER), "state/gone/lamp", RIGHTS.owner("gone")) is None
