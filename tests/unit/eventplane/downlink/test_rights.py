"""Who may send to which devices, and under which key."""

from typing import Any

import pytest

from eventplane.contract import Downlink
from eventplane.device_reports import CONTRACT_KEYS, DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, UPLINK_KEY
from eventplane.downlink.addressing import addressed
from eventplane.downlink.rights import DownlinkRights
from eventplane.envelope import Envelope, Sender, write_event
from eventplane.reasons import Reason
from tests.small_contract import small_contract

TELL, OTHER = "tell", "other"
ONE, NORTH, ALL = Sender(service="one"), Sender(service="north-desk"), Sender(service="all-desk")
SECOND, SILENT = Sender(service="second"), Sender(service="silent")


def _cloud(*sends: str, **more: Any) -> dict[str, Any]:
    return {"kind": "cloud_service", "sends": list(sends), **more}


RIGHTS = DownlinkRights(
    small_contract(
        {
            "device": "device",
            "bell": {"kind": "device_service", "sends": [TELL]},
            "one": _cloud(TELL, DEVICE_CONTRACT, UPLINK_INTEREST_TYPE, may_address="one"),
            "north-desk": _cloud(TELL, may_address=["north", "east"]),
            "all-desk": _cloud(TELL, may_address="everyone"),
            "second": _cloud(TELL, OTHER),
            "silent": _cloud(),
            "downlink": _cloud(),
        },
        {"down": ({"exact": {"type": TELL}}, "device.inbox")},
        {TELL: {"downlink": "state"}, OTHER: {"downlink": "state"}},
    )
)


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
    assert refusal.reason == Reason.SENDER_NOT_ALLOWED
    assert refusal.detail.startswith(f"{str(sender) or 'nobody'} sent 'tell' to devices")


@pytest.mark.parametrize(
    ("key", "type"), [(f"{CONTRACT_KEYS}x", DEVICE_CONTRACT), (UPLINK_KEY, UPLINK_INTEREST_TYPE)]
)
def test_the_keys_that_configure_a_forwarder_are_for_their_types(key: str, type: str) -> None:
    assert RIGHTS.entry_refusal(event(ONE, type), Downlink.STATE, key) is None
    refusal = RIGHTS.entry_refusal(event(ONE), Downlink.STATE, key)
    assert refusal.reason == Reason.KEY_NOT_ALLOWED
    assert key in refusal.detail
    assert f"is for {type}" in refusal.detail
    # A command is stored under no key of a state.
    assert RIGHTS.entry_refusal(event(ONE), Downlink.COMMAND, key) is None


def test_a_forbidden_type_is_refused() -> None:
    assert refused(SILENT) == Reason.SENDER_NOT_ALLOWED
    assert refused(ALL, type=OTHER) == Reason.SENDER_NOT_ALLOWED
    assert refused(SECOND, type=OTHER) is None
    for sender in (ONE, NORTH, ALL, SECOND):
        assert RIGHTS.entry_refusal(event(sender), Downlink.STATE, "state/one/lamp") is None


def test_the_whole_check_has_the_rules_of_the_entry() -> None:
    forged = event(Sender("home-1", "bell"), todevice="home-1")
    refusal = RIGHTS.refusal(forged, addressed(forged, Downlink.STATE, 1_000))
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


def test_a_key_is_written_by_its_owner() -> None:
    key = "state/second/lamp"
    assert RIGHTS.key_refusal(event(SECOND, OTHER), key, "second") is None
    assert RIGHTS.key_refusal(event(ONE), key, "second") is None  # the owner could send it as well
    refusal = RIGHTS.key_refusal(event(SECOND, OTHER), key, "one")
    assert refusal.reason == Reason.KEY_NOT_ALLOWED
    assert "belongs to one" in refusal.detail


def test_a_key_whose_owner_has_left_the_contract_is_free() -> None:
    assert RIGHTS.owner("one") == "one"
    assert RIGHTS.owner("gone") == ""
    assert RIGHTS.key_refusal(event(SECOND, OTHER), "state/gone/lamp", RIGHTS.owner("gone")) is None
