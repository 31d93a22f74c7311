"""What may do what: functions, rules, jobs, devices, participants."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from eventplane.contract import Contract, ParticipantKind
from eventplane.names import OWN_SERVICES
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from tests.infrastructure.templates import RULE, Resource, Templates, granted, joined, last_part, statements
from tests.infrastructure.templates import words as listed

ROLE = "AWS::IAM::Role"
IAM = (ROLE, "AWS::IAM::Policy")
THING = "${iot:Connection.Thing.ThingName}"

READ = {
    *("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
    *("sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
}
"""What every function may that a queue feeds."""

CONSUME = " ".join(sorted(READ))

_PRESENCE = [
    ("dynamodb:BatchGetItem dynamodb:PutItem", "table/presence"),
    ("sqs:SendMessage", "presence-timers"),
]
_JUDGE = [*_PRESENCE, ("sqs:SendMessage", "presence-monitor-outbox")]
_DOWNLINK = [
    ("dynamodb:GetItem dynamodb:PutItem dynamodb:DeleteItem", "table/desired"),
    ("dynamodb:Query", "table/desired table/desired/index/pending"),
    ("dynamodb:BatchGetItem", "table/presence"),
    ("iot:Publish", "topic/devices/*/inbox"),
    ("sqs:SendMessage", "device-inbox-dlq downlink-outbox downlink-work"),
]
_WHOLE_FLEET = ("dynamodb:GetItem dynamodb:Scan", "table/fleet")
_CONTRACT_IN_FORCE = [
    ("dynamodb:GetItem", "table/contracts"),
    ("dynamodb:Scan", "table/interest table/subscriptions"),
]
_WEBHOOK_KEY = ("secretsmanager:GetSecretValue", "subscribers-webhook-??????")

FUNCTIONS = {
    "discovery-api": _CONTRACT_IN_FORCE,
    "archive-writer": [
        (CONSUME, "tap"),
        ("s3:PutObject", "/quarantine/* /tap/*"),
        ("sqs:SendMessage", "presence"),
    ],
    "ledger-writer": [(CONSUME, "ledger"), ("s3:PutObject", "/contracts/* /ledger/*")],
    "ingest-errors": [(CONSUME, "ingest-errors"), ("sqs:SendMessage", "ingest ingest-urgent tap")],
    "presence-connections": [(CONSUME, "presence"), *_PRESENCE],
    "presence-heartbeats": [(CONSUME, "presence-monitor-inbox"), *_PRESENCE],
    "presence-timers": [(CONSUME, "presence-timers"), *_JUDGE],
    "presence-reconciler": [("dynamodb:Query", "table/presence/index/due"), *_JUDGE],
    "downlink-answers": [(CONSUME, "downlink-inbox"), *_DOWNLINK],
    # These find the devices of an event, or of a reset, in the whole fleet.
    "downlink-desired": [
        *((CONSUME, "device-inbox"), ("sqs:SendMessage", "device-inbox")),
        *(*_DOWNLINK, _WHOLE_FLEET),
    ],
    "downlink-due": [(CONSUME, "downlink-work"), *_DOWNLINK, _WHOLE_FLEET],
    "downlink-reconciler": [
        *(*_DOWNLINK, ("dynamodb:GetItem", "table/fleet")),
        ("dynamodb:Query", "table/desired/index/work"),
    ],
    "subscriptions-api": [
        *(*_CONTRACT_IN_FORCE, _WEBHOOK_KEY),
        ("dynamodb:GetItem dynamodb:Query dynamodb:PutItem dynamodb:DeleteItem", "table/subscriptions"),
    ],
    "subscribers": [
        *((CONSUME, "subscribers-inbox"), ("sqs:SendMessage", "subscribers-inbox-dlq subscribers-outbox")),
        *(_WEBHOOK_KEY, ("s3:PutObject", "/handovers/*"), ("dynamodb:Scan", "table/subscriptions")),
    ],
    "provisioning-hook": [("dynamodb:GetItem dynamodb:PutItem", "table/fleet")],
    "certificate-keeper": [
        (f"{CONSUME} sqs:SendMessage", "connections"),
        ("dynamodb:GetItem dynamodb:PutItem", "table/fleet"),
        ("iot:UpdateCertificate iot:DetachThingPrincipal", "cert/*"),
        ("iot:DetachThingPrincipal", "thing/*"),
    ],
    "fleet-snapshot": [("dynamodb:Scan", "table/fleet"), ("s3:PutObject", "/fleet/*")],
    "canary": [
        ("iot:Connect", "client/+canary"),
        ("iot:Publish", "topic/$aws/rules/eventplane_dev_ingest_urgent/devices/canary/outbox"),
        # The first two have no resources to name.
        ("iot:DescribeEndpoint sqs:ListQueues", "*"),
        ("sqs:GetQueueAttributes", "eventplane-dev-*"),
        ("sqs:ReceiveMessage sqs:DeleteMessage", "canary-inbox"),
    ],
}
"""All that each function may do, and to what; routers and the replay have tests of their own."""

OPTIONAL = {
    # Only where devices send up what the cloud wants.
    "uplink-interest": [
        ("dynamodb:GetItem", "table/contracts table/desired"),
        ("dynamodb:PutItem", "table/desired"),
        ("dynamodb:Scan", "table/subscriptions"),
        ("sqs:SendMessage", "operations-outbox"),
    ],
    "webhook-alarm-centre": [
        (CONSUME, "alarm-centre-inbox"),
        ("s3:PutObject", "/handovers/*"),
        ("secretsmanager:GetSecretValue", "alarm-centre-webhook-??????"),
        ("sqs:SendMessage", "alarm-centre-outbox alarm-centre-inbox-dlq"),
    ],
}
"""The same of functions that a contract or an environment asks for."""

WRITTEN = ('-inbox"]]}', '-replies"]]}', '-inbox.fifo"]]}', '-replies.fifo"]]}', '-dev-ledger"]]}')
"""How the queues end that a router may write to."""


def permissions(rows: list[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for actions, targets in rows:
        for action in actions.split():
            found.setdefault(action, set()).update(targets.split())
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_it_does_and_nothing_else(dev: Templates, name: str) -> None:
    assert dev.may(dev.functions[name]) == permissions(FUNCTIONS[name])


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_function_is_there_on_demand_and_may_do_what_it_does(
    dev: Templates, full: Templates, name: str
) -> None:
    may = full.may(full.functions[name])
    # With tracing each function may send its segments.
    assert may.pop("xray:PutTraceSegments") == may.pop("xray:PutTelemetryRecords") == {"*"}
    assert may == permissions(OPTIONAL[name])
    assert name not in json.dumps(dev.documents)


def test_no_function_is_missing_in_the_table_of_permissions(full: Templates) -> None:
    names = {each for each in full.functions if not each.startswith("router-")}
    assert names == {*FUNCTIONS, *OPTIONAL, "replay"}


FOLDERS = {
    "LedgerWriter": "ledger contracts",
    "Router": "ledger contracts",
    "Replay": "tap ledger contracts",
    "ArchiveWriter": "tap quarantine",
    "DeliveryAudit": ("tap ledger handovers contracts fleet audit compacted published compactions erasures"),
    "Compaction": "tap ledger handovers compacted published compactions",
    "Subscribers": "handovers",
    "Erasure": "tap ledger handovers quarantine fleet compacted audit erasures contracts",
}
"""The folders of the archive that each may use."""


def test_no_permission_has_a_wildcard_but_the_archive_folders(templates: Templates) -> None:
    for resource in templates.of(*IAM):
        if resource.stack == "fleet" or resource.id.startswith("CanaryFunction"):
            continue  # their rows of FUNCTIONS, and the test of the provisioning role
        for statement in statements(resource):
            assert statement["Effect"] == "Allow"
            if statement["Action"] == "cloudwatch:PutMetricData":
                continue  # the test of jobs
            for action in listed(statement["Action"]):
                assert "*" not in action, (str(resource), action)
            for target in listed(statement.get("Resource", [])):
                assert "*" not in target or wildcard_is_known(resource, target), (str(resource), target)


def wildcard_is_known(resource: Resource, target: str) -> bool:
    if target == "*":
        return False
    end = json.loads(target)["Fn::Join"][1][-1]
    if resource.id.startswith("RolloutPolicy"):
        # tests/infrastructure/test_rollout.py
        return bool(re.fullmatch(r":(cloudwatch:.*)?alarm:\*|:(lambda:.*)?function:[a-z0-9-]+:\*", end))
    folder = end.split("/", 1)[1]
    if resource.stack == "audit" and re.fullmatch(r"(event-logs|work)/eventplane-[a-z-]+/\*", folder):
        return True  # a job's own in the work bucket
    if folder == "devices/*/inbox":
        return resource.id.startswith("Downlink")
    return any(
        owner in resource.id and folder.removesuffix("/*") in folders.split()
        for owner, folders in FOLDERS.items()
    )


def test_a_job_may_write_metrics_of_glue_and_no_others(templates: Templates) -> None:
    roles = templates.of(ROLE, stack="audit")
    assert len(roles) == len(templates.of("AWS::Glue::Job"))
    for role in roles:
        (metrics,) = (each for each in statements(role) if each["Action"] == "cloudwatch:PutMetricData")
        assert metrics["Resource"] == "*"
        assert metrics["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Glue"}}


def without_log(templates: Templates, role: str) -> dict[str, list[str]]:
    may = granted(templates, templates.one(ROLE, role))
    return {action: each for action, each in may.items() if not action.startswith("logs:")}


def test_the_replay_may_read_the_tap_and_write_inboxes_and_nothing_else(dev: Templates) -> None:
    may = without_log(dev, "ReplayRole")
    assert set(may) - READ == {
        *("sqs:SendMessage", "dynamodb:GetItem", "dynamodb:Scan"),
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket"),
    }
    assert all(each.endswith(WRITTEN) for each in may["sqs:SendMessage"])
    folders = {
        action: {each.split("/")[-2] for each in may[action]} for action in ("s3:GetObject", "s3:PutObject")
    }
    assert folders == {"s3:GetObject": {"tap", "contracts"}, "s3:PutObject": {"ledger", "contracts"}}


def test_a_router_may_write_inboxes_and_read_contracts_and_nothing_else(
    dev: Templates, contract: Contract
) -> None:
    roles = [each for each in dev.of(ROLE) if "RouterRole" in each.id]
    # One a lane, one a cloud service.
    assert len(roles) == 2 + len(list(contract.of_kind(ParticipantKind.CLOUD_SERVICE)))
    for role in roles:
        may = without_log(dev, role.id)
        assert set(may) - READ == {"sqs:SendMessage", "s3:PutObject", "dynamodb:GetItem", "dynamodb:Scan"}
        subscriptions, interest = may["dynamodb:Scan"]
        assert "table/eventplane-dev-subscriptions" in subscriptions
        assert "table/eventplane-dev-interest" in interest
        assert all("table/eventplane-dev-contracts" in target for target in may["dynamodb:GetItem"])
        (source,) = may["sqs:ChangeMessageVisibility"]
        assert source.endswith(('ingest"]]}', 'ingest-urgent"]]}', '-outbox"]]}'))
        assert all(each.endswith(WRITTEN) for each in may["sqs:SendMessage"]), may


def test_only_routers_replay_and_its_own_reader_write_the_inbox_of_devices(templates: Templates) -> None:
    """Its reader sends itself the rest of an event for many: no participant can put such a message there."""
    writers = {
        each.id
        for each in templates.of(*IAM, "AWS::IAM::ManagedPolicy")
        for statement in statements(each)
        if statement["Effect"] == "Allow"
        if any(fnmatchcase("sqs:SendMessage", action) for action in listed(statement["Action"]))
        if any('-device-inbox"' in each or "*" in each for each in listed(statement.get("Resource", "")))
    }
    own = {each for each in writers if "RouterRole" not in each}
    assert own < writers
    assert {each.rstrip("0123456789ABCDEF") for each in own} == {"DownlinkDesiredRole", "ReplayRole"}
    # Nor does the queue let anybody in by a policy of its own.
    policies = templates.of("AWS::SQS::QueuePolicy")
    inboxes = [each for each in policies if "DeviceInbox" in json.dumps(each.find("Queues"))]
    assert {statement["Effect"] for each in inboxes for statement in statements(each)} <= {"Deny"}


def test_the_audit_may_send_its_verdict_and_write_to_no_other_queue(dev: Templates) -> None:
    (target,) = without_log(dev, "DeliveryAuditRole")["sqs:SendMessage"]
    assert target.endswith(':eventplane-dev-audit-outbox"]]}')
    arguments = dev.one("AWS::Glue::Job", "delivery-audit").find("DefaultArguments")
    assert "eventplane-dev-audit-outbox" in json.dumps(arguments["--OUTBOX"])


def test_only_the_erasure_may_delete_permanently(templates: Templates) -> None:
    able = {
        role.id
        for role in templates.of(*IAM)
        for statement in statements(role)
        if "s3:DeleteObjectVersion" in listed(statement["Action"])
    }
    assert [each.startswith("ErasureRole") for each in able] == [True]


def test_the_compaction_may_delete_raw_objects_and_never_write_them(dev: Templates) -> None:
    role = dev.one(ROLE, "CompactionRole")
    actions = {
        action
        for statement in statements(role)
        if any(f'"/{folder}/*"' in json.dumps(statement) for folder in ("tap", "ledger", "handovers"))
        for action in listed(statement["Action"])
    }
    assert actions == {"s3:GetObject", "s3:DeleteObject"}
    assert not [each for each in granted(dev, role) if "Tagging" in each]


def test_no_function_may_publish_a_contract_and_no_role_has_a_managed_policy(templates: Templates) -> None:
    for role in templates.of(*IAM):
        assert not role.find("ManagedPolicyArns"), str(role)
        for statement in statements(role):
            if "-contracts" in json.dumps(statement.get("Resource", "")):
                assert listed(statement["Action"]) == ["dynamodb:GetItem"], str(role)


def managed_policies(templates: Templates, stack: str) -> dict[str, list[dict[str, Any]]]:
    """The statements of the policies of participants' programs, by their name."""
    policies = templates.of("AWS::IAM::ManagedPolicy", stack=stack)
    return {each.name: list(statements(each)) for each in policies}


