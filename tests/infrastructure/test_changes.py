"""The effect of a change: participants that come and leave, parts, and new versions of functions."""

import json
from dataclasses import replace

import pytest

from eventplane.contract import Contract
from eventplane.function_settings import LedgerWriterSettings, RouterSettings
from eventplane.limits import MAX_RECEIVES
from lab.benchmarks.plane_size import smallest
from lambdas.router.wiring import Channels
from stacks.config import environment
from tests.infrastructure.templates import (
    ALIAS,
    FUNCTION,
    MAPPING,
    SCHEDULE,
    Templates,
    granted,
    statements,
    words,
)
from tests.infrastructure.test_monitoring import ALARM, alarms, dimensions, single
from tests.small_contract import with_changes


@pytest.mark.source("P2")
def test_a_new_service_needs_only_a_contract(dev: Templates, grown: Templates) -> None:
    inbox, letters = grown.queues["night-watch-inbox"], grown.queues["night-watch-inbox-dlq"]
    assert inbox.find("MessageRetentionPeriod") == 3_600
    assert inbox.find("RedrivePolicy", "maxReceiveCount") == MAX_RECEIVES
    # What follows an event that fails waits, and somebody has to know.
    blocked = alarms(grown)["ApproximateAgeOfOldestMessage", inbox.find("QueueName")]
    assert (blocked.find("Threshold"), blocked.find("EvaluationPeriods")) == (60, 1)
    mapping = grown.mappings["night-watch-outbox"]
    # All that Lambda takes from a FIFO queue.
    assert mapping.find("BatchSize") <= 10
    assert mapping.find("MaximumBatchingWindowInSeconds") is None
    assert set(grown.outputs("messaging")) - set(dev.outputs("messaging")) == {
        "NightWatchInboxUrl",
        "NightWatchOutboxUrl",
    }
    assert grown.mappings.keys() - dev.mappings.keys() == {"night-watch-outbox"}
    for box in (inbox, letters):
        assert box.find("FifoQueue") is True
        assert box.find("SqsManagedSseEnabled") is True
    assert inbox.find("FifoThroughputLimit") == "perMessageGroupId"
    assert inbox.find("DeduplicationScope") == "messageGroup"
    assert inbox.find("ContentBasedDeduplication") is None


def test_a_participant_changes_no_other_id(dev: Templates, grown: Templates, shrunk: Templates) -> None:
    came = grown.ids() - dev.ids()
    assert dev.ids() <= grown.ids()
    assert all("nightwatch" in each.lower().replace("-", "") for each in came), came

    left = {each for each in dev.ids() - shrunk.ids() if not each.startswith("monitoring/")}
    assert left
    own = ("familyapp", "downlink", "subscribers", "endpoints", "deviceinbox")
    assert all(any(name in each.lower().replace("-", "") for name in own) for each in left), left
    assert {each for each in shrunk.ids() if not each.startswith("monitoring/")} <= dev.ids()


def test_absent_parts_leave_nothing(shrunk: Templates) -> None:
    names = json.dumps([shrunk.documents["routing"], shrunk.documents["messaging"]])
    for name in ("device-inbox", "downlink", "subscribers-"):
        assert name not in names
    # Nothing posts to the endpoints of subscriptions.
    assert shrunk.functions["subscriptions-api"].variables["EVENTPLANE_SINKS"] == "nowhere"


def test_a_retired_service_keeps_its_queues(dev: Templates, retired: Templates) -> None:
    kept = {each for each in dev.queues if not each.startswith("canary-")}
    assert retired.queues.keys() == kept
    contract = retired.contract
    settings = retired.functions["router-services"].settings(RouterSettings)
    assert not {"family-app.inbox", "device.inbox"} & Channels.of(settings, contract).inboxes.keys()
    # What it has written already is still routed, and what is on its way down is still brought.
    assert {"family-app-outbox", "device-inbox"} <= retired.mappings.keys()
    writers = {
        each.id
        for each in retired.of("AWS::IAM::Role", "AWS::IAM::Policy")
        for statement in statements(each)
        if "sqs:SendMessage" in words(statement["Action"])
        and any(':eventplane-dev-device-inbox"' in each for each in words(statement["Resource"]))
    }
    # Its own reader, which sends itself the rest of what is for all devices.
    assert [each.startswith("DownlinkDesiredRole") for each in writers] == [True]
    assert retired.outputs("routing")["RetiredParticipants"] == "device,downlink,family-app"
    assert "RetiredParticipants" not in dev.outputs("routing")


