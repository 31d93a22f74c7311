"""An inbox whose consumer is an HTTPS endpoint, as the contract declares it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.checks import check
from contract.summary import summary
from eventplane.contract import (
    Channel,
    ContractError,
    Webhook,
    WebhookMode,
    compile_contract,
    load_compiled,
)
from eventplane.dead_letter import DEAD_LETTER_TYPE


def document(**inbox: Any) -> dict[str, Any]:
    return {
        "format": 3,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "listens", "inbox": inbox},
        },
        "routes": {
            "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
            "to-desk": {"filter": {"exact": {"type": "org.example.ring.v1"}}, "to": "desk.inbox"},
        },
    }


def inbox(**settings: Any) -> Channel:
    return compile_contract(document(**settings), "test").channel("desk.inbox")


def problems(changed: dict[str, Any]) -> list[str]:
    with pytest.raises(ContractError) as caught:
        compile_contract(changed, "test")
    return [str(each) for each in caught.value.problems]


def test_only_a_contract_with_a_webhook_needs_the_newer_format() -> None:
    for settings, needed in (({}, 2), ({"webhook": {}}, 3)):
        contract = compile_contract(document(**settings), "test")
        assert json.loads(contract.canonical)["format"] == needed
        assert ('"webhook"' in contract.canonical.decode()) is (needed == 3)


def test_an_inbox_is_a_queue_that_somebody_reads_unless_it_says_otherwise() -> None:
    assert (inbox().webhook, inbox().max_receives) == (None, 5)
    assert inbox(webhook=None).webhook is None


def test_an_empty_webhook_has_defaults_and_leaves_the_giving_up_to_the_age() -> None:
    channel = inbox(webhook={})
    assert channel.webhook == Webhook(WebhookMode.STRUCTURED, 10, 86_400, None)
    assert channel.max_receives == 1_000
    assert inbox(webhook={}, max_receives=7).max_receives == 7


def test_a_webhook_survives_its_compiled_form() -> None:
    settings = {"mode": "binary", "timeout_s": 3, "give_up_after_s": 600, "requests_per_minute": 90}
    contract = compile_contract(document(webhook=settings), "test")
    assert load_compiled(contract.canonical) == contract
    assert json.loads(contract.canonical)["participants"]["desk"]["inbox"]["webhook"] == settings
    assert "inbox: a webhook, binary" in summary(contract)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "carrier-pigeon"}, "webhook.mode: 'carrier-pigeon' is not known"),
        ({"timeout_s": 31}, "webhook.timeout_s: 31 is out of range; give seconds from 1 to 30"),
        ({"give_up_after_s": 90_000}, "webhook.give_up_after_s: 90000 is out of range"),
        ({"requests_per_minute": 0}, "webhook.requests_per_minute: 0 is out of range"),
        (
            {"retries": 3},
            "webhook.retries: this setting is unknown; remove it or use one of: give_up_after_s",
        ),
        (
            {"url": "https://desk.example"},
            "webhook.url: it differs between environments, .* stacks/config.py",
        ),
        ({"secret": "s"}, "webhook.secret: it differs between environments, .* the stacks make one"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(settings: dict[str, Any], expected: str) -> None:
    (problem,) = problems(document(webhook=settings))
    assert problem.startswith("participants.desk.inbox.webhook")
    # `.*` is for what need not be repeated here.
    at = 0
    for part in expected.split(".*"):
        at = problem.index(part.strip(), at)


def test_what_is_no_mapping_is_one_problem() -> None:
    (problem,) = problems(document(webhook="https://desk.example"))
    assert problem == "participants.desk.inbox.webhook: this is not a mapping; write `name: value` pairs"


def test_only_the_inbox_of_a_cloud_service_can_be_a_webhook() -> None:
    outbox = document()
    outbox["participants"]["desk"]["outbox"] = {"webhook": {}}
    on_device = document()
    on_device["participants"]["bell"]["inbox"] = {"webhook": {}}
    for changed in (outbox, on_device):
        (problem,) = problems(changed)
        assert "only the inbox of a cloud_service can lead to an HTTPS endpoint; remove it here" in problem


def test_an_event_becomes_a_dead_letter_before_its_queue_forgets_it() -> None:
    (problem,) = problems(document(webhook={"give_up_after_s": 3_600}, retention_s=3_600))
    assert "webhook.give_up_after_s: the queue deletes an event after 3600 s" in problem
    assert inbox(webhook={"give_up_after_s": 3_599}, retention_s=3_600).webhook is not None


def test_dead_letters_that_can_lead_to_a_webhook_are_warned_of() -> None:
    changed = document(webhook={})
    changed["routes"]["dead-letters"] = {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "desk.inbox"}
    warned = [each.path for each in check(compile_contract(changed, "test")) if "webhook" in each.message]
    assert warned == ["routes.dead-letters"]
    changed["participants"]["desk"]["inbox"] = {}
    assert not [each for each in check(compile_contract(changed, "test")) if "webhook" in each.message]
