"""The contract of the deployed plane: the shipped one, grown by participants with each kind of box.

A night watch has FIFO queues and gets its own events, a day watch has standard ones that keep the order too,
and the rescue service has a webhook.
"""

from __future__ import annotations

import json
from typing import Any, Final

from contract import load_contract
from eventplane.contract import Contract, compile_contract

ROUND: Final = "org.eventplane.round.v1"
"""The type of the night watch's events, which come back to it."""
VISIT: Final = "org.eventplane.visit.v1"
"""The type of the day watch's events, which come back to it as well."""
RESCUE: Final = "org.eventplane.rescue.v1"
"""The type of the events that voice-services send to the rescue service."""
HOOKED: Final = "rescue-service"
"""The participant whose inbox is a webhook."""


def grown_document() -> dict[str, Any]:
    """The document of `grown_contract`."""
    document: dict[str, Any] = json.loads(load_contract().canonical)
    participants, types, routes = (document[each] for each in ("participants", "event_types", "routes"))
    box = {"transport": "sqs_fifo", "ordering": "source"}
    service = {"kind": "cloud_service", "description": "Somebody is awake."}
    participants["night-watch"] = {**service, "inbox": box, "outbox": box, "sends": [ROUND]}
    participants["day-watch"] = {**service, "inbox": {"ordering": "source"}, "sends": [VISIT]}
    participants[HOOKED] = {**service, "inbox": {"webhook": {}}}
    participants["voice-service"]["sends"].append(RESCUE)
    for to, type in (("night-watch", ROUND), ("day-watch", VISIT), (HOOKED, RESCUE)):
        types[type] = {"description": "Somebody was there."}
        routes[f"to-{to}"] = {"filter": {"exact": {"type": type}}, "to": f"{to}.inbox"}
    return document


def grown_contract() -> Contract:
    """The contract that is deployed."""
    return compile_contract(grown_document(), "grown")


def left_contract(*, is_retired: bool = False) -> Contract:
    """The same after the night watch has left or, if `is_retired`, has retired."""
    document = grown_document()
    del document["routes"]["to-night-watch"]
    if is_retired:
        document["participants"]["night-watch"]["retired"] = True
    else:
        del document["participants"]["night-watch"]
    return compile_contract(document, "left")