def test_without_a_canary_every_queue_has_alarms_of_its_own(retired: Templates) -> None:
    found = alarms(retired)
    for name in retired.queues:
        full = retired.queues[name].find("QueueName")
        if "-dlq" in name:
            assert found["ApproximateNumberOfMessagesVisible", full].find("Threshold") == 0
        elif not name.endswith("-replies"):
            assert ("ApproximateAgeOfOldestMessage", full) in found
    assert not [each for each in retired.of(SCHEDULE) if "canary" in each.name]


def test_the_smallest_plane_is_small() -> None:
    assert len(smallest().functions) == 6
    assert len(smallest().of()) <= 150


def test_production_rolls_out_in_25_minutes(prod: Templates) -> None:
    assert len(prod.of()) <= 450
    # The urgent router after the others of its stack; the stacks side by side.
    assert prod.rollout_minutes == 2 * prod.environment.rollout_minutes <= 25


@pytest.fixture(scope="module")
def plain(shrunk: Templates) -> Templates:
    """`shrunk` without the parts that an environment may leave out."""
    settings = replace(environment("dev"), parts=frozenset(), audit_deliveries=True)
    return Templates(settings, shrunk.contract)


def test_what_an_environment_leaves_out_is_gone_and_nothing_else(plain: Templates, shrunk: Templates) -> None:
    gone = shrunk.functions.keys() - plain.functions.keys()
    assert gone == {"provisioning-hook", "certificate-keeper", "fleet-snapshot"} | {
        "subscriptions-api",
        "discovery-api",
        "replay",
    }
    assert plain.ids() < shrunk.ids()
    text = json.dumps(plain.documents)
    for name in ("replay", "compaction-failed", "provisioning", "AWS::Glue::Table", "execute-api"):
        assert name in json.dumps(shrunk.documents)
        assert name not in text
    # What is there depends on no stack that is not.
    assert {"fleet", "registry", "subscriptions", "discovery"}.isdisjoint(plain.documents)


def test_an_environment_asks_for_the_list_of_deliveries(plain: Templates, shrunk: Templates) -> None:
    jobs = (each.one("AWS::Glue::Job", "delivery-audit") for each in (plain, shrunk))
    assert [each.find("DefaultArguments").get("--DELIVERIES") for each in jobs] == ["true", None]


def test_only_its_reader_writes_receipts(plain: Templates) -> None:
    readers = ("alarm-centre", "carers")
    unasked = {f"participants/{each}/inbox/receipts": False for each in readers}
    without = Templates(plain.environment, with_changes(plain.contract, unasked))
    asked = {f"{each}-receipts" for each in readers}
    assert plain.queues.keys() - without.queues.keys() == asked | {f"{each}-dlq" for each in asked}
    policies = plain.of("AWS::IAM::ManagedPolicy")
    for each in readers:
        writers = {one.name for one in policies if f"{each}-receipts" in json.dumps(one.properties)}
        assert writers == {f"{each}-client"}
    writer = plain.functions["ledger-writer"]
    may = plain.may(writer)
    assert may["sqs:ReceiveMessage"] == {"ledger", *asked}
    assert "/handovers/*" in may["s3:PutObject"]
    assert "/handovers/*" not in without.may(without.functions["ledger-writer"])["s3:PutObject"]
    assert writer.settings(LedgerWriterSettings).receipts_of == {
        f"eventplane-dev-{each}-receipts": f"{each}.inbox" for each in readers
    }


@pytest.mark.parametrize("part", ["fleet", "subscriptions_api"])
def test_a_needed_part_is_there(part: str, contract: Contract) -> None:
    settings = replace(environment("dev"), parts=frozenset())
    assert settings.has(part, contract)
    assert not settings.has("queries", contract)


VERSION = "AWS::Lambda::Version"
CALLED_AT_ONCE = {
    SCHEDULE: ("Target", "Arn"),
    "AWS::Lambda::Permission": ("FunctionName",),
    "AWS::Lambda::EventInvokeConfig": ("FunctionName",),
    "AWS::IoT::ProvisioningTemplate": ("PreProvisioningHook", "TargetArn"),
    "AWS::ApiGatewayV2::Integration": ("IntegrationUri",),
}


