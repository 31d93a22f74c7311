"""The Subscriptions API: who may call what, and what its functions may do."""

from __future__ import annotations

import json
from typing import Any

from eventplane.contract import Contract, ParticipantKind, compile_contract
from eventplane.names import OWN_SERVICES, SUBSCRIBERS
from tests.infrastructure.templates import Resource, Templates, statements, words

API = "api.subscriptions"
SUBSCRIBERS_ENTRY = "http_sink.subscribers"


def own(templates: Templates, type: str) -> list[Resource]:
    return [each for each in templates.of(type) if each.stack == "subscriptions"]


def function(templates: Templates, entry: str) -> Resource:
    (found,) = (
        each
        for each in own(templates, "AWS::Lambda::Function")
        if each.find("Handler") == f"lambdas.{entry}.handle"
    )
    return found


def granted(templates: Templates, entry: str) -> dict[str, list[str]]:
    (id, _) = function(templates, entry).find("Role")["Fn::GetAtt"]
    (role,) = (each for each in own(templates, "AWS::IAM::Role") if each.id == id)
    found: dict[str, list[str]] = {}
    for statement in statements(role):
        for action in words(statement["Action"]) if "Resource" in statement else []:
            found.setdefault(action, []).extend(words(statement["Resource"]))
    return found


def test_each_participant_has_a_policy_of_its_own_paths_and_the_planes_services_have_none(
    dev: Templates, contract: Contract
) -> None:
    policies: dict[str, Any] = {
        each.find("ManagedPolicyName"): list(statements(each)) for each in own(dev, "AWS::IAM::ManagedPolicy")
    }
    services = {each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)} - OWN_SERVICES
    assert set(policies) == {f"eventplane-dev-{name}-subscriptions" for name in services}
    for name in services:
        (statement,) = policies[f"eventplane-dev-{name}-subscriptions"]
        assert statement["Action"] == "execute-api:Invoke"
        path = f"/$default/*/participants/{name}/subscriptions"
        assert [each["Fn::Join"][1][-1] for each in statement["Resource"]] == [path, f"{path}/*"]
    known = json.loads(inboxes(dev))
    assert set(known) == services


def inboxes(templates: Templates) -> str:
    """The variable of the function, with the parts that AWS fills in left out."""
    parts = function(templates, API).find("Environment", "Variables")["EVENTPLANE_INBOXES"]
    return "".join(each for each in parts["Fn::Join"][1] if isinstance(each, str))


def test_the_api_may_change_the_table_and_read_the_key_and_nothing_else(dev: Templates) -> None:
    may = granted(dev, API)
    tables = {action.partition(":")[2] for action in may if action.startswith("dynamodb:")}
    # It goes by the contract in force, which it reads as the routers do.
    assert tables == {"GetItem", "Query", "PutItem", "DeleteItem", "Scan"}
    assert all("subscriptions" in each for each in may["dynamodb:PutItem"])
    others = {each for each in may if not each.startswith("dynamodb:")}
    assert others == {"secretsmanager:GetSecretValue"}


def test_what_posts_to_endpoints_writes_its_outbox_and_its_records_only(dev: Templates) -> None:
    may = granted(dev, SUBSCRIBERS_ENTRY)
    assert {each.rpartition("-dev-")[2] for each in may["sqs:SendMessage"]} == {
        'subscribers-outbox"]]}',
        'subscribers-inbox-dlq"]]}',
    }
    assert {each for each in may if each.startswith(("dynamodb:", "s3:", "secrets"))} == {
        "dynamodb:Scan",
        "s3:PutObject",
        "secretsmanager:GetSecretValue",
    }


def test_without_somebody_who_posts_to_them_endpoints_may_be_nowhere(contract: Contract) -> None:
    document = json.loads(contract.canonical)
    document["participants"].pop(SUBSCRIBERS)
    templates = Templates("dev", compile_contract(document, "test"))
    variables = function(templates, API).find("Environment", "Variables")
    assert variables["EVENTPLANE_SINKS"] == "nowhere"


def test_only_the_emulated_cloud_lets_endpoints_be_anywhere(dev: Templates, local: Templates) -> None:
    for templates, where in ((dev, "internet"), (local, "anywhere")):
        for entry in (API, SUBSCRIBERS_ENTRY):
            variables = function(templates, entry).find("Environment", "Variables")
            assert variables["EVENTPLANE_SINKS"] == where
