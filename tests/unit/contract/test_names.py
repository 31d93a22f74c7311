"""Names of participants that AWS would refuse, or that would be one resource of two."""

from __future__ import annotations

from typing import Any

import pytest

from eventplane.contract import ContractError, compile_contract, load_compiled
from eventplane.contract.participants import MAX_PARTICIPANT_NAME, RESERVED_NAMES

SERVICE = {"kind": "cloud_service", "description": "d"}


def document(**participants: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": 2,
        "name": "named",
        "participants": {
            "home": {"kind": "device", "description": "d"},
            **{name.replace("_", "-"): each for name, each in participants.items()},
        },
        "routes": {"up": {"filter": {"prefix": {"type": "org."}}, "to": "home.outbox"}},
    }


def faults(**participants: dict[str, Any]) -> list[str]:
    with pytest.raises(ContractError) as caught:
        compile_contract(document(**participants), "test")
    return [each.path.removeprefix("participants.") for each in caught.value.problems]


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES | {"home-urgent", "urgentingest"}))
def test_what_the_plane_has_resources_for_is_no_cloud_service(name: str) -> None:
    assert faults(**{name: SERVICE}) == [name]


def test_hyphens_do_not_tell_two_cloud_services_apart() -> None:
    assert faults(a_1=SERVICE, a1=SERVICE) == ["a1"]


def test_the_queue_for_replies_and_the_key_of_a_webhook_are_of_nobody_else() -> None:
    asks = {**SERVICE, "asks": ["org.example.*"]}
    assert faults(desk=asks, desk_replies=SERVICE) == ["desk-replies"]
    posted = {**SERVICE, "inbox": {"webhook": {}}}
    assert faults(desk_webhook=SERVICE, desk=posted) == ["desk"]
    compile_contract(document(desk=SERVICE, desk_replies=SERVICE, desk_webhook=SERVICE), "test")


def test_a_name_has_an_end_where_resources_are_called_after_it() -> None:
    longest = "n" * MAX_PARTICIPANT_NAME
    assert faults(**{f"{longest}n": SERVICE}) == [f"{longest}n"]
    on_device = {"kind": "device_service", "description": "d"}
    compile_contract(document(**{longest: SERVICE, f"{longest}n": on_device}), "test")
    assert len(f"eventplane-{12 * 'e'}-router-{longest}-urgent") == 64


def test_a_device_service_may_be_called_like_what_is_in_the_cloud() -> None:
    compile_contract(document(tap={"kind": "device_service", "description": "d"}), "test")


def test_what_was_compiled_before_stays_readable() -> None:
    compiled = compile_contract(document(tapped=SERVICE), "test").canonical
    old = compiled.replace(b'"tapped"', b'"tap"')
    assert "tap" in load_compiled(old).participants
