"""Options of an environment or a contract: webhooks, protocols, keys, locks, costs."""

import json
import string

import pytest

from eventplane.function_settings import RouterSettings
from parts.probe.settings import CanarySettings
from tests.infrastructure.conftest import DOMAIN, KEY, NATS, URLS
from tests.infrastructure.templates import QUEUE, Templates, granted, statements
from tests.infrastructure.test_queues import buckets

SECRET = "AWS::SecretsManager::Secret"


def test_options_move_no_data(dev: Templates, full: Templates) -> None:
    data = (QUEUE, "AWS::S3::Bucket", "AWS::DynamoDB::Table")
    gone = {each.name for each in dev.of(*data) if str(each) not in full.ids()}
    readers = {"care-analytics-inbox", "alarm-centre-receipts"}
    assert gone == readers | {f"{each}-dlq" for each in readers}


def test_a_webhook_adds_a_function_its_mapping_and_its_key(full: Templates) -> None:
    added = [each.type for each in full.of() if each.id.startswith("AlarmCentre") and "Webhook" in each.id]
    assert sorted(added) == [
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::Alias",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::Lambda::Version",
        "AWS::Logs::LogGroup",
        SECRET,
    ]
    secret = full.outputs("messaging")["AlarmCentreWebhookSecret"]
    variables = full.functions["webhook-alarm-centre"].variables
    assert secret == variables["EVENTPLANE_WEBHOOK_SECRET"] == "eventplane-dev-alarm-centre-webhook"
    assert variables["EVENTPLANE_WEBHOOK_URL"] == URLS["alarm-centre"]
    assert variables["EVENTPLANE_SOURCE"] == "alarm-centre.inbox"
    mapping = full.mappings["alarm-centre-inbox"]
    assert full.function_behind(mapping, "FunctionName").name == "webhook-alarm-centre"
    concurrency = mapping.find("ScalingConfig", "MaximumConcurrency")
    assert variables["EVENTPLANE_CONCURRENCY"] == str(concurrency)


@pytest.mark.parametrize("plane", ["full", "guarded"])
def test_a_webhooks_inbox_has_its_times(plane: str, request: pytest.FixtureRequest) -> None:
    templates: Templates = request.getfixturevalue(plane)
    inbox = templates.queues["alarm-centre-inbox"]
    function = templates.functions["webhook-alarm-centre"]
    assert inbox.find("VisibilityTimeout") >= 6 * function.find("Timeout")
    assert inbox.find("RedrivePolicy", "maxReceiveCount") == 1_000
    assert bool(inbox.find("FifoQueue")) is (plane == "guarded")


def test_a_webhooks_key_is_made_by_aws(guarded: Templates) -> None:
    found = guarded.of(SECRET, stack="messaging")
    assert {each.name for each in found} == {"alarm-centre-webhook", "subscribers-webhook"}
    for secret in found:
        generated = {"PasswordLength": 64, "ExcludeCharacters": string.punctuation}
        assert secret.find("GenerateSecretString") == generated
        assert secret.find("SecretString") is None
        assert secret.attributes["DeletionPolicy"] == "RetainExceptOnCreate"


@pytest.mark.source("P13")
def test_an_added_protocol_has_no_inbox_queue(full: Templates, dev: Templates) -> None:
    assert {"care-analytics-outbox", "care-analytics-outbox-dlq"} <= full.queues.keys()
    assert "CareAnalyticsInboxUrl" not in full.outputs("messaging")
    made_of = ("lambdas/router", "parts/replay")
    routers = {name: each for name, each in full.functions.items() if each.module in made_of}
    assert len(routers) > 1
    for name, each in routers.items():
        queues = each.settings(RouterSettings).queues
        assert queues["care-analytics.inbox"] == f"{NATS.url}/eventplane-dev-care-analytics-inbox"
        assert each.variables["EVENTPLANE_NATS_SECRET"] == NATS.secret
        (secret,) = granted(full, full.role(each))["secretsmanager:GetSecretValue"]
        assert f"secret:{NATS.secret}-??????" in secret
        assert "EVENTPLANE_NATS_SECRET" not in dev.functions[name].variables


@pytest.mark.source("P13")
def test_its_program_only_writes_the_outbox(full: Templates) -> None:
    policy = full.one("AWS::IAM::ManagedPolicy", "care-analytics-client")
    text = json.dumps(list(statements(policy)))
    assert "care-analytics-outbox" in text
    assert "care-analytics-inbox" not in text
    assert "sqs:ReceiveMessage" not in text
    api = full.functions["subscriptions-api"].variables["EVENTPLANE_INBOXES"]
    assert "care-analytics" not in json.dumps(api)


def test_with_the_customers_key_all_that_holds_data_uses_it(guarded: Templates) -> None:
    for queue in guarded.of(QUEUE):
        assert queue.find("KmsMasterKeyId") == KEY, str(queue)
        assert queue.find("KmsDataKeyReusePeriodSeconds") == 3_600
    for bucket in guarded.of("AWS::S3::Bucket"):
        (rule,) = bucket.find("BucketEncryption", "ServerSideEncryptionConfiguration")
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
        assert rule["BucketKeyEnabled"] is True
    assert {each.find("KmsMasterKeyId") for each in guarded.of("AWS::SNS::Topic")} == {KEY}
    for table in guarded.of("AWS::DynamoDB::Table"):
        assert table.find("SSESpecification", "KMSMasterKeyId") == KEY, str(table)
    for type in ("AWS::Logs::LogGroup", "AWS::SecretsManager::Secret"):
        assert {each.find("KmsKeyId") for each in guarded.of(type)} == {KEY}, type


