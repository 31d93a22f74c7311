"""The Subscriptions API: who may call what, and where endpoints may be."""

from __future__ import annotations

import json
from typing import Any

from eventplane.contract import Contract, ParticipantKind, compile_contract
from eventplane.names import OWN_SERVICES, SUBSCRIBERS
from tests.infrastructure.templates import Templates, statements

API = "subscriptions-api"


def test_each_participant_has_a_policy_of_its_own_paths_and_the_planes_services_have_none(
    dev: Templates, contract: Contract
) -> None:
    policies: dict[str, Any] = {
        each.find("ManagedPolicyName"): list(statements(each))
        for each in dev.of("AWS::IAM::ManagedPolicy")
        if each.stack == "subscriptions"
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
    parts = templates.function(API).find("Environment", "Variables")["EVENTPLANE_INBOXES"]
    return "".join(each for each in parts["Fn::Join"][1] if isinstance(each, str))


def test_without_somebody_who_posts_to_them_endpoints_may_be_nowhere(contract: Contract) -> None:
    document = json.loads(contract.canonical)
    document["participants"].pop(SUBSCRIBERS)
    templates = Templates("dev", compile_contract(document, "test"))
    variables = templates.function(API).find("Environment", "Variables")
    assert variables["EVENTPLANE_SINKS"] == "nowhere"


def test_only_the_emulated_cloud_lets_endpoints_be_anywhere(dev: Templates, local: Templates) -> None:
    for templates, where in ((dev, "internet"), (local, "anywhere")):
        for name in (API, SUBSCRIBERS):
            variables = templates.function(name).find("Environment", "Variables")
            assert variables["EVENTPLANE_SINKS"] == where
