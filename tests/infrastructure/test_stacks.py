"""What holds for whole stacks: names that stay, data that stays, logs that go, outputs to rely on."""

from __future__ import annotations

import json
import platform

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3

from eventplane.contract import Contract
from eventplane.contract.publication import cloud_destinations
from eventplane.downlink.table import PENDING_INDEX
from stacks.application import build
from stacks.config import environment
from stacks.constructs.function_assets import architecture
from tests.infrastructure.templates import NO_BUNDLING, Templates, queues_of

HOLDS_DATA = ("AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::DynamoDB::Table")

STATEFUL = {
    "archive": ["ArchiveBucket49F1AC64"],
    "client": ["TablesFilter10F4261B", "TablesSubscriptionsEF5802C5"],
    "contract": ["ContractsTable31B99448"],
    "downlink": [
        "DesiredTableFF14343F",
        "WorkDeadLetters7D6F983C",
        "WorkQueue1CAC4D2F",
    ],
    "messaging": [
        "AlarmCentreInboxDeadLetters3FA7CB90",
        "AlarmCentreInboxQueue14D5C406",
        "AlarmCentreOutboxDeadLetters884AD33C",
        "AlarmCentreOutboxQueueC07EE64E",
        "CareAnalyticsInboxDeadLetters98AF58E6",
        "CareAnalyticsInboxQueue79B6961F",
        "CareAnalyticsOutboxDeadLetters9ACDCE8E",
        "CareAnalyticsOutboxQueue6EFC2E2F",
        "CarersInboxDeadLetters7289F2FE",
        "CarersInboxQueue6B42A645",
        "CarersOutboxDeadLetters13635497",
        "CarersOutboxQueueCE030BA3",
        "DeviceInboxDeadLettersABC3964A",
        "DeviceInboxQueueDD173DD8",
        "DownlinkInboxDeadLetters29BA75BC",
        "DownlinkInboxQueue47EDC989",
        "DownlinkOutboxDeadLetters71224B18",
        "DownlinkOutboxQueue5FBF3D6D",
        "FamilyAppInboxDeadLetters002F4C4B",
        "FamilyAppInboxQueueA2F44A8F",
        "FamilyAppOutboxDeadLetters48A0134F",
        "FamilyAppOutboxQueueDDA3327C",
        "IngestDeadLetters1228E37E",
        "IngestErrorsDeadLettersD74B50C0",
        "IngestErrorsQueue9D8B69F6",
        "IngestQueue95F6DB49",
        "OperationsInboxDeadLetters8C3F0B11",
        "OperationsInboxQueueC92C87EC",
        "OperationsOutboxDeadLettersBFE1C537",
        "OperationsOutboxQueue198C9FF4",
        "PresenceMonitorInboxDeadLettersD1A8B4A1",
        "PresenceMonitorInboxQueue381B6762",
        "PresenceMonitorOutboxDeadLetters722FC78A",
        "PresenceMonitorOutboxQueue2914E9DC",
        "TapDeadLettersC3CC87B5",
        "TapQueue485D8905",
        "UrgentIngestDeadLetters539DFDF7",
        "UrgentIngestQueueD9CF68BA",
    ],
    "presence": [
        "DevicesTable92DD7FD2",
        "LifecycleDeadLettersD115D16E",
        "LifecycleQueue9FC4C1F4",
    ],
    "registry": [
        "ConnectionsDeadLetters6808E3E1",
        "ConnectionsQueueDDDDFB4A",
        "FleetTable4A611C9B",
    ],
}
"""Logical ids of what holds data. A changed one deletes the old resource with all that is in it: never edit
these to please the test; give the construct its old path back."""


def test_a_finding_of_cdk_nag_that_nobody_accepted_stops_the_synthesis(contract: Contract) -> None:
    app = cdk.App(context=NO_BUNDLING)
    archive, *_ = build(app, environment("dev"), contract)
    s3.Bucket(archive, "Careless")
    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        app.synth()


def test_stateful_resources_keep_their_logical_ids(templates: Templates) -> None:
    found = {str(each) for each in templates.of(*HOLDS_DATA)}
    known = {f"{stack}/{id}" for stack, ids in STATEFUL.items() for id in ids}
    assert known <= found


def test_stateful_resources_stay_when_production_is_deleted(prod: Templates, dev: Templates) -> None:
    for templates, deleted, replaced in (
        # What a first deployment made goes with it when it fails: its names would block the next one.
        (prod, "RetainExceptOnCreate", "Retain"),
        (dev, "Delete", "Delete"),
    ):
        for resource in templates.of(*HOLDS_DATA, "AWS::Logs::LogGroup"):
            assert resource.attributes["DeletionPolicy"] == deleted, str(resource)
            assert resource.attributes["UpdateReplacePolicy"] == replaced, str(resource)


