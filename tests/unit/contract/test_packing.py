"""Packed inboxes and the gathering of devices, as a contract declares them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.summary import special_text
from eventplane.contract import Contract, ContractError, compile_contract, load_compiled


def document(
    inbox: dict[str, Any] | None = None, bell: dict[str, Any] | None = None, **desk: Any
) -> dict[str, Any]:
    return {
        "format": 8,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings", **(bell or {})},
            "desk": {"kind": "cloud_service", "description": "listens", "inbox": inbox or {}, **desk},
            "downlink": {"kind": "cloud_service", "description": "down", "sends": []},
        },
        "routes": {
            "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
            "to-desk": {"filter": {"exact": {"type": "org.example.ring.v1"}}, "to": "desk.inbox"},
        },
    }


def compiled(changed: dict[str, Any]) -> Contract:
    return compile_contract(changed, "test")


def problems(changed: dict[str, Any]) -> list[str]:
    with pytest.raises(ContractError) as caught:
        compiled(changed)
    return [str(each) for each in caught.value.problems]


def test_only_a_contract_with_a_packed_inbox_needs_the_newest_format() -> None:
    for settings, needed in (({}, 2), ({"events_per_message": 1}, 2), ({"events_per_message": 250}, 8)):
        contract = compiled(document(settings))
        assert json.loads(contract.canonical)["format"] == needed
        assert (b"events_per_message" in contract.canonical) is (needed == 8)


def test_a_packed_inbox_survives_its_compiled_form() -> None:
    contract = compiled(document({"events_per_message": 250}))
    assert load_compiled(contract.canonical) == contract
    assert contract.channel("desk.inbox").events_per_message == 250
    assert "up to 250 events a message" in special_text(contract.channel("desk.inbox"))


@pytest.mark.parametrize("webhook", [{}, {"mode": "binary"}])
def test_a_webhook_may_be_packed(webhook: dict[str, Any]) -> None:
    assert compiled(document({"events_per_message": 9, "webhook": webhook}))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (document({"events_per_message": 0}), "0 is out of range"),
        (document({"events_per_message": 1_001}), "1001 is out of range"),
        (document({"events_per_message": 2, "transport": "sqs_fifo"}), "use `transport: sqs`"),
        (document({"events_per_message": 2, "transport": "nats"}), "use `transport: sqs`"),
        (document({"events_per_message": 2, "ordering": "source"}), "use `ordering: none`"),
        (document(outbox={"events_per_message": 2}), "only a cloud service's inbox"),
        (document(bell={"inbox": {"events_per_message": 2}}), "only a cloud service's inbox"),
    ],
)
def test_an_inbox_that_nobody_could_unpack_is_refused(changed: dict[str, Any], expected: str) -> None:
    assert any(".events_per_message: " in each and expected in each for each in problems(changed))


def test_the_inbox_of_a_function_of_the_plane_is_not_packed() -> None:
    changed = document()
    changed["participants"]["downlink"]["inbox"] = {"events_per_message": 2}
    (problem,) = problems(changed)
    assert problem.startswith("participants.downlink.inbox.events_per_message: a function of the plane reads")


def test_only_what_leaves_a_device_waits_for_company() -> None:
    assert compiled(document(bell={"outbox": {"batching_delay_ms": 60_000}}))
    (problem,) = problems(document({"batching_delay_ms": 1}))
    assert problem.startswith("participants.desk.inbox.batching_delay_ms: only events that leave a device")


def test_events_do_not_wait_for_company_until_they_expire() -> None:
    assert compiled(document(bell={"outbox": {"batching_delay_ms": 60_000, "expiry_s": 61}}))
    (problem,) = problems(document(bell={"outbox": {"batching_delay_ms": 60_000, "expiry_s": 60}}))
    assert "an event expires after 60 s, before it has waited 60000 ms" in problem


def test_a_compiled_contract_with_a_delay_that_has_no_effect_is_still_read() -> None:
    written = json.loads(compiled(document()).canonical)
    written["participants"]["desk"]["inbox"]["batching_delay_ms"] = 250
    assert load_compiled(json.dumps(written)).channel("desk.inbox").batching_delay_ms == 250
