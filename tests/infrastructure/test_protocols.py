"""A contract with an inbox over a protocol that a package adds: what it gets, what an environment says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from contract import load_contract
from eventplane.contract import Contract, compile_contract
from stacks.config import environment
from stacks.settings import EnvironmentSettingError, ProtocolSettings
from tests.infrastructure.templates import Resource, Templates, granted, statements

pytestmark = pytest.mark.source("P13")

NATS = ProtocolSettings(package="plugins/nats", url="nats://nats.example:4222", secret="nats-of-routers")
STREAM = "nats://nats.example:4222/eventplane-dev-care-analytics-inbox"


def contract_over_nats() -> Contract:
    document = json.loads(load_contract().canonical)
    for box in ("inbox", "outbox"):
        document["participants"]["care-analytics"][box] = {"transport": "nats"}
    return compile_contract({**document, "format": 7}, "test")


@pytest.fixture(scope="module")
def over_nats() -> Templates:
    return Templates(replace(environment("dev"), protocols=(NATS,)), contract_over_nats())


def queues(templates: Templates) -> set[str]:
    return {each.find("QueueName") for each in templates.of("AWS::SQS::Queue")}


def routers(templates: Templates) -> list[Resource]:
    return [
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("Handler").split(".")[1] in ("router", "replay")
    ]


def variables(function: Resource) -> dict[str, Any]:
    found: dict[str, Any] = function.find("Environment", "Variables")
    return found


def test_the_inbox_has_no_queue_and_the_outbox_has_one_which_feeds_the_router(
    over_nats: Templates, dev: Templates
) -> None:
    name = "eventplane-dev-care-analytics"
    assert queues(dev) - queues(over_nats) == {f"{name}-inbox", f"{name}-inbox-dlq"}
    assert {f"{name}-outbox", f"{name}-outbox-dlq"} <= queues(over_nats)
    assert "CareAnalyticsInboxUrl" not in over_nats.outputs("messaging")


def test_every_router_is_told_where_the_inbox_is_and_may_read_the_secret(
    over_nats: Templates, dev: Templates
) -> None:
    assert len(routers(over_nats)) == len(routers(dev)) > 1
    for each in routers(over_nats):
        parts = variables(each)["EVENTPLANE_QUEUES"]["Fn::Join"][1]
        told = json.loads("".join(part if isinstance(part, str) else "x" for part in parts))
        assert told["care-analytics.inbox"] == STREAM
        assert variables(each)["EVENTPLANE_NATS_SECRET"] == "nats-of-routers"
        (id, _) = each.find("Role")["Fn::GetAtt"]
        role = next(one for one in over_nats.of("AWS::IAM::Role") if one.id == id)
        (secret,) = granted(over_nats, role)["secretsmanager:GetSecretValue"]
        assert "secret:nats-of-routers-??????" in secret
    for each in routers(dev):
        assert "EVENTPLANE_NATS_SECRET" not in variables(each)


def test_its_program_may_write_the_outbox_queue_and_reads_no_inbox(
    over_nats: Templates,
) -> None:
    (policy,) = (
        each
        for each in over_nats.of("AWS::IAM::ManagedPolicy")
        if each.find("ManagedPolicyName") == "eventplane-dev-care-analytics-client"
    )
    text = json.dumps(list(statements(policy)))
    assert "care-analytics-outbox" in text
    assert "care-analytics-inbox" not in text
    assert "sqs:ReceiveMessage" not in text


def test_the_subscriptions_api_leaves_it_out(over_nats: Templates) -> None:
    (api,) = (
        each
        for each in over_nats.of("AWS::Lambda::Function")
        if each.find("Handler").startswith("lambdas.api.subscriptions.")
    )
    assert "care-analytics" not in json.dumps(variables(api)["EVENTPLANE_INBOXES"])


def test_an_environment_that_does_not_say_where_it_is_cannot_be_deployed() -> None:
    with pytest.raises(
        EnvironmentSettingError,
        match=r"protocols of dev has none for nats, .* has care-analytics.inbox; .*config.py",
    ):
        Templates("dev", contract_over_nats())


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "nats.example:4222"},
        {"url": "nats://me:password@nats.example"},
        {"url": "nats://nats.example/stream"},
        {"secret": "no secret"},
    ],
)
def test_settings_that_cannot_work_or_would_show_a_password_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(EnvironmentSettingError) as refused:
        ProtocolSettings(**{"package": "plugins/nats", "url": NATS.url, **settings})
    assert "password" not in str(refused.value)
