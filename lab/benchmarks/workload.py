"""The load of the router benchmark: events of 945 B with 13 attributes, and contracts of any size.

The routes are mixed: five kinds in turn, each set of five for a home of its own. The events are all of home
0, so each matches the first five routes, however many there are: what is measured is the price of the rest.
"""

import json

from eventplane.contract import Contract, compile_contract

EVENT_BYTES = 945
EVENTS = 200
"""Distinct events of one home: what they have in common may be remembered, no event as a whole."""

_KINDS = 5


def event(number: int) -> bytes:
    """Event `number` of home 0: 13 attributes, 945 bytes."""
    document = {
        "specversion": "1.0",
        "id": f"8d3f7a1e-55f1-4b7c-9d55-{number:012x}",
        "source": "/homes/00000/voice/kitchen",
        "type": "org.example.home00000.alarm.v1",
        "subject": "/homes/00000/kitchen/microphone",
        "time": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000Z",
        "datacontenttype": "application/json",
        "dataschema": "https://schemas.example.org/alarm-keyword/v1.json",
        "severitynumber": 21,
        "sequence": f"{number:020}",
        "traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{number + 1:016x}-01",
        "partitionkey": "home-00000",
        "expirytime": "2026-01-01T02:00:00.000Z",
        "data": {
            "keyword": "help",
            "confidence": 0.97,
            "room": "kitchen",
            "levels": [0.12, 0.5, 0.31, 0.9, 0.44],
            "device": {"firmware": "2.14.0", "battery": 87, "mains": True},
            "text": "",
        },
    }
    missing = EVENT_BYTES - len(_compact(document))
    document["data"]["text"] = "x" * missing  # type: ignore[index]
    return _compact(document)


def event_of_its_own(number: int) -> bytes:
    """Event `number` with a subject of its own, which filters look at; as long as the others."""
    return event(number).replace(b"/microphone", b"/mic%07d" % number)


def contract(routes: int) -> Contract:
    """A compiled contract with so many routes of the cloud's router."""
    return compile_contract(contract_document(routes), "benchmark")


def contract_document(routes: int) -> dict[str, object]:
    """The contract as people write it."""
    return {
        "format": 8,
        "name": "benchmark",
        "participants": {
            "home": {"kind": "device", "description": "A home."},
            "desk": {"kind": "cloud_service", "description": "Who gets everything."},
        },
        "event_types": {},
        "routes": {
            f"r{number:05}": {"filter": _filter(number), "to": "desk.inbox"} for number in range(routes)
        },
    }


def _filter(number: int) -> dict[str, object]:
    home = f"{number // _KINDS:05}"
    kinds: list[dict[str, object]] = [
        {"exact": {"type": f"org.example.home{home}.alarm.v1"}},
        {"prefix": {"subject": f"/homes/{home}/"}},
        {
            "sql": f"type = 'org.example.home{home}.alarm.v1' AND severitynumber >= 17"
            " AND subject LIKE '/homes/%'"
        },
        {"all": [{"exact": {"source": f"/homes/{home}/voice/kitchen"}}, {"suffix": {"type": ".v1"}}]},
        {"sql": f"source LIKE '/homes/{home}/%' AND type LIKE '%.alarm.v1'"},
    ]
    return kinds[number % _KINDS]


def _compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
