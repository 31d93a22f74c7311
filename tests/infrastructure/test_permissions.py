"""The permissions of functions, jobs, rules, devices and participants."""

import json
import re
from typing import Any

import pytest

from eventplane import resource_names
from eventplane.contract import Contract, ParticipantKind
from eventplane.names import OWN_SERVICES
from eventplane.topics import CLAIM_CLIENT_PREFIX, RENEWAL_CLIENT_PREFIX
from parts.subscriptions_api.settings import SubscriptionsApiSettings
from tests.infrastructure.templates import (
    FUNCTION,
    RULE,
    Resource,
    Templates,
    granted,
    last_part,
    role_statements,
    statements,
)
from tests.infrastructure.templates import words as listed

ROLE = "AWS::IAM::Role"
IAM = (ROLE, "AWS::IAM::Policy")
THING = "${iot:Connection.Thing.ThingName}"

READ = {
    *("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"),
}
"""The permissions of every function that a queue feeds."""

CONSUME = " ".join(sorted(READ))

_PRESENCE = [
    ("dynamodb:BatchGetItem dynamodb:GetItem dynamodb:PutItem", "table/presence"),
    ("sqs:SendMessage", "presence-timers"),
]
_JUDGE = [
    *_PRESENCE,
    ("sqs:SendMessage", "presence-monitor-outbox"),
    ("dynamodb:Query", "table/presence/index/standing"),
]
_DOWNLINK = [
    ("dynamodb:GetItem dynamodb:PutItem dynamodb:DeleteItem", "table/desired"),
    ("dynamodb:Query", "table/desired table/desired/index/pending"),
    ("dynamodb:BatchGetItem", "table/presence"),
    ("iot:Publish", "topic/devices/*/inbox"),
    ("sqs:SendMessage", "device-inbox-dlq downlink-outbox downlink-work"),
]
_WHOLE_FLEET = ("dynamodb:BatchGetItem dynamodb:GetItem dynamodb:Scan", "table/fleet")
_CONTRACT_IN_FORCE = [
    ("dynamodb:GetItem", "table/contracts"),
    ("dynamodb:Scan", "table/interest table/subscriptions"),
]
_WEBHOOK_KEY = ("secretsmanager:GetSecretValue", "subscribers-webhook-??????")
_LEDGER = ("s3:PutObject", "/contracts/* /ledger/* /written/ledger/*"), ("s3:GetObject", "/ledger/*")
_ENDPOINTS = ("dynamodb:GetItem dynamodb:PutItem dynamodb:DeleteItem", "table/endpoints")
_HANDOVERS = ("s3:PutObject", "/handovers/* /written/handovers/*"), ("s3:GetObject", "/handovers/*")

FUNCTIONS = {
    "discovery-api": _CONTRACT_IN_FORCE,
    "archive-writer": [
        (CONSUME, "tap"),
        ("s3:PutObject", "/quarantine/* /tap/* /written/tap/*"),
        ("s3:GetObject", "/tap/*"),
        ("sqs:SendMessage", "presence"),
    ],
    "ledger-writer": [
        (CONSUME, "alarm-centre-receipts carers-receipts ledger"),
        *(*_LEDGER, *_HANDOVERS, ("s3:PutObject", "/quarantine/*")),
    ],
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
        *(_WEBHOOK_KEY, *_HANDOVERS, _ENDPOINTS, ("dynamodb:Scan", "table/subscriptions")),
    ],
    "provisioning-hook": [
        ("dynamodb:GetItem dynamodb:PutItem", "table/fleet"),
        ("sqs:SendMessage", "connections"),
        ("sqs:SendMessage", "presence-monitor-outbox"),
    ],
    "certificate-keeper": [
        ("sqs:SendMessage", "presence-monitor-outbox"),
        (f"{CONSUME} sqs:SendMessage", "connections"),
        ("dynamodb:GetItem dynamodb:PutItem", "table/fleet"),
        ("iot:DescribeCertificate iot:UpdateCertificate iot:DetachThingPrincipal", "cert/*"),
        ("iot:DetachThingPrincipal", "thing/*"),
    ],
    "fleet-snapshot": [("dynamodb:Scan", "table/fleet"), ("s3:PutObject", "/fleet/*")],
    "canary": [
        # These have no resources to name.
        ("iot:CreateKeysAndCertificate iot:DescribeEndpoint sqs:ListQueues", "*"),
        ("iot:CreateThing iot:ListThingPrincipals", "thing/eventplane-canary"),
        ("iot:AttachThingPrincipal iot:DetachThingPrincipal", "thing/eventplane-canary cert/*"),
        ("iot:AttachPolicy iot:UpdateCertificate", "cert/*"),
        ("secretsmanager:GetSecretValue secretsmanager:PutSecretValue", "canary-identity-??????"),
        ("sqs:GetQueueAttributes", "eventplane-{env}-*"),
        ("sqs:ReceiveMessage sqs:DeleteMessage", "canary-inbox"),
    ],
}
"""Every permission of each function, by actions and targets; `routing` has routers and the replay."""

