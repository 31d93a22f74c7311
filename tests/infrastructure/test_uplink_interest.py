"""What tells devices what the cloud wants: only there where they ask, and with no more than it needs."""

from __future__ import annotations

import json
from functools import cache

import pytest

from contract import load_contract
from eventplane.contract import Contract, compile_contract
from tests.infrastructure.templates import Resource, Templates, granted
from tests.infrastructure.test_permissions import READ

NAME = "uplink-interest"


def asking() -> Contract:
    document = json.loads(load_contract().canonical)
    document["participants"]["device"].setdefault("outbox", {})["forward"] = "wanted"
    return compile_contract(document, "test")


_synthesised = cache(lambda name: Templates(name, asking()))


@pytest.fixture(params=["local", "dev"])
def templates(request: pytest.FixtureRequest) -> Templates:
    return _synthesised(request.param)


def function(templates: Templates) -> Resource:
    (found,) = (
        each
        for each in templates.of("AWS::Lambda::Function")
        if each.find("Handler") == "lambdas.downlink.interest.handle"
    )
    return found


def test_it_reads_what_is_in_force_and_writes_its_memory_and_the_outbox_of_operations() -> None:
    dev = _synthesised("dev")
    id = function(dev).find("Role")["Fn::GetAtt"][0]
    (role,) = (each for each in dev.of("AWS::IAM::Role") if each.id == id)
    may = {action: targets for action, targets in granted(dev, role).items() if action not in READ}
    assert {action: [name_in(each) for each in targets] for action, targets in may.items()} == {
        "dynamodb:GetItem": ["contracts", "desired"],
        "dynamodb:PutItem": ["desired"],
        "dynamodb:Scan": ["subscriptions"],
        "sqs:SendMessage": ["operations-outbox"],
    }


def name_in(arn: str) -> str:
    return arn.rpartition("eventplane-dev-")[2].rstrip('"]}')


def test_it_looks_once_a_minute_and_is_done_before_the_next(templates: Templates) -> None:
    (schedule,) = (each for each in templates.of("AWS::Scheduler::Schedule") if NAME in each.find("Name"))
    assert schedule.find("ScheduleExpression") == "rate(1 minute)"
    assert schedule.find("State") == ("DISABLED" if templates is _synthesised("local") else "ENABLED")
    assert templates.function_behind(schedule, "Target", "Arn") == function(templates)
    assert function(templates).find("Timeout") < 60


def test_where_devices_send_everything_there_is_nothing_of_it(dev: Templates, local: Templates) -> None:
    assert NAME not in json.dumps([dev.documents, local.documents])
