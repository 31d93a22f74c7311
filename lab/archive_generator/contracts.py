"""The contracts that archives are made from: one of each thing that an audit judges, and its successor."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from eventplane.contract import Contract, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import REPORT_PREFIX

ALARM: Final = "org.example.alarm.v1"
READING: Final = "org.example.reading.v1"
CLIMATE: Final = "org.example.climate.v1"
MOTION: Final = "org.example.motion.v1"
DIARY: Final = "org.example.diary.v1"
"""What no route of the cloud takes."""

_DOCUMENT: Final[dict[str, Any]] = {
    "format": 3,
    "name": "audited",
    "participants": {
        "device": {"kind": "device", "description": "A home."},
        "voice": {"kind": "device_service", "description": "Hears a call for help.", "sends": [ALARM]},
        "health": {"kind": "device_service", "description": "Measures people.", "sends": [READING]},
        "climate": {"kind": "device_service", "description": "Measures rooms.", "sends": [CLIMATE]},
        "activity": {
            "kind": "device_service",
            "description": "Sees who moves, and takes notes.",
            "sends": [MOTION, DIARY],
        },
        "siren": {"kind": "device_service", "description": "Is loud.", "sends": []},
        "alarm-centre": {
            "kind": "cloud_service",
            "description": "Answers alarms at an endpoint of its own.",
            "inbox": {"webhook": {}},
            "sends": [],
        },
        "care": {"kind": "cloud_service", "description": "Reads measurements.", "sends": []},
        "nurse": {
            "kind": "cloud_service",
            "description": "Reads the climate of bathrooms by a program that leaves receipts.",
            "inbox": {"receipts": True},
            "sends": [],
        },
        "family": {
            "kind": "cloud_service",
            "description": "Sees the day in its order.",
            "inbox": {"transport": "sqs_fifo", "ordering": "source"},
            "sends": [],
        },
        "operations": {"kind": "cloud_service", "description": "Reads letters and reports.", "sends": []},
    },
    "event_types": {
        ALARM: {"description": "An alarm.", "priority": "urgent"},
        READING: {
            "description": "A reading.",
            "schemas": [{"$id": "https://schemas.example.org/reading", "type": "object"}],
            "schema_check": "known",
        },
        CLIMATE: {"description": "A room's climate.", "priority": "low"},
        MOTION: {"description": "Somebody moved."},
        DIARY: {"description": "A note that only the archive keeps."},
    },
    "routes": {
        "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
        "alarms-to-siren": {"filter": {"exact": {"type": ALARM}}, "to": "siren.inbox"},
        "alarms-to-centre": {"filter": {"exact": {"type": ALARM}}, "to": "alarm-centre.inbox"},
        "readings-to-care": {
            "filter": {
                "any": [{"exact": {"type": READING}}, {"sql": f"type = '{CLIMATE}' AND subject LIKE '/%'"}]
            },
            "to": "care.inbox",
        },
        "baths-to-nurse": {
            "filter": {"all": [{"exact": {"type": CLIMATE}}, {"exact": {"subject": "/bath"}}]},
            "to": "nurse.inbox",
        },
        "day-to-family": {"filter": {"exact": {"type": MOTION}}, "to": "family.inbox"},
        "letters": {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "operations.inbox"},
        "reports": {"filter": {"prefix": {"type": REPORT_PREFIX}}, "to": "operations.inbox"},
    },
}


def audited_contracts() -> tuple[Contract, Contract]:
    """The contract of an archive's first half, and that of its second: alarms go to care as well."""
    later = deepcopy(_DOCUMENT)
    later["routes"]["alarms-to-care"] = {"filter": {"exact": {"type": ALARM}}, "to": "care.inbox"}
    return compile_contract(_DOCUMENT, "generated"), compile_contract(later, "generated")