@pytest.fixture(scope="module")
def participants(contract: Contract) -> set[str]:
    """The cloud services but the plane's own: whoever had their policies could take what they read."""
    return {each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)} - OWN_SERVICES


def test_a_participants_program_may_use_its_own_queues_and_items_and_nothing_else(
    dev: Templates, contract: Contract, participants: set[str]
) -> None:
    policies = managed_policies(dev, "client")
    assert set(policies) == {f"{each}-client" for each in participants}
    for name in participants:
        asks = bool(contract.participants[name].asks)
        shared = ["filter", "subscriptions", "interest", *(["contracts"] if asks else [])]
        own = [f"eventplane-dev-{each}" for each in (f"{name}-", *shared)]
        keys = []
        for statement in policies[f"{name}-client"]:
            assert statement["Effect"] == "Allow"
            for target in listed(statement["Resource"]):
                assert any(each in target for each in own), target
                assert "*" not in target
            actions = {each for each in listed(statement["Action"]) if each.startswith("dynamodb:")}
            if asks and "Condition" not in statement:
                # Whoever asks has to know who is to answer.
                assert actions <= {"dynamodb:GetItem", "dynamodb:Scan"}
            elif actions:
                assert "dynamodb:Scan" not in actions
                keys += listed(statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"])
        assert keys == [f"{name}/*", name, name]


def test_a_participant_may_call_its_own_paths_of_the_subscriptions_api(
    dev: Templates, participants: set[str]
) -> None:
    policies = managed_policies(dev, "subscriptions")
    assert set(policies) == {f"{name}-subscriptions" for name in participants}
    for name in participants:
        (statement,) = policies[f"{name}-subscriptions"]
        assert statement["Action"] == "execute-api:Invoke"
        path = f"/$default/*/participants/{name}/subscriptions"
        assert [each["Fn::Join"][1][-1] for each in statement["Resource"]] == [path, f"{path}/*"]
    inboxes = joined(dev.functions["subscriptions-api"].variables["EVENTPLANE_INBOXES"])
    assert set(json.loads(inboxes)) == participants


def test_every_route_of_an_api_wants_a_signature_and_requests_are_bounded_and_logged(dev: Templates) -> None:
    routes = dev.of("AWS::ApiGatewayV2::Route")
    assert {each.stack for each in routes} == {"discovery", "subscriptions"}
    assert {each.find("AuthorizationType") for each in routes} == {"AWS_IAM"}
    for stage in dev.of("AWS::ApiGatewayV2::Stage"):
        limits = stage.find("DefaultRouteSettings")
        assert 0 < limits["ThrottlingRateLimit"] <= limits["ThrottlingBurstLimit"]
        assert {"user", "status", "path"} < json.loads(stage.find("AccessLogSettings", "Format")).keys()
        groups = dev.of("AWS::Logs::LogGroup", stack=stage.stack)
        (log,) = (each for each in groups if "vendedlogs" in each.find("LogGroupName"))
        assert log.find("RetentionInDays") == 7


def test_only_the_emulator_gets_the_action_unknown_to_aws(templates: Templates, local: Templates) -> None:
    assert ("sqs:SendMessageBatch" in json.dumps(templates.documents)) is (templates is local)


def test_every_iot_role_is_lent_to_the_rule_that_uses_it_only(templates: Templates) -> None:
    uses = {
        action["Sqs"]["RoleArn"]["Fn::GetAtt"][0]: rule.find("RuleName")
        for rule in templates.of(RULE)
        for payload in [rule.find("TopicRulePayload")]
        for action in (*payload["Actions"], payload["ErrorAction"])
    }
    roles = [each for each in templates.of(ROLE) if "iot.amazonaws.com" in json.dumps(each.properties)]
    roles = [each for each in roles if not each.id.startswith("Provisioning")]
    assert {each.id for each in roles} == set(uses)
    for role in roles:
        (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
        assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        rule = json.dumps(trust["Condition"]["ArnEquals"]["aws:SourceArn"]).split(":rule/")[1]
        assert rule.strip('"]} ') == uses[role.id]
        assert len(list(statements(role))) == 2


def policy_statements(templates: Templates, name: str) -> list[dict[str, Any]]:
    (policy,) = (each for each in templates.of("AWS::IoT::Policy") if each.name == name)
    return list(statements(policy))


def test_a_device_is_bound_to_the_thing_of_its_certificate(templates: Templates) -> None:
    allowed = policy_statements(templates, "device")
    text = {each["Action"]: json.dumps(each["Resource"]) for each in allowed}
    rules = [each.find("RuleName") for each in templates.of(RULE) if each.name.startswith("ingest")]
    assert set(text) == {"iot:Connect", "iot:Publish", "iot:Subscribe", "iot:Receive"}
    assert f":client/{THING}" in text["iot:Connect"]
    for rule in rules:
        assert f":topic/$aws/rules/{rule}/devices/{THING}/outbox" in text["iot:Publish"]
    assert text["iot:Publish"].count("topic/") == len(rules)
    assert f":topicfilter/devices/{THING}/inbox" in text["iot:Subscribe"]
    assert f":topic/devices/{THING}/inbox" in text["iot:Receive"]
    for statement in allowed:
        # It trusts nothing that a client says of itself.
        assert statement["Effect"] == "Allow"
        assert "iot:ClientId" not in json.dumps(statement)
        assert "*" not in json.dumps(statement)
    (connect,) = (each for each in allowed if each["Action"] == "iot:Connect")
    assert connect["Condition"] == {"Bool": {"iot:Connection.Thing.IsAttached": "true"}}


REQUESTS = {
    "$aws/certificates/create/json",
    "$aws/certificates/create-from-csr/json",
    "$aws/provisioning-templates/eventplane-dev-fleet/provision/json",
}
ANSWERS = {f"{topic}/{word}" for topic in REQUESTS for word in ("accepted", "rejected")}


@pytest.mark.parametrize(
    ("name", "prefix"), [("claim", CLAIM_CLIENT_PREFIX), ("renewal", RENEWAL_CLIENT_PREFIX)]
)
def test_claim_and_renewal_may_ask_for_a_certificate_and_do_nothing_else(
    dev: Templates, name: str, prefix: str
) -> None:
    allowed = {
        # Without the part that names the account.
        each["Action"]: {target["Fn::Join"][1][-1].split(":", 1)[1] for target in each["Resource"]}
        for each in policy_statements(dev, name)
    }
    assert allowed == {
        "iot:Connect": {f"client/{prefix}*"},
        "iot:Publish": {f"topic/{each}" for each in REQUESTS},
        "iot:Subscribe": {f"topicfilter/{each}" for each in ANSWERS},
        "iot:Receive": {f"topic/{each}" for each in ANSWERS},
    }


def test_a_quarantine_denies_everything(dev: Templates) -> None:
    assert policy_statements(dev, "quarantine") == [{"Effect": "Deny", "Action": "iot:*", "Resource": "*"}]


def test_the_provisioning_role_registers_devices_and_is_lent_to_this_accounts_iot_only(
    dev: Templates,
) -> None:
    role = dev.one(ROLE, "ProvisioningRole")
    may: dict[str, set[str]] = {}
    for action, targets in granted(dev, role).items():
        for each in targets:
            may.setdefault(last_part(each), set()).add(action.removeprefix("iot:"))
    assert may == {
        "thing/*": {"CreateThing", "DescribeThing", "UpdateThing", "AttachThingPrincipal"},
        "cert/*": {"AttachThingPrincipal", "DescribeCertificate", "UpdateCertificate", "AttachPolicy"},
    }
    (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
    assert trust["Principal"] == {"Service": "iot.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