def test_queues_call_the_alias(released: Templates, local: Templates) -> None:
    functions = {each.id for each in released.of(FUNCTION)}
    fed = {released.function_behind(each, "FunctionName").id for each in released.of(MAPPING)}
    assert {each.find("FunctionName")["Ref"] for each in released.of(ALIAS)} == fed
    for mapping in released.of(MAPPING):
        assert not any(f'"{each}"' in json.dumps(mapping.find("FunctionName")) for each in functions)
    callers = released.of(*CALLED_AT_ONCE)
    assert {each.type for each in callers} == set(CALLED_AT_ONCE)
    for caller in callers:
        text = json.dumps(caller.find(*CALLED_AT_ONCE[caller.type]))
        assert any(f'"{each}"' in text for each in functions - fed), str(caller)
    # Tests of the emulated cloud change what is deployed.
    assert not local.of(ALIAS, VERSION, "AWS::CodeDeploy::DeploymentGroup")


def test_production_shifts_every_alias(prod: Templates) -> None:
    groups = {(each.stack, each.id): each for each in prod.of("AWS::CodeDeploy::DeploymentGroup")}
    alarms = {(each.stack, each.id): each for each in prod.of(ALARM)}
    for alias in prod.of(ALIAS):
        function = prod.function_behind(alias, "FunctionName")
        name = function.find("FunctionName")
        update = alias.attributes["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        group = groups.pop((alias.stack, update["DeploymentGroupName"]["Ref"]))
        assert group.find("DeploymentConfigName") == "CodeDeployDefault.LambdaCanary10Percent10Minutes"
        assert "DEPLOYMENT_STOP_ON_ALARM" in group.find("AutoRollbackConfiguration", "Events")
        (used,) = group.find("AlarmConfiguration", "Alarms")
        alarm = alarms[alias.stack, used["Name"]["Ref"]]
        assert alarm.find("AlarmName") == f"{name}-rollout"
        metrics = {each.find("MetricName"): dimensions(each) for each in single(alarm)}
        # Of the version that is deployed: the old one's failures do not stop its successor.
        version = alias.find("FunctionVersion")
        errors = {"FunctionName": name, "Resource": f"{name}:live", "ExecutedVersion": version}
        assert metrics.pop("Errors") == errors
        # A batch that failed message by message rolls back too; what another router retries does not.
        assert metrics == {"Retried": {"service": name}}
    assert not groups


def test_the_urgent_router_changes_when_all_others_have(released: Templates) -> None:
    urgent = released.one(ALIAS, "DeviceUrgentRouter")
    others = {each.id for each in released.of(ALIAS, stack=urgent.stack)} - {urgent.id}
    assert "DeviceRouterFunctionLive69F4FA55" in others
    assert set(urgent.attributes["DependsOn"]) == others


def test_codedeploy_shifts_only_its_stack(prod: Templates) -> None:
    roles = [each for each in prod.of("AWS::IAM::Role") if each.id.startswith("Rollout")]
    assert roles
    for role in roles:
        may = granted(prod, role)
        aliases = prod.of(ALIAS, stack=role.stack)
        functions = {prod.function_behind(each, "FunctionName").find("FunctionName") for each in aliases}
        assert set(may) == {
            *("lambda:GetAlias", "lambda:UpdateAlias", "lambda:GetProvisionedConcurrencyConfig"),
            "cloudwatch:DescribeAlarms",
        }
        reached = {each.split(":function:")[1].split('"')[0] for each in may["lambda:UpdateAlias"]}
        assert reached == functions | {f"{each}:*" for each in functions}


def test_warm_executions_make_a_version(prod: Templates, guarded: Templates) -> None:
    # An update of nothing but a version's provisioned concurrency fails, and rolls the stack back.
    for type in (VERSION, FUNCTION):
        before, after = (each.one(type, "DeviceUrgentRouter") for each in (prod, guarded))
        assert before.properties != after.properties
        assert (before.id != after.id) is (type == VERSION)
    # Lambda refuses it on an alias that is being shifted.
    assert not any(each.find("ProvisionedConcurrencyConfig") for each in prod.of(ALIAS))


def test_a_changed_function_is_a_new_version(dev: Templates, full: Templates) -> None:
    before, after = (each.one(VERSION, "ServicesRouter") for each in (dev, full))
    assert before.id != after.id


def test_a_roll_out_can_be_left_out_and_the_order_stays(guarded: Templates) -> None:
    assert not guarded.of("AWS::CodeDeploy::DeploymentGroup", "AWS::CodeDeploy::Application")
    assert not any("UpdatePolicy" in each.attributes for each in guarded.of(ALIAS))
    assert guarded.one(ALIAS, "DeviceUrgentRouter").attributes["DependsOn"]