def test_few_may_use_the_customers_key(guarded: Templates, prod: Templates) -> None:
    others = set()
    for role in guarded.of("AWS::IAM::Role"):
        may = granted(guarded, role)
        if any(action.startswith(("sqs:", "s3:", "dynamodb:", "secretsmanager:")) for action in may):
            assert may["kms:Decrypt"] == may["kms:GenerateDataKey"] == [KEY], str(role)
        else:
            assert not [action for action in may if action.startswith("kms:")], str(role)
            others.add(role.stack)
    assert {"fleet", "routing"} <= others
    assert "kms:GenerateDataKey" not in json.dumps(prod.documents)


def test_reads_are_recorded_on_demand(guarded: Templates, prod: Templates) -> None:
    (trail,) = guarded.of("AWS::CloudTrail::Trail")
    (selector,) = trail.find("EventSelectors")
    (objects,) = selector["DataResources"]
    assert (objects["Type"], selector["ReadWriteType"]) == ("AWS::S3::Object", "ReadOnly")
    archive = next(each for each in guarded.of("AWS::S3::Bucket") if "Archive" in each.id)
    assert archive.id in json.dumps(objects["Values"])
    assert trail.find("S3BucketName") != {"Ref": archive.id}
    assert (trail.find("IsLogging"), trail.find("EnableLogFileValidation"), trail.find("KMSKeyId")) == (
        True,
        True,
        KEY,
    )
    assert not prod.of("AWS::CloudTrail::Trail")


@pytest.mark.parametrize(("plane", "mode"), [("full", "GOVERNANCE"), ("guarded", "COMPLIANCE")])
def test_new_objects_are_locked(
    plane: str, mode: str, request: pytest.FixtureRequest, dev: Templates
) -> None:
    locked: Templates = request.getfixturevalue(plane)
    bucket, _ = buckets(locked)
    assert bucket.find("ObjectLockEnabled") is True
    rule = bucket.find("ObjectLockConfiguration", "Rule", "DefaultRetention")
    assert rule == {"Mode": mode, "Days": 14}
    # The erasure alone may bypass governance mode.
    holders = {
        role.id
        for role in locked.of("AWS::IAM::Role", "AWS::IAM::Policy")
        if "s3:BypassGovernanceRetention" in json.dumps(role.properties)
    }
    assert [each.startswith("Erasure") for each in holders] == [True]
    unlocked, _ = buckets(dev)
    assert unlocked.find("ObjectLockEnabled") is None
    assert "BypassGovernance" not in json.dumps(dev.documents)


def test_the_budget_notifies_before_it_is_spent(full: Templates, dev: Templates) -> None:
    (budget,) = full.of("AWS::Budgets::Budget")
    assert budget.find("Budget", "BudgetLimit") == {"Amount": 120, "Unit": "USD"}
    assert budget.find("Budget", "CostFilters") == {"TagKeyValue": ["user:plane$eventplane-dev"]}
    notices = budget.find("NotificationsWithSubscribers")
    told = [(each["Notification"]["NotificationType"], each["Notification"]["Threshold"]) for each in notices]
    assert told == [("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)]
    assert "owner@example.org" in json.dumps(notices)
    assert "costs" not in dev.documents


def test_an_anomaly_of_the_planes_costs_notifies_its_subscribers(full: Templates) -> None:
    (monitor,) = full.of("AWS::CE::AnomalyMonitor")
    tags = json.loads(monitor.find("MonitorSpecification"))["Tags"]
    assert tags == {"Key": "plane", "Values": ["eventplane-dev"], "MatchOptions": ["EQUALS"]}
    (subscription,) = full.of("AWS::CE::AnomalySubscription")
    threshold = json.loads(subscription.find("ThresholdExpression"))["Dimensions"]
    assert (threshold["Key"], threshold["Values"]) == ("ANOMALY_TOTAL_IMPACT_ABSOLUTE", ["25"])
    assert subscription.find("Subscribers") == [{"Address": "owner@example.org", "Type": "EMAIL"}]


def test_pages_and_tickets_have_subscribers_of_their_own(full: Templates) -> None:
    topics = {each.id: each.name for each in full.of("AWS::SNS::Topic")}
    found = {
        (topics[each.find("TopicArn")["Ref"]], each.find("Protocol"), each.find("Endpoint"))
        for each in full.of("AWS::SNS::Subscription")
    }
    assert found == {
        ("pages", "https", "https://events.example.org/integration/key/enqueue"),
        ("pages", "email", "oncall@example.org"),
        ("tickets", "email", "team@example.org"),
    }
    # What is not delivered is kept, where the canary looks for dead letters.
    for each in full.of("AWS::SNS::Subscription"):
        (queue,) = (
            name
            for name, queue in full.queues.items()
            if [queue.id, "Arn"] == each.find("RedrivePolicy", "deadLetterTargetArn", "Fn::GetAtt")
        )
        assert queue == f"{topics[each.find('TopicArn')['Ref']]}-dlq"


def test_devices_may_have_a_domain_to_connect_to(guarded: Templates, prod: Templates) -> None:
    (domain,) = guarded.of("AWS::IoT::DomainConfiguration")
    assert domain.find("DomainName") == guarded.outputs("routing")["DeviceEndpoint"] == DOMAIN.name
    assert domain.find("ServerCertificateArns") == [DOMAIN.certificate]
    for templates, endpoint in ((guarded, DOMAIN.name), (prod, None)):
        assert templates.functions["canary"].settings(CanarySettings).device_endpoint == endpoint
    assert not prod.of("AWS::IoT::DomainConfiguration")
