"""A small plane's contract, and changes of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from eventplane.contract import Contract, ContractError, Problem, compile_contract
from tests.small_contract import put, small_contract

RING = "org.example.ring.v1"

Document = dict[str, Any]


def document(changes: Mapping[str, Any] | None = None) -> Document:
    """A device with a bell, and a desk in the cloud; with values at other paths (`routes/up/to`).

    A path without a value (None) is a member that is removed.
    """
    made: Document = {
        "format": 8,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "listens"},
            "downlink": {"kind": "cloud_service", "description": "brings events down", "sends": []},
        },
        "event_types": {RING: {"description": "it rang", "priority": "urgent"}},
        "routes": {
            "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
            "to-desk": {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox"},
        },
    }
    for path, value in (changes or {}).items():
        put(made, path, value)
    return made


def small(changes: Mapping[str, Any] | None = None) -> Contract:
    return compile_contract(document(changes), "some.yaml")


def problems(changes: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is wrong with the plane after the changes."""
    with pytest.raises(ContractError) as caught:
        small(changes)
    assert "some.yaml" in str(caught.value)
    assert all(each.remedy for each in caught.value.problems)
    return caught.value.problems


def written_format(contract: Contract) -> int:
    """The format of the compiled form."""
    return int(json.loads(contract.canonical)["format"])


KINDS = {
    "lamp": "device_service",
    "switch": "device_service",
    "desk": "cloud_service",
    "shop": "cloud_service",
}
Routes = dict[str, dict[str, Any]]
Sends = dict[str, Any]


def to(destination: str, type: str = "", **attributes: str) -> dict[str, Any]:
    """A route for what has these attributes."""
    return {"filter": {"exact": {**({"type": type} if type else {}), **attributes}}, "to": destination}


def where(filter: dict[str, Any], destination: str) -> dict[str, Any]:
    return {"filter": filter, "to": destination}


def services(routes: Routes, sends: Sends | None = None, types: str = RING, **more: Any) -> Contract:
    """Two services on the device and two in the cloud, which send `sends`: a list, or all of the settings.

    Without `sends` no service declares it; a service that is not in `sends` sends nothing. `more` are
    settings of types and services.
    """
    made = {
        name: {"kind": kind, **_settings(sends, name), **more.get(name, {})} for name, kind in KINDS.items()
    }
    device = {"kind": "device", **({} if sends is None else {"sends": []})}
    return small_contract(
        {"device": device, **made}, routes, {each: more.get(each, {}) for each in types.split()}
    )


def _settings(sends: Sends | None, name: str) -> dict[str, Any]:
    if sends is None:
        return {}
    given = sends.get(name, [])
    return given if isinstance(given, dict) else {"sends": given}
