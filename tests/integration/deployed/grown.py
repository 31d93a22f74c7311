"""A contract with a participant whose boxes keep order, and the environment it is deployed in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from contract import load_contract
from eventplane.contract import Contract, compile_contract
from stacks.config import environment

ENVIRONMENT: Final = replace(environment("local"), name="grown")
APP: Final = Path(__file__).parent / "grown_plane"
ROUND: Final = "org.eventplane.round.v1"
"""The type of the night watch's events, which come back to it."""
VISIT: Final = "org.eventplane.visit.v1"
"""The type of the day watch's events, which come back to it as well."""


def grown_contract() -> Contract:
    """The plane's contract with a night watch, which has FIFO queues and gets its events, and a day watch,
    which has standard ones and keeps the order too.
    """
    return compile_contract(grown_document(), "grown")


def retired_contract() -> Contract:
    """The same after the night watch has retired."""
    document = grown_document()
    document["participants"]["night-watch"]["retired"] = True
    del document["routes"]["to-night-watch"]
    return compile_contract(document, "retired")


def left_contract() -> Contract:
    """The same after the night watch has left."""
    document = grown_document()
    del document["participants"]["night-watch"]
    del document["routes"]["to-night-watch"]
    return compile_contract(document, "left")


def grown_document() -> dict[str, Any]:
    """The document of `grown_contract`."""
    document: dict[str, Any] = json.loads(load_contract().canonical)
    box = {"transport": "sqs_fifo", "ordering": "source"}
    document["participants"]["night-watch"] = {
        "kind": "cloud_service",
        "description": "Somebody is awake.",
        "inbox": box,
        "outbox": box,
        "sends": [ROUND],
    }
    document["participants"]["day-watch"] = {
        "kind": "cloud_service",
        "description": "Everybody is awake.",
        "inbox": {"ordering": "source"},
        "sends": [VISIT],
    }
    document["event_types"][VISIT] = {"description": "Somebody came."}
    document["routes"]["to-day-watch"] = {"filter": {"exact": {"type": VISIT}}, "to": "day-watch.inbox"}
    document["event_types"][ROUND] = {"description": "A round was made."}
    document["routes"]["to-night-watch"] = {"filter": {"exact": {"type": ROUND}}, "to": "night-watch.inbox"}
    return document
