"""Rules for whole stacks: stable names, kept data, logs that end, outputs for operators."""

import json
import platform
from datetime import UTC, datetime

import pytest

from eventplane.contract import Contract, ParticipantKind
from eventplane.contract.publication import CONTRACTS_TABLE, cloud_destinations
from eventplane.downlink.table import PENDING_INDEX
from eventplane.function_settings import RouterSettings
from eventplane.resource_names import OWNER, RECEIPTS_OUTPUT, resource_name
from eventplane.settings import written
from glue_jobs.compaction import main as compaction
from glue_jobs.delivery_audit import main as delivery_audit
from glue_jobs.erasure import main as erasure
from lambdas.router.wiring import Channels
from stacks.config import environment
from stacks.constructs.function_assets import architecture
from stacks.preflight import PROTECTED
from tests.infrastructure.templates import FUNCTION, QUEUE, RULE, Resource, Templates, joined

TABLE = "AWS::DynamoDB::Table"
HOLDS_DATA = ("AWS::S3::Bucket", QUEUE, TABLE)

STATEFUL = {
    "archive": "ArchiveBucket49F1AC64",
    "client": "TablesFilter10F4261B TablesSubscriptionsEF5802C5",
    "contract": "ContractsTable31B99448",
    "downlink": "DesiredTableFF14343F WorkDeadLetters7D6F983C WorkQueue1CAC4D2F",
    "messaging": (
        "AlarmCentreInboxDeadLetters3FA7CB90 AlarmCentreInboxQueue14D5C406 "
        "AlarmCentreOutboxDeadLetters884AD33C AlarmCentreOutboxQueueC07EE64E "
        "CareAnalyticsInboxDeadLetters98AF58E6 CareAnalyticsInboxQueue79B6961F "
        "CareAnalyticsOutboxDeadLetters9ACDCE8E CareAnalyticsOutboxQueue6EFC2E2F "
        "CarersInboxDeadLetters7289F2FE CarersInboxQueue6B42A645 "
        "CarersOutboxDeadLetters13635497 CarersOutboxQueueCE030BA3 "
        "DeviceInboxDeadLettersABC3964A DeviceInboxQueueDD173DD8 "
        "DownlinkInboxDeadLetters29BA75BC DownlinkInboxQueue47EDC989 "
        "DownlinkOutboxDeadLetters71224B18 DownlinkOutboxQueue5FBF3D6D EndpointsTable1F54A679 "
        "FamilyAppInboxDeadLetters002F4C4B FamilyAppInboxQueueA2F44A8F "
        "FamilyAppOutboxDeadLetters48A0134F FamilyAppOutboxQueueDDA3327C "
        "IngestDeadLetters1228E37E IngestQueue95F6DB49 "
        "IngestErrorsDeadLettersD74B50C0 IngestErrorsQueue9D8B69F6 "
        "OperationsInboxDeadLetters8C3F0B11 OperationsInboxQueueC92C87EC "
        "OperationsOutboxDeadLettersBFE1C537 OperationsOutboxQueue198C9FF4 "
        "PresenceMonitorInboxDeadLettersD1A8B4A1 PresenceMonitorInboxQueue381B6762 "
        "PresenceMonitorOutboxDeadLetters722FC78A PresenceMonitorOutboxQueue2914E9DC "
        "TapDeadLettersC3CC87B5 TapQueue485D8905 "
        "UrgentIngestDeadLetters539DFDF7 UrgentIngestQueueD9CF68BA"
    ),
    "presence": "DevicesTable92DD7FD2 LifecycleDeadLettersD115D16E LifecycleQueue9FC4C1F4",
    "registry": "ConnectionsDeadLetters6808E3E1 ConnectionsQueueDDDDFB4A FleetTable4A611C9B",
}
"""Logical ids of what holds data. A changed one deletes the old resource with all that is in it: never edit
these to please the test; give the construct its old path back."""