_JOB = [
    ("s3:GetObject s3:PutObject s3:DeleteObject", "/event-logs/{name}/*"),
    ("s3:ListBucket", "bucket"),
    ("cloudwatch:PutMetricData", "*"),
    ("kms:VerifyMac", "key/*"),
]
_ATTESTS = [*_JOB, ("kms:GenerateMac", "key/*")]
_RAW = "/tap/* /ledger/* /handovers/*"
_AUDIT = [
    *_JOB,
    ("s3:GetObject s3:PutObject s3:DeleteObject", "/audit/* /work/{name}/*"),
    ("s3:GetObject", f"{_RAW} /contracts/* /fleet/* /compacted/* /published/* /compactions/* /erasures/*"),
    ("sqs:SendMessage", "audit-outbox"),
]
_PERSONAL = f"{_RAW} /quarantine/* /fleet/* /compacted/* /audit/*"

JOBS = {
    "delivery-audit": _AUDIT,
    "audit-today": _AUDIT,
    "compaction": [
        *(*_ATTESTS, ("s3:GetObject s3:DeleteObject", _RAW)),
        ("s3:GetObject s3:PutObject s3:DeleteObject", "/compacted/* /published/* /compactions/*"),
    ],
    "erasure": [
        *(*_ATTESTS, ("s3:ListBucketVersions", "bucket"), ("s3:GetObject", "/contracts/*")),
        ("s3:GetObject s3:PutObject s3:DeleteObject s3:DeleteObjectVersion", f"{_PERSONAL} /erasures/*"),
    ],
}
"""Every permission of each job; one that replaces its output deletes the old one."""

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
        *(*_HANDOVERS, _ENDPOINTS),
        ("secretsmanager:GetSecretValue", "alarm-centre-webhook-??????"),
        ("sqs:SendMessage", "alarm-centre-outbox alarm-centre-inbox-dlq"),
    ],
}
"""The same of functions that a contract or an environment asks for."""


def routing(*sources: str) -> list[tuple[str, str]]:
    """Return the permissions of a router of `sources`. Nothing but routers and the replay writes inboxes."""
    return [
        *(
            (CONSUME, " ".join(sources)),
            ("sqs:SendMessage", "ledger eventplane-{env}-*-inbox eventplane-{env}-*-replies"),
            *_CONTRACT_IN_FORCE,
        ),
        *_LEDGER,
    ]


def table(contract: Contract) -> dict[str, list[tuple[str, str]]]:
    """The permissions of every function and job, by its name."""
    outboxes = [f"{each.name}-outbox" for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)]
    sources = {"router-device": ["ingest"], "router-device-urgent": ["ingest-urgent"], "replay": ["replay"]}
    sources |= {"router-services": outboxes}
    found = {name: routing(*queues) for name, queues in sources.items()}
    found["replay"] += [("s3:GetObject", "/tap/* /contracts/*"), ("s3:ListBucket", "bucket")]
    return found | FUNCTIONS | JOBS


