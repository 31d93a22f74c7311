"""How events go down to a device, as the contract declares it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.summary import summary
from eventplane.contract import Contract, ContractError, Downlink, compile_contract, load_compiled


def document(inbox: dict[str, Any] | None = None, **threshold: Any) -> dict[str, Any]:
    return {
        "format": 4,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device", "inbox": inbox},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "sends"},
        },
        "event_types": {
            "org.example.ring.v1": {"description": "ring now"},
            "org.example.threshold.v1": {"description": "when to ring", **threshold},
        },
        "routes": {
            "down": {"filter": {"prefix": {"type": "org."}}, "to": "device.inbox"},
            "to-bell": {"filter": {"prefix": {"type": "org."}}, "to": "bell.inbox"},
        },
    }


def compiled(inbox: dict[str, Any] | None = None, **threshold: Any) -> Contract:
    contract = compile_contract(document(inbox, **threshold), "test")
    assert load_compiled(contract.canonical) == contract
    return contract


@pytest.mark.parametrize(
    ("inbox", "threshold", "ring_is", "threshold_is", "format_version"),
    [
        (None, {}, "command", "command", 2),
        ({"downlink": "command"}, {}, "command", "command", 2),
        ({"downlink": "state"}, {}, "state", "state", 4),
        (None, {"downlink": "state"}, "command", "state", 4),
        ({"downlink": "state"}, {"downlink": "command"}, "state", "command", 4),
    ],
)
def test_a_type_says_how_it_goes_down_or_else_the_inbox_does(
    inbox: dict[str, Any] | None,
    threshold: dict[str, Any],
    ring_is: str,
    threshold_is: str,
    format_version: int,
) -> None:
    contract = compiled(inbox, **threshold)
    assert contract.downlink("org.example.ring.v1") is Downlink(ring_is)
    assert contract.downlink("org.example.threshold.v1") is Downlink(threshold_is)
    assert contract.downlink("org.example.undeclared.v1") is Downlink(ring_is)
    # Devices in the field go on reading a contract that does not need the newer format.
    assert json.loads(contract.canonical)["format"] == format_version
    assert ('"downlink"' in contract.canonical.decode()) is (format_version == 4)


def test_only_a_device_has_a_downlink() -> None:
    for participant, box in (("bell", "inbox"), ("desk", "inbox"), ("device", "outbox")):
        changed = document()
        changed["participants"][participant][box] = {"downlink": "state"}
        with pytest.raises(ContractError) as caught:
            compile_contract(changed, "test")
        (problem,) = caught.value.problems
        assert problem.path == f"participants.{participant}.{box}.downlink"
        assert "set it on the inbox of the device, or on an event type" in problem.remedy


@pytest.mark.parametrize("place", ["inbox", "type"])
def test_an_unknown_word_is_told_with_those_that_are_known(place: str) -> None:
    wrong = {"downlink": "wish"}
    changed = document(wrong) if place == "inbox" else document(None, **wrong)
    with pytest.raises(ContractError, match="choose one of: state, command"):
        compile_contract(changed, "test")


def test_the_summary_tells_of_it() -> None:
    assert "inbox: events go down as state" in summary(compiled({"downlink": "state"}))
    assert "; goes down as state" in summary(compiled(None, downlink="state"))