def test_cdk_nag_has_checked_every_stack(templates: Templates) -> None:
    # A finding that nobody accepted ends the synthesis.
    (report,) = json.loads((templates.directory / "validation-report.json").read_text())["pluginReports"]
    assert (report["pluginName"], report["conclusion"]) == ("AwsSolutions", "success")


def test_stateful_resources_keep_their_logical_ids(templates: Templates) -> None:
    found = {str(each) for each in templates.of(*HOLDS_DATA)}
    assert found >= {f"{stack}/{id}" for stack, ids in STATEFUL.items() for id in ids.split()}
    # What SNS cannot deliver is no data of the plane's.
    assert {each.stack for each in templates.of(*HOLDS_DATA)} - {"monitoring"} == set(STATEFUL)


def test_a_second_plane_of_an_account_fails_at_its_first_stack(templates: Templates) -> None:
    (owner,) = templates.of("AWS::SSM::Parameter")
    assert (owner.stack, owner.find("Name")) == ("contract", OWNER)
    assert owner.find("Value") == templates.environment.name
    assert {name for name, others in templates.needs.items() if not others} <= {"contract", "costs"}


@pytest.mark.parametrize("plane", ["prod", "guarded", "full"])
def test_no_fixed_name_blocks_the_next(request: pytest.FixtureRequest, plane: str) -> None:
    """CloudFormation rolls a resource back unless its policy or a protection keeps it; those go before."""
    templates: Templates = request.getfixturevalue(plane)
    named = [
        each
        for each in templates.of()
        if any(
            key.endswith("Name") and each.type.endswith(key.removesuffix("Name")) for key in each.properties
        )
        or "Name" in each.properties
    ]
    assert {"AWS::Logs::LogGroup", "AWS::SQS::Queue", "AWS::SecretsManager::Secret"} <= {
        each.type for each in named
    }
    for each in named:
        assert each.attributes.get("DeletionPolicy") in (None, "Delete", "RetainExceptOnCreate"), str(each)
        is_protected = any("DeletionProtection" in key and each.properties[key] for key in each.properties)
        assert not is_protected or each.type == PROTECTED, str(each)


def test_only_production_keeps_data_when_it_is_deleted(templates: Templates, prod: Templates) -> None:
    # What a first deployment made goes with it when it fails: its names would block the next one.
    kept = ("RetainExceptOnCreate", "Retain") if templates is prod else ("Delete", "Delete")
    for resource in templates.of(*HOLDS_DATA, "AWS::Logs::LogGroup"):
        if resource.type == QUEUE and resource.stack == "monitoring":
            continue
        policies = resource.attributes["DeletionPolicy"], resource.attributes["UpdateReplacePolicy"]
        assert policies == kept, str(resource)
    assert not [each for each in templates.of() if each.attributes.get("DeletionPolicy") == "Retain"]
    protected = {f"eventplane-prod-{stack}" for stack in STATEFUL} if templates is prod else set()
    assert templates.protected == protected


INDEXES = {
    ("desired", "work"): ["work", "due_at_ms"],
    ("desired", PENDING_INDEX): ["thing", "due_at_ms"],
    ("presence", "due"): ["bucket", "due_ms"],
    ("presence", "standing"): ["standing", "standing_ms"],
}


def test_tables_are_paid_by_use_and_restorable(templates: Templates) -> None:
    found = {}
    for table in templates.of(TABLE):
        assert table.find("BillingMode") == "PAY_PER_REQUEST"
        assert table.find("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}
        for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            for index in table.find(kind) or []:
                # What is idle costs nothing in them.
                assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
                found[table.name, index["IndexName"]] = [each["AttributeName"] for each in index["KeySchema"]]
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
    "takeovers": (
        "SELECT clientId AS thing, disconnectReason AS cause, principalIdentifier AS certificate "
        "FROM '$aws/events/presence/disconnected/+' WHERE disconnectReason = 'DUPLICATE_CLIENTID'",
        ["connections", "connections-dlq"],
    ),
}
"""The SQL of each rule of IoT Core, and the queues that it sends to, the one of its error action last."""


