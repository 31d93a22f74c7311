"""Small contracts of a test's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventplane.contract import Contract, compile_contract
from eventplane.contract.canonical import FORMAT

Members = Mapping[str, Any]


def small_document(
    participants: Mapping[str, str | Members],
    routes: Mapping[str, tuple[Any, str] | Members],
    event_types: Mapping[str, Members] | None = None,
) -> dict[str, Any]:
    """Return the document. A participant may be its kind alone; a route may be its filter and destination."""
    kinds = {name: {"kind": each} if isinstance(each, str) else each for name, each in participants.items()}
    return {
        "format": FORMAT,
        "name": "small",
        "participants": {name: {"description": "d", **each} for name, each in kinds.items()},
        "event_types": {name: {"description": "d", **each} for name, each in (event_types or {}).items()},
        "routes": {
            name: {"filter": each[0], "to": each[1]} if isinstance(each, tuple) else dict(each)
            for name, each in routes.items()
        },
    }


def small_contract(
    participants: Mapping[str, str | Members],
    routes: Mapping[str, tuple[Any, str] | Members],
    event_types: Mapping[str, Members] | None = None,
) -> Contract:
    """Return the contract of `small_document`."""
    return compile_contract(small_document(participants, routes, event_types), "small")
