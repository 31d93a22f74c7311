"""What may do what: functions, rules, the audit, devices."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from eventplane.contract import Contract, ParticipantKind
from eventplane.names import OWN_SERVICES
from tests.infrastructure.templates import Resource, Templates, granted, statements, words

IAM = ("AWS::IAM::Role", "AWS::IAM::Policy")
THING = "${iot:Connection.Thing.ThingName}"

READ = {
    *("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"),
    *("sqs:GetQueueAttributes", "sqs:GetQueueUrl"),
    *("logs:CreateLogStream", "logs:PutLogEvents"),
}
"""What every function may that a queue feeds."""

CONSUME = " ".join(sorted(each for each in READ if each.startswith("sqs:")))

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
_CONTRACT_IN_FORCE = [
    ("dynamodb:GetItem", "table/contracts"),
    ("dynamodb:Scan", "table/interest table/subscriptions"),
]

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
        *_DOWNLINK,
        ("dynamodb:GetItem dynamodb:Scan", "table/fleet"),
    ],
    "downlink-due": [
        (CONSUME, "downlink-work"),
        *_DOWNLINK,
        ("dynamodb:GetItem dynamodb:Scan", "table/fleet"),
    ],
    "downlink-reconciler": [
        *_DOWNLINK,
        ("dynamodb:GetItem", "table/fleet"),
        ("dynamodb:Query", "table/desired/index/work"),
    ],
    "subscriptions-api": [
        *_CONTRACT_IN_FORCE,
        (
            "dynamodb:GetItem dynamodb:Query dynamodb:PutItem dynamodb:DeleteItem",
            "table/subscriptions",
        ),
        ("secretsmanager:GetSecretValue", "subscribers-webhook-??????"),
    ],
    "subscribers": [
        (CONSUME, "subscribers-inbox"),
        ("sqs:SendMessage", "subscribers-inbox-dlq subscribers-outbox"),
        ("secretsmanager:GetSecretValue", "subscribers-webhook-??????"),
        ("s3:PutObject", "/handovers/*"),
        ("dynamodb:Scan", "table/subscriptions"),
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

WRITTEN = ('-inbox"]]}', '-replies"]]}', '-inbox.fifo"]]}', '-replies.fifo"]]}', '-dev-ledger"]]}')
"""How the queues end that a router may write to."""

FOLDERS = {
    "LedgerWriter": {"ledger/*", "contracts/*"},
    "Router": {"ledger/*", "contracts/*"},
    "Replay": {"tap/*", "ledger/*", "contracts/*"},
    "ArchiveWriter": {"tap/*", "quarantine/*"},
    "DeliveryAudit": {
        *("tap/*", "ledger/*", "handovers/*", "contracts/*", "fleet/*", "audit/*"),
        *("compacted/*", "published/*", "compactions/*", "erasures/*"),
    },
    "Compaction": {"tap/*", "ledger/*", "handovers/*", "compacted/*", "published/*", "compactions/*"},
    "Downlink": {"devices/*/inbox"},
    "Subscribers": {"handovers/*"},
    "Erasure": {
        *("tap/*", "ledger/*", "handovers/*", "quarantine/*", "fleet/*"),
        *("compacted/*", "audit/*", "erasures/*", "contracts/*"),
    },
}
"""The only wildcards: objects of the archive and devices, whose names nobody knows beforehand, by who uses
them."""


def test_no_permission_has_a_wildcard_but_the_archive_folders(templates: Templates) -> None:
    for resource in templates.of(*IAM):
        if resource.stack == "fleet":
            continue  # tests/infrastructure/test_provisioning.py
        if resource.id.startswith("CanaryFunction"):
            continue  # its own row of FUNCTIONS
        for statement in statements(resource):
            assert statement["Effect"] == "Allow"
            if statement["Action"] == "cloudwatch:PutMetricData":
                continue  # the test of jobs
            for action in words(statement["Action"]):
                assert "*" not in action, (str(resource), action)
            for target in words(statement.get("Resource", [])):
                assert "*" not in target or wildcard_is_known(resource, target), (str(resource), target)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_it_does_and_nothing_else(dev: Templates, name: str) -> None:
    listed: dict[str, set[str]] = {}
    for actions, targets in FUNCTIONS[name]:
        for action in actions.split():
            listed.setdefault(action, set()).update(targets.split())
    assert dev.may(dev.function(name)) == listed


def test_no_function_is_missing_in_the_table_of_permissions(dev: Templates) -> None:
    names = {each.find("FunctionName").split("-", 2)[2] for each in dev.of("AWS::Lambda::Function")}
    assert {each for each in names if not each.startswith("router-")} == {*FUNCTIONS, "replay"}


def test_a_job_may_write_metrics_of_glue_and_no_others(templates: Templates) -> None:
    roles = [each for each in templates.of("AWS::IAM::Role") if each.stack == "audit"]
    assert len(roles) == len(templates.of("AWS::Glue::Job"))
    for role in roles:
        (metrics,) = (each for each in statements(role) if each["Action"] == "cloudwatch:PutMetricData")
        assert metrics["Resource"] == "*"
        assert metrics["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Glue"}}


def wildcard_is_known(resource: Resource, target: str) -> bool:
    if target == "*":
        return False
    end = json.loads(target)["Fn::Join"][1][-1]
    if resource.id.startswith("RolloutPolicy"):
        return bool(
            re.fullmatch(r":(cloudwatch:.*)?alarm:\*|:(lambda:.*)?function:[a-z0-9-]+:\*", end)
        )  # tests/infrastructure/test_rollout.py
    folder = end.split("/", 1)[1]
    if resource.stack == "audit" and re.fullmatch(r"(event-logs|work)/eventplane-[a-z-]+/\*", folder):
        return True  # a job's own in the work bucket
    return any(owner in resource.id and folder in folders for owner, folders in FOLDERS.items())


def test_the_replay_may_read_the_tap_and_write_inboxes_and_nothing_else(dev: Templates) -> None:
    (role,) = (each for each in dev.of("AWS::IAM::Role") if each.id.startswith("ReplayRole"))
    may = granted(dev, role)
    assert set(may) - READ == {
        *("sqs:SendMessage", "dynamodb:GetItem", "dynamodb:Scan"),
        *("s3:GetObject", "s3:PutObject", "s3:ListBucket"),
    }
    assert all(each.endswith(WRITTEN) for each in may["sqs:SendMessage"])
    folders = {
        action: {each.split("/")[-2] for each in may[action]} for action in ("s3:GetObject", "s3:PutObject")
    }
    assert folders == {"s3:GetObject": {"tap", "contracts"}, "s3:PutObject": {"ledger", "contracts"}}


def test_the_audit_may_tell_its_verdict_and_write_to_no_other_queue(dev: Templates) -> None:
    (role,) = (each for each in dev.of("AWS::IAM::Role") if each.id.startswith("DeliveryAuditRole"))
    (target,) = granted(dev, role)["sqs:SendMessage"]
    assert target.endswith(':eventplane-dev-audit-outbox"]]}')
    (job,) = (each for each in dev.of("AWS::Glue::Job") if each.find("Name").endswith("delivery-audit"))
    assert "eventplane-dev-audit-outbox" in json.dumps(job.find("DefaultArguments", "--OUTBOX"))


def test_only_the_erasure_may_delete_for_good(templates: Templates) -> None:
    able = {
        role.id
        for role in templates.of(*IAM)
        for statement in statements(role)
        if "s3:DeleteObjectVersion" in words(statement["Action"])
    }
    assert len(able) == 1
    assert able.pop().startswith("ErasureRole")


def test_the_compaction_may_delete_raw_objects_and_never_write_them(dev: Templates) -> None:
    (role,) = (each for each in dev.of("AWS::IAM::Role") if each.id.startswith("CompactionRole"))
    raw = ("/tap/", "/ledger/", "/handovers/")
    actions = {
        action
        for statement in statements(role)
        if any(f'"{folder}*"' in json.dumps(statement) for folder in raw)
        for action in words(statement["Action"])
    }
    assert actions == {"s3:GetObject", "s3:DeleteObject"}
    assert not [each for each in granted(dev, role) if "Tagging" in each]


def test_no_function_of_the_plane_may_publish_a_contract(templates: Templates) -> None:
    for role in templates.of(*IAM):
        for statement in statements(role):
            if "-contracts" in json.dumps(statement.get("Resource", "")):
                assert words(statement["Action"]) == ["dynamodb:GetItem"], str(role)


def test_no_role_brings_a_managed_policy(templates: Templates) -> None:
    assert all(not role.find("ManagedPolicyArns") for role in templates.of("AWS::IAM::Role"))


def test_a_router_may_write_inboxes_and_read_contracts_and_nothing_else(
    dev: Templates, contract: Contract
) -> None:
    roles = [each for each in dev.of("AWS::IAM::Role") if "RouterRole" in each.id]
    # One a lane, one a cloud service.
    assert len(roles) == 2 + len(list(contract.of_kind(ParticipantKind.CLOUD_SERVICE)))
    for role in roles:
        may = granted(dev, role)
        assert set(may) - READ == {"sqs:SendMessage", "s3:PutObject", "dynamodb:GetItem", "dynamodb:Scan"}
        subscriptions, interest = may["dynamodb:Scan"]
        assert "table/eventplane-dev-subscriptions" in subscriptions
        assert "table/eventplane-dev-interest" in interest
        assert all("table/eventplane-dev-contracts" in target for target in may["dynamodb:GetItem"])
        (source,) = may["sqs:ChangeMessageVisibility"]
        assert source.endswith(('ingest"]]}', 'ingest-urgent"]]}', '-outbox"]]}'))
        assert all(each.endswith(WRITTEN) for each in may["sqs:SendMessage"]), may


def test_a_participants_program_may_use_its_own_queues_and_items_and_nothing_else(
    dev: Templates, contract: Contract
) -> None:
    policies = {
        each.find("ManagedPolicyName"): each.find("PolicyDocument", "Statement")
        for each in dev.of("AWS::IAM::ManagedPolicy")
        if each.stack == "client"
    }
    # The plane's own are no programs of anybody: who had their policies could take what they read.
    services = {each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)} - OWN_SERVICES
    assert set(policies) == {f"eventplane-dev-{each}-client" for each in services}
    for name, found in policies.items():
        participant = name.removeprefix("eventplane-dev-").removesuffix("-client")
        keys = []
        for statement in found:
            assert statement["Effect"] == "Allow"
            for target in words(statement["Resource"]):
                own = (
                    f"eventplane-dev-{participant}-",
                    "eventplane-dev-filter",
                    "eventplane-dev-subscriptions",
                    "eventplane-dev-interest",
                    # Who asks has to know who is to answer.
                    *(["eventplane-dev-contracts"] if contract.participants[participant].asks else []),
                )
                assert any(each in target for each in own), target
                assert "*" not in target
            actions = words(statement["Action"])
            if contract.participants[participant].asks and "Condition" not in statement:
                may_read = {"dynamodb:GetItem", "dynamodb:Scan"}
                assert {each for each in actions if each.startswith("dynamodb:")} <= may_read
            elif any(each.startswith("dynamodb:") for each in actions):
                assert "dynamodb:Scan" not in actions
                keys += words(statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"])
        assert keys == [f"{participant}/*", participant, participant]


def test_only_the_emulator_gets_the_action_unknown_to_aws(templates: Templates, local: Templates) -> None:
    has_it = "sqs:SendMessageBatch" in json.dumps(templates.documents)
    assert has_it is (templates is local)


def test_every_iot_role_is_lent_to_the_rule_that_uses_it_only(templates: Templates) -> None:
    uses = {
        action["Sqs"]["RoleArn"]["Fn::GetAtt"][0]: rule.find("RuleName")
        for rule in templates.of("AWS::IoT::TopicRule")
        for action in [
            *rule.find("TopicRulePayload", "Actions"),
            rule.find("TopicRulePayload", "ErrorAction"),
        ]
    }
    roles = [
        each
        for each in templates.of("AWS::IAM::Role")
        if "iot.amazonaws.com" in json.dumps(each.properties) and not each.id.startswith("Provisioning")
    ]
    assert {each.id for each in roles} == set(uses)
    for role in roles:
        (trust,) = role.find("AssumeRolePolicyDocument")["Statement"]
        assert trust["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        lent_to = (
            json.dumps(trust["Condition"]["ArnEquals"]["aws:SourceArn"]).split(":rule/")[1].strip('"]} ')
        )
        assert lent_to == uses[role.id]
        assert len(list(statements(role))) == 2


def ingest_rules(templates: Templates) -> dict[str, Resource]:
    """The rules that take in what devices publish, by lane."""
    rules = {each.find("RuleName").split("_", 2)[2]: each for each in templates.of("AWS::IoT::TopicRule")}
    return {lane: rule for lane, rule in rules.items() if lane.startswith("ingest")}


def device_policies(templates: Templates) -> list[Resource]:
    return [
        each
        for each in templates.of("AWS::IoT::Policy")
        if not each.find("PolicyName").endswith(("-claim", "-renewal", "-quarantine"))
    ]


def device_statements(templates: Templates) -> dict[str, dict[str, Any]]:
    (policy,) = device_policies(templates)
    return {each["Action"]: each for each in policy.find("PolicyDocument")["Statement"]}


def test_a_device_is_bound_to_the_thing_of_its_certificate(templates: Templates) -> None:
    rules = [each.find("RuleName") for each in ingest_rules(templates).values()]
    text = {action: json.dumps(each["Resource"]) for action, each in device_statements(templates).items()}
    assert set(text) == {"iot:Connect", "iot:Publish", "iot:Subscribe", "iot:Receive"}
    assert f":client/{THING}" in text["iot:Connect"]
    for rule in rules:
        assert f":topic/$aws/rules/{rule}/devices/{THING}/outbox" in text["iot:Publish"]
    assert text["iot:Publish"].count("topic/") == len(rules)
    assert f":topicfilter/devices/{THING}/inbox" in text["iot:Subscribe"]
    assert f":topic/devices/{THING}/inbox" in text["iot:Receive"]


def test_a_device_connects_only_with_a_certificate_that_is_attached(templates: Templates) -> None:
    condition = device_statements(templates)["iot:Connect"]["Condition"]
    assert condition == {"Bool": {"iot:Connection.Thing.IsAttached": "true"}}


def test_no_policy_of_a_device_trusts_what_a_client_says_of_itself(templates: Templates) -> None:
    for policy in device_policies(templates):
        for statement in policy.find("PolicyDocument")["Statement"]:
            text = json.dumps(statement)
            assert "iot:ClientId" not in text
            assert "*" not in text
            assert THING in text
            assert statement["Effect"] == "Allow"