def test_a_rule_is_pinned_with_its_roles(templates: Templates) -> None:
    rules = {each.name: each.find("TopicRulePayload") for each in templates.of(RULE)}
    assert set(rules) == set(RULES)
    for name, payload in rules.items():
        assert payload["AwsIotSqlVersion"] == "2016-03-23"
        actions = [each["Sqs"] for each in (*payload["Actions"], payload["ErrorAction"])]
        urls = [json.dumps(each["QueueUrl"]) for each in actions]
        queues = [each.rsplit("/eventplane-", 1)[-1].split("-", 1)[1].strip('"]} ') for each in urls]
        assert (payload["Sql"], queues) == RULES[name]
        assert len({json.dumps(each["RoleArn"]) for each in actions}) == len(actions)


def test_every_log_has_an_end_and_every_function_has_one(templates: Templates) -> None:
    groups = templates.of("AWS::Logs::LogGroup")
    assert all(isinstance(group.find("RetentionInDays"), int) for group in groups)
    named = {group.find("LogGroupName") for group in groups}
    functions = templates.of(FUNCTION)
    assert {f"/aws/lambda/{each.find('FunctionName')}" for each in functions} <= named
    assert all(each.find("LoggingConfig", "LogGroup") for each in functions)


def test_functions_share_one_python(templates: Templates, local: Templates) -> None:
    fed = {templates.function_behind(each, "FunctionName").name for each in templates.mappings.values()}
    for name, function in templates.functions.items():
        assert function.find("Runtime") == ("python3.11" if templates is local else "python3.13")
        assert len(function.find("Layers")) == 1
        assert templates is local or function.find("Architectures") == ["arm64"]
        assert function.find("TracingConfig") is None
        assert function.variables["POWERTOOLS_SERVICE_NAME"] == function.find("FunctionName")
        assert ("EVENTPLANE_SOURCE_QUEUE" in function.variables) is (name in fed)
        assert "EVENTPLANE_OTLP_ENDPOINT" not in function.variables


@pytest.mark.parametrize(("machine", "runs_on"), [("x86_64", "x86_64"), ("aarch64", "arm64")])
def test_an_emulator_uses_its_machine(machine: str, runs_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture(environment("local")).name == runs_on
    assert architecture(environment("dev")).name == "arm64"


def test_the_routers_share_their_code(templates: Templates) -> None:
    routers = [each for each in templates.of(FUNCTION) if "Router" in each.id]
    assert len({json.dumps(each.find("Code")) for each in routers}) == 1
    assert {each.find("Handler") for each in routers} == {"lambdas.router.handler.handle"}


def test_who_publishes_a_contract_finds_the_deployment(templates: Templates, contract: Contract) -> None:
    outputs = templates.outputs("routing")
    assert outputs["ContractVersion"] == contract.version
    settings = templates.functions["router-device"].settings(RouterSettings)
    inboxes = Channels.of(settings, contract).inboxes
    assert set(inboxes) == {each.address for each in cloud_destinations(contract)}
    assert inboxes["carers.replies"].endswith(f"/eventplane-{templates.environment.name}-carers-replies")
    assert json.loads(joined(outputs["Inboxes"])) == json.loads(written(inboxes))
    with_receipts = {each.address for each in cloud_destinations(contract) if each.asks_for_receipts}
    assert {*outputs[RECEIPTS_OUTPUT].split(",")} == with_receipts != set()
    (table,) = templates.of(TABLE, stack="contract")
    name = resource_name(templates.environment.name, CONTRACTS_TABLE)
    assert settings.contracts_table == table.find("TableName") == name


PARAMETERS = {
    "delivery-audit": {"--OUTPUT", "--DATE", "--METRICS", "--OUTBOX", "--WORK"},
    "audit-today": {"--OUTPUT", "--DATE", "--METRICS", "--OUTBOX", "--WORK"},
    "compaction": {"--DATE", "--METRICS", "--RAW_DAYS"},
    "erasure": set(),
}
UNKNOWN = {"--OUTBOX": "https://sqs.us-east-1.amazonaws.com/1/outbox"}
"""For what only a deployed account knows; else it is a place in a bucket."""


def read(job: str, words: list[str]) -> object:
    """Read the arguments of a job as it does."""
    if job == "compaction":
        return compaction.read_arguments(words, datetime(2026, 3, 1, tzinfo=UTC))
    if job == "erasure":
        return erasure.read_arguments([*words, "--SOURCE", "//home-1/"])
    return delivery_audit.read_arguments(words)


def test_every_job_names_its_glue_its_workers_and_its_parameters(templates: Templates) -> None:
    jobs = {each.name: each for each in templates.of("AWS::Glue::Job")}
    # Only production audits the day so far.
    assert set(jobs) | {"audit-today"} == set(PARAMETERS)
    for name, job in jobs.items():
        assert (job.find("GlueVersion"), job.find("WorkerType")) == ("5.1", "G.1X")
        assert job.find("NumberOfWorkers") >= 2
        assert job.find("Timeout") > 0
        assert job.find("ExecutionProperty", "MaxConcurrentRuns") == 1
        given = job.find("DefaultArguments")
        common = {"--INPUT", "--ATTESTATION_KEY"}
        assert {each for each in given if each.isupper()} == common | PARAMETERS[name]
        words = {each: value for each, value in given.items() if each.isupper()}
        known = {each: value for each, value in words.items() if isinstance(value, str)}
        others = {each: UNKNOWN.get(each, "s3://archive/") for each in words.keys() - known}
        assert read(name, [word for pair in (known | others).items() for word in pair])
        told = ("enable-auto-scaling", "enable-metrics", "enable-observability-metrics", "enable-spark-ui")
        assert {given[f"--{each}"] for each in told} == {"true"}


def test_only_a_person_starts_an_erasure(templates: Templates) -> None:
    assert "erasure" not in json.dumps([each.properties for each in templates.of("AWS::Glue::Trigger")])


def tags(resource: Resource) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in resource.find("Tags") or []}


