"""A small plane in which services ask each other, on the device, in the cloud, and across."""

from __future__ import annotations

from typing import Any

from eventplane.contract import Contract, compile_contract
from eventplane.envelope import Envelope, write_event

ASK = "org.example.ask.v1"


def document() -> dict[str, Any]:
    return {
        "format": 5,
        "name": "talk",
        "participants": {
            "device": {"kind": "device", "description": "d"},
            "button": {"kind": "device_service", "description": "d", "asks": [ASK]},
            "lamp": {"kind": "device_service", "description": "d", "inbox": {"receipts": True}},
            "chime": {"kind": "device_service", "description": "d"},
            "desk": {"kind": "cloud_service", "description": "d", "asks": ["org.example.*"]},
            "porter": {"kind": "cloud_service", "description": "d"},
            "hook": {"kind": "cloud_service", "description": "d", "inbox": {"webhook": {}}},
            "downlink": {"kind": "cloud_service", "description": "d"},
        },
        "event_types": {},
        "routes": {
            "to-lamp": {"filter": {"exact": {"type": ASK}}, "to": "lamp.inbox"},
            "to-chime": {"filter": {"exact": {"type": ASK, "loud": "true"}}, "to": "chime.inbox"},
            "up": {"filter": {"exact": {"type": ASK, "far": "true"}}, "to": "device.outbox"},
            "to-porter": {"filter": {"exact": {"type": ASK}}, "to": "porter.inbox"},
            "to-hook": {"filter": {"exact": {"type": ASK}}, "to": "hook.inbox"},
            "to-desk": {"filter": {"exact": {"type": ASK}}, "to": "desk.inbox"},
            "to-downlink": {"filter": {"exact": {"type": ASK}}, "to": "downlink.inbox"},
            "down": {"filter": {"exact": {"type": ASK, "near": "true"}}, "to": "device.inbox"},
        },
    }


def plane() -> Contract:
    return compile_contract(document(), "talk")


def ask(id: str = "1", **attributes: str | int | bool) -> Envelope:
    return write_event({"id": id, "source": "/houses/1/button", "type": ASK, **attributes}, {"n": 1})
