"""A small plane in which services ask each other, on the device, in the cloud, and across."""

from typing import Any

from eventplane.contract import Contract, compile_contract
from eventplane.envelope import Envelope, write_event
from tests.small_contract import small_document

ASK = "org.example.ask.v1"


def document() -> dict[str, Any]:
    asked = {"exact": {"type": ASK}}
    return small_document(
        {
            "device": "device",
            "button": {"kind": "device_service", "asks": [ASK]},
            "lamp": {"kind": "device_service", "inbox": {"receipts": True}},
            "chime": "device_service",
            "desk": {"kind": "cloud_service", "asks": ["org.example.*"]},
            "porter": "cloud_service",
            "hook": {"kind": "cloud_service", "inbox": {"webhook": {}}},
            "downlink": "cloud_service",
        },
        {
            "to-lamp": (asked, "lamp.inbox"),
            "to-chime": ({"exact": {"type": ASK, "loud": "true"}}, "chime.inbox"),
            "up": ({"exact": {"type": ASK, "far": "true"}}, "device.outbox"),
            "to-porter": (asked, "porter.inbox"),
            "to-hook": (asked, "hook.inbox"),
            "to-desk": (asked, "desk.inbox"),
            "to-downlink": (asked, "downlink.inbox"),
            "down": ({"exact": {"type": ASK, "near": "true"}}, "device.inbox"),
        },
    )


def plane() -> Contract:
    return compile_contract(document(), "talk")


def ask(id: str = "1", **attributes: str | int | bool) -> Envelope:
    return write_event({"id": id, "source": "/houses/1/button", "type": ASK, **attributes}, {"n": 1})