def permissions(rows: list[tuple[str, str]], **named: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for actions, targets in rows:
        for action in actions.split():
            found.setdefault(action, set()).update(targets.format(**named).split())
    return found


def allowed(templates: Templates, user: Resource) -> dict[str, set[str]]:
    """Return the permissions of a function or job, without its log, its code and Hadoop's folder markers."""
    may = templates.may(user)
    # The emulated cloud asks for actions that AWS does not know.
    for batch in [each for each in may if re.fullmatch(r"sqs:\w+Batch", each)]:
        assert templates.environment.is_emulated
        assert may.pop(batch) == may[batch.removesuffix("Batch")]
    own = re.compile(r".*(_\$folder\$|\.zip|\.py)")
    return {action: {each for each in targets if not own.fullmatch(each)} for action, targets in may.items()}


def test_functions_and_jobs_have_least_rights(templates: Templates, contract: Contract) -> None:
    expected = table(contract)
    users = {each.name: each for each in templates.of(FUNCTION, "AWS::Glue::Job")}
    # Only production audits the day so far.
    assert users.keys() | {"audit-today"} == expected.keys()
    for name, user in users.items():
        rows = permissions(expected[name], name=name, env=templates.environment.name)
        if name == "canary" and templates.environment.is_emulated:
            rows["iot:AttachPolicy"] = {"*"}  # the emulator does not know what AWS asks for
        assert allowed(templates, user) == rows, name


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_function_is_on_demand(dev: Templates, full: Templates, name: str) -> None:
    may = full.may(full.functions[name])
    # With tracing each function may send its segments.
    assert may.pop("xray:PutTraceSegments") == may.pop("xray:PutTelemetryRecords") == {"*"}
    assert may == permissions(OPTIONAL[name])
    assert name not in json.dumps(dev.documents)
    assert full.functions.keys() == dev.functions.keys() | OPTIONAL.keys()


def test_every_other_role_is_known(templates: Templates) -> None:
    users = templates.of(FUNCTION, "AWS::Glue::Job")
    tested = {(each.stack, templates.role(each).id) for each in users}
    others = [each for each in templates.of(ROLE) if (each.stack, each.id) not in tested]
    for role in others:
        may = granted(templates, role)
        # What roll-outs and provisioning may do has tests of its own.
        if not role.id.startswith(("Rollout", "ProvisioningRole")):
            actions = {each.removesuffix("Batch") for each in may}
            assert actions in ({"sqs:SendMessage"}, {"lambda:InvokeFunction"}), str(role)
            assert len({target for targets in may.values() for target in targets}) == 1, str(role)


def test_statements_only_allow(templates: Templates) -> None:
    alias = resource_names.attestation_key(templates.environment.name)
    for role in templates.of(ROLE, "AWS::IAM::Policy"):
        assert not role.find("ManagedPolicyArns"), str(role)
        for statement in statements(role):
            assert statement["Effect"] == "Allow"
            if statement["Action"] == "cloudwatch:PutMetricData":
                assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Glue"}}
            if "kms:VerifyMac" in listed(statement["Action"]):
                assert statement["Condition"] == {"StringEquals": {"kms:RequestAlias": alias}}
    job = templates.one("AWS::Glue::Job", "delivery-audit")
    outbox = f"eventplane-{templates.environment.name}-audit-outbox"
    assert outbox in json.dumps(job.find("DefaultArguments", "--OUTBOX"))


def test_only_changing_jobs_can_attest(templates: Templates) -> None:
    key, _ = templates.of("AWS::KMS::Key")
    assert (key.stack, key.find("KeySpec"), key.find("KeyUsage")) == (
        *("archive", "HMAC_256"),
        "GENERATE_VERIFY_MAC",
    )
    alias, _ = templates.of("AWS::KMS::Alias")
    assert alias.find("AliasName") == resource_names.attestation_key(templates.environment.name)
    _, deny = key.find("KeyPolicy", "Statement")
    assert (deny["Effect"], deny["Principal"], deny["Action"]) == ("Deny", {"AWS": "*"}, "kms:GenerateMac")
    spared = deny["Condition"]["ArnNotEquals"]["aws:PrincipalArn"]
    roles = [templates.role(templates.one("AWS::Glue::Job", name)) for name in ("compaction", "erasure")]
    assert [last_part(json.dumps(each)) for each in spared] == [
        f"role/{each.find('RoleName')}".replace(f"eventplane-{templates.environment.name}-", "")
        for each in roles
    ]
    signing = [each for each in templates.of(ROLE) if "kms:GenerateMac" in granted(templates, each)]
    assert signing == roles
    for job in templates.of("AWS::Glue::Job"):
        given = json.dumps(job.find("DefaultArguments", "--ATTESTATION_KEY"))
        assert last_part(given) == f"{alias.find('AliasName')}".replace(
            f"eventplane-{templates.environment.name}-", ""
        )


def test_nothing_of_the_plane_can_sign_certificates(templates: Templates) -> None:
    _, key = templates.of("AWS::KMS::Key")
    _, alias = templates.of("AWS::KMS::Alias")
    assert (key.find("KeySpec"), key.find("KeyUsage")) == ("ECC_NIST_P256", "SIGN_VERIFY")
    assert alias.find("AliasName") == resource_names.certificate_key(templates.environment.name)
    _, *denied = key.find("KeyPolicy", "Statement")
    assert {(each["Effect"], each["Action"]) for each in denied} == {("Deny", "kms:Sign")}
    assert [each["Condition"] for each in denied] == [
        {"Null": {"lambda:SourceFunctionArn": "false"}},
        {"StringEquals": {"glue:CredentialIssuingService": "glue.amazonaws.com"}},
    ]
    for role in templates.of(ROLE, "AWS::IAM::Policy"):
        assert not re.search(r"kms:(Sign|\*)", json.dumps(role.properties)), str(role)


def test_nobody_writes_the_inbox_of_devices(templates: Templates) -> None:
    """Its reader sends itself the rest of an event for many: no participant can put such a message there."""
    policies = templates.of("AWS::IAM::ManagedPolicy", "AWS::SQS::QueuePolicy")
    for each in policies:
        if each.type == "AWS::IAM::ManagedPolicy" or "DeviceInbox" in json.dumps(each.find("Queues")):
            for statement in statements(each):
                if statement["Effect"] == "Allow":
                    assert not [
                        target for target in listed(statement["Resource"]) if "device-inbox" in target
                    ]


def managed_policies(templates: Templates, stack: str) -> dict[str, list[dict[str, Any]]]:
    """The statements of the policies of participants' programs, by their name."""
    policies = templates.of("AWS::IAM::ManagedPolicy", stack=stack)
    return {each.name: list(statements(each)) for each in policies}


@pytest.fixture(scope="module")
def participants(contract: Contract) -> set[str]:
    """The cloud services but the plane's own: whoever had their policies could take what they read."""
    return {each.name for each in contract.of_kind(ParticipantKind.CLOUD_SERVICE)} - OWN_SERVICES


def test_a_program_uses_only_its_own(dev: Templates, contract: Contract, participants: set[str]) -> None:
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


def test_a_participant_calls_its_own_paths(dev: Templates, participants: set[str]) -> None:
    policies = managed_policies(dev, "subscriptions")
    assert set(policies) == {f"{name}-subscriptions" for name in participants}
    for name in participants:
        (statement,) = policies[f"{name}-subscriptions"]
        assert statement["Action"] == "execute-api:Invoke"
        path = f"/$default/*/participants/{name}/subscriptions"
        assert [each["Fn::Join"][1][-1] for each in statement["Resource"]] == [path, f"{path}/*"]
    settings = dev.functions["subscriptions-api"].settings(SubscriptionsApiSettings)
    assert set(settings.inboxes) == participants


def test_every_api_route_wants_a_signature(dev: Templates) -> None:
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
def test_claims_only_ask_for_certificates(dev: Templates, name: str, prefix: str) -> None:
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
    names = {each.name for each in dev.of("AWS::IoT::Policy")}
    assert names == {"device", "claim", "renewal", "quarantine"}
    assert policy_statements(dev, "quarantine") == [{"Effect": "Deny", "Action": "iot:*", "Resource": "*"}]


def test_the_provisioning_role_is_lent_to_iot(dev: Templates) -> None:
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


@pytest.mark.parametrize(
    ("function", "participant"), [("webhook-alarm-centre", "alarm-centre"), ("subscribers", "subscribers")]
)
def test_a_poster_keeps_its_own_endpoints(full: Templates, function: str, participant: str) -> None:
    conditions = [
        statement.get("Condition")
        for statement in role_statements(full, full.role(full.functions[function]))
        if "endpoints" in json.dumps(statement.get("Resource"))
    ]
    assert conditions == [{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{participant}/*"]}}]