def test_names_and_tags_are_distinct(templates: Templates, contract: Contract) -> None:
    name = templates.environment.name
    for stack, given in templates.tags.items():
        assert (stack.split("-")[1], given["environment"], given["project"]) == (name, name, "eventplane")
    of: dict[str, set[str]] = {}
    for each in templates.of(FUNCTION, *HOLDS_DATA):
        assert tags(each)["plane"] == f"eventplane-{name}", str(each)
        of.setdefault(tags(each).get("participant", ""), set()).add(each.name.removesuffix(".fifo"))
    for service in contract.of_kind(ParticipantKind.CLOUD_SERVICE):
        boxes = {f"{service.name}-{box}" for box in ("inbox", "inbox-dlq", "outbox", "outbox-dlq")}
        assert boxes <= of[service.name]
    assert {"router-device", "router-device-urgent"} <= of["device"]


OUTPUTS = {
    "archive": "ArchiveBucket WorkBucket",
    "routing": "IngestRule DevicePolicy ContractVersion Inboxes",
    "presence": "PresenceTable PresenceUrl",
    "audit": "DeliveryAuditJob CompactionJob ErasureJob CatalogDatabase",
    "client": "FilterTable SubscriptionsTable",
    "registry": "FleetTable",
    "fleet": "ProvisioningTemplate ClaimPolicy",
    "messaging": (
        "ReplayUrl AuditOutboxUrl IngestUrl TapUrl IngestErrorsUrl AlarmCentreInboxUrl AlarmCentreOutboxUrl"
    ),
}


@pytest.mark.parametrize("stack", OUTPUTS)
def test_operators_find_what_they_need_in_the_outputs(templates: Templates, stack: str) -> None:
    assert set(OUTPUTS[stack].split()) <= set(templates.outputs(stack))


def test_the_templates_name_no_account_region_or_machine(dev: Templates) -> None:
    text = json.dumps(dev.documents)
    for word in ("us-east-1", "000000000000", "localhost", "/tmp", "/home"):
        assert word not in text, word