def test_nothing_that_a_failed_first_deployment_made_keeps_its_name(templates: Templates) -> None:
    for resource in templates.of():
        assert resource.attributes.get("DeletionPolicy") != "Retain", str(resource)


def test_production_cannot_be_deleted_by_mistake(prod: Templates) -> None:
    assert prod.protected == {f"eventplane-prod-{stack}" for stack in STATEFUL}


def test_the_other_stacks_hold_no_data(templates: Templates) -> None:
    for resource in templates.of(*HOLDS_DATA):
        assert resource.stack in STATEFUL


INDEXES = {
    ("desired", "work"): ["work", "due_at_ms"],
    ("desired", PENDING_INDEX): ["thing", "due_at_ms"],
    ("presence", "due"): ["bucket", "due_ms"],
}


def test_a_table_is_paid_by_use_and_restorable_and_its_indexes_have_only_keys(templates: Templates) -> None:
    found = {}
    for table in templates.of("AWS::DynamoDB::Table"):
        assert table.find("BillingMode") == "PAY_PER_REQUEST"
        assert table.find("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}
        for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            for index in table.find(kind) or []:
                # What is idle costs nothing in them.
                assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
                name = table.find("TableName").split("-", 2)[2]
                found[name, index["IndexName"]] = [each["AttributeName"] for each in index["KeySchema"]]
    assert found == INDEXES


_UPLINK = (
    "SELECT encode(*, 'base64') AS data, topic() AS topic, clientid() AS clientid, "
    "principal() AS principal, timestamp() AS timestamp FROM 'devices/+/outbox'"
)

RULES = {
    "ingest": (_UPLINK, ["ingest", "tap", "ingest-errors"]),
    "ingest_urgent": (_UPLINK, ["ingest-urgent", "tap", "ingest-errors"]),
    "presence": ("SELECT * FROM '$aws/events/presence/+/#'", ["presence", "presence-dlq"]),
    "downlink": (
        "SELECT clientId AS subscribed FROM '$aws/events/subscriptions/subscribed/+'",
        ["downlink-work", "downlink-work-dlq"],
    ),
    "connections": (
        "SELECT clientId AS thing, principalIdentifier AS certificate "
        "FROM '$aws/events/presence/connected/+'",
        ["connections", "connections-dlq"],
    ),
}


def test_a_rule_is_pinned_and_has_an_error_action_and_a_role_for_each_queue(templates: Templates) -> None:
    rules = {each.find("RuleName").split("_", 2)[2]: each for each in templates.of("AWS::IoT::TopicRule")}
    assert set(rules) == set(RULES)
    for name, rule in rules.items():
        payload = rule.find("TopicRulePayload")
        assert payload["AwsIotSqlVersion"] == "2016-03-23"
        assert (payload["Sql"], queues_of(rule)) == RULES[name]
        roles = [json.dumps(each["Sqs"]["RoleArn"]) for each in (*payload["Actions"], payload["ErrorAction"])]
        assert len(set(roles)) == len(roles)


def test_every_log_has_an_end(templates: Templates) -> None:
    groups = templates.of("AWS::Logs::LogGroup")
    assert all(isinstance(group.find("RetentionInDays"), int) for group in groups)
    named = {group.find("LogGroupName") for group in groups}
    functions = templates.of("AWS::Lambda::Function")
    assert {f"/aws/lambda/{each.find('FunctionName')}" for each in functions} <= named
    assert all(each.find("LoggingConfig", "LogGroup") for each in functions)


def test_functions_run_on_the_one_python(templates: Templates) -> None:
    for function in templates.of("AWS::Lambda::Function"):
        assert function.find("Runtime") == "python3.11"
        assert len(function.find("Layers")) == 1


def test_every_function_is_named_in_its_metrics_and_untraced_by_default(
    templates: Templates,
) -> None:
    fed = {
        templates.function_behind(each, "FunctionName").find("FunctionName")
        for each in templates.of("AWS::Lambda::EventSourceMapping")
    }
    for function in templates.of("AWS::Lambda::Function"):
        assert function.find("TracingConfig") is None, str(function)
        variables = function.find("Environment", "Variables")
        assert variables["POWERTOOLS_SERVICE_NAME"] == function.find("FunctionName")
        assert ("EVENTPLANE_SOURCE_QUEUE" in variables) is (function.find("FunctionName") in fed)


def test_what_publishes_a_contract_finds_the_deployment(templates: Templates, contract: Contract) -> None:
    outputs = templates.outputs("routing")
    assert outputs["ContractVersion"] == contract.version
    functions = {each.find("FunctionName"): each for each in templates.of("AWS::Lambda::Function")}
    variables = functions[outputs["DeviceRouterFunction"]].find("Environment", "Variables")
    (table,) = (each for each in templates.of("AWS::DynamoDB::Table") if each.stack == "contract")
    assert variables["EVENTPLANE_CONTRACTS_TABLE"] == table.find("TableName")
    queues = json.loads(
        "".join(
            each if isinstance(each, str) else "x" for each in variables["EVENTPLANE_QUEUES"]["Fn::Join"][1]
        )
    )
    assert set(queues) == {each.address for each in cloud_destinations(contract)}


def test_functions_run_on_arm(prod: Templates) -> None:
    assert {str(each.find("Architectures")) for each in prod.of("AWS::Lambda::Function")} == {"['arm64']"}


@pytest.mark.parametrize(("machine", "runs_on"), [("x86_64", "x86_64"), ("aarch64", "arm64")])
def test_an_emulator_s_functions_run_on_its_own_machine(
    machine: str, runs_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture(environment("local")).name == runs_on
    assert architecture(environment("dev")).name == "arm64"


def test_the_routers_share_their_code(templates: Templates) -> None:
    routers = [each for each in templates.of("AWS::Lambda::Function") if "Router" in each.id]
    assert len({json.dumps(each.find("Code")) for each in routers}) == 1
    assert {each.find("Handler") for each in routers} == {"lambdas.router.handler.handle"}


PARAMETERS = {
    "delivery-audit": {"--OUTPUT", "--DATE", "--OUTBOX", "--WORK"},
    "audit-today": {"--OUTPUT", "--DATE", "--OUTBOX", "--WORK"},
    "compaction": {"--DATE", "--RAW_DAYS"},
    "erasure": set(),
}


def test_every_job_names_its_glue_its_workers_and_its_parameters(templates: Templates) -> None:
    jobs = {each.find("Name").split("-", 2)[2]: each for each in templates.of("AWS::Glue::Job")}
    # Only production audits the day so far.
    assert set(jobs) | {"audit-today"} == set(PARAMETERS)
    for name, job in jobs.items():
        assert (job.find("GlueVersion"), job.find("WorkerType")) == ("5.1", "G.1X")
        assert job.find("NumberOfWorkers") >= 2
        assert job.find("Timeout") > 0
        assert job.find("ExecutionProperty", "MaxConcurrentRuns") == 1
        own = {each for each in job.find("DefaultArguments") if each.isupper()}
        assert own == {"--INPUT"} | PARAMETERS[name]
        told = ("enable-auto-scaling", "enable-metrics", "enable-observability-metrics", "enable-spark-ui")
        assert {job.find("DefaultArguments", f"--{each}") for each in told} == {"true"}


def test_nobody_but_a_person_starts_an_erasure(templates: Templates) -> None:
    started = json.dumps([each.properties for each in templates.of("AWS::Glue::Trigger")])
    assert "erasure" not in started


def test_names_and_tags_carry_the_environment(templates: Templates) -> None:
    for stack, tags in templates.tags.items():
        assert stack.split("-")[1] == tags["environment"]
        assert tags["project"] == "eventplane"


@pytest.mark.parametrize(
    ("stack", "keys"),
    [
        ("archive", {"ArchiveBucket", "WorkBucket"}),
        ("routing", {"IngestRule", "DevicePolicy", "ContractVersion", "DeviceRouterFunction"}),
        ("presence", {"PresenceTable", "PresenceUrl", "PresenceDlqUrl"}),
        ("audit", {"DeliveryAuditJob", "CompactionJob", "ErasureJob", "CatalogDatabase"}),
        ("client", {"FilterTable", "SubscriptionsTable"}),
        ("registry", {"FleetTable"}),
        ("fleet", {"ProvisioningTemplate", "ClaimPolicy"}),
        ("messaging", {"ReplayUrl", "ReplayDlqUrl", "AuditOutboxUrl"}),
        ("messaging", {"IngestUrl", "IngestDlqUrl", "TapUrl", "TapDlqUrl", "IngestErrorsUrl"}),
        ("messaging", {"AlarmCentreInboxUrl", "AlarmCentreInboxDlqUrl", "AlarmCentreOutboxUrl"}),
    ],
)
def test_operators_find_what_they_need_in_the_outputs(
    templates: Templates, stack: str, keys: set[str]
) -> None:
    assert keys <= set(templates.outputs(stack))


def test_the_templates_name_no_account_region_or_machine(dev: Templates) -> None:
    text = json.dumps(dev.documents)
    for word in ("us-east-1", "000000000000", "localhost", "/tmp", "/home"):
        assert word not in text, word
