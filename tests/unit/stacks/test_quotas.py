"""Quotas of an account beside what a deployment needs, with AWS's answers as botocore checks them."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from stacks.deployment import PlannedStack
from stacks.preflight import QuotaError, check_quotas, quota_findings
from stacks.quotas import (
    QUOTAS,
    Concurrency,
    Quotas,
    device_needs,
    organisation_findings,
    planned_concurrency,
)

FUNCTION = "AWS::Lambda::Function"
URGENT = "eventplane-prod-router-device-urgent"


def function(name: str, **more: int) -> dict[str, Any]:
    return {"Type": FUNCTION, "Properties": {"FunctionName": name, **more}}


def version(of: str, warm: int) -> dict[str, Any]:
    config = {"ProvisionedConcurrentExecutions": warm}
    properties = {"FunctionName": {"Ref": of}, "ProvisionedConcurrencyConfig": config}
    return {"Type": "AWS::Lambda::Version", "Properties": properties}


def mapping(target: Any, most: int) -> dict[str, Any]:
    properties = {"FunctionName": target, "ScalingConfig": {"MaximumConcurrency": most}}
    return {"Type": "AWS::Lambda::EventSourceMapping", "Properties": properties}


PLANNED = PlannedStack(
    "eventplane-prod-routing",
    None,
    frozenset(),
    {
        "Urgent": function(URGENT, ReservedConcurrentExecutions=50),
        "UrgentLive": {"Type": "AWS::Lambda::Alias", "Properties": {"FunctionName": {"Ref": "Urgent"}}},
        "UrgentVersion": version("Urgent", 2),
        "UrgentMapping": mapping({"Fn::Select": [6, {"Ref": "UrgentLive"}]}, 50),
        "Device": function("eventplane-prod-router-device"),
        "DeviceVersion": version("Device", 3),
        "DeviceMapping": mapping({"Ref": "Device"}, 100),
    },
)


class Cloud:
    """Two stubbed clients: an answer that nobody asked for, or another question, is an error."""

    def __init__(self, region: str) -> None:
        clients = [
            boto3.client(name, region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
            for name in ("lambda", "service-quotas")
        ]
        self.functions, self.quotas = (Stubber(each) for each in clients)
        self.account = Quotas(region, *clients)

    def concurrency(self, total: int, unreserved: int, deployed: int | None = None) -> None:
        limit = {"ConcurrentExecutions": total, "UnreservedConcurrentExecutions": unreserved}
        self.functions.add_response("get_account_settings", {"AccountLimit": limit}, {})
        if deployed is None:
            self.functions.add_client_error("get_function_concurrency", "ResourceNotFoundException")
        else:
            answer = {"ReservedConcurrentExecutions": deployed}
            self.functions.add_response("get_function_concurrency", answer, {"FunctionName": URGENT})

    def quota(self, name: str, value: float | None, default: float | None = None) -> None:
        quota = QUOTAS[name]
        asked = {"ServiceCode": quota.service, "QuotaCode": quota.code}
        for method, answer in (("get_service_quota", value), ("get_aws_default_service_quota", default)):
            if answer is not None:
                self.quotas.add_response(method, {"Quota": {"Value": answer}}, asked)
                return
            self.quotas.add_client_error(method, "NoSuchResourceException", expected_params=asked)


@pytest.fixture
def cloud() -> Iterator[Callable[[str], Cloud]]:
    made: list[Cloud] = []

    def make(region: str = "eu-central-1") -> Cloud:
        each = Cloud(region)
        each.functions.activate()
        each.quotas.activate()
        made.append(each)
        return each

    yield make
    for each in made:
        each.functions.assert_no_pending_responses()
        each.quotas.assert_no_pending_responses()


def test_a_new_account_takes_what_is_unreserved(cloud: Callable[[str], Cloud]) -> None:
    it = cloud()
    limit = {"ConcurrentExecutions": 10, "UnreservedConcurrentExecutions": 10}
    it.functions.add_response("get_account_settings", {"AccountLimit": limit}, {})
    (finding,) = it.account.concurrency_findings(Concurrency({}, mapped=30, warm=0))
    assert not finding.refuses
    assert "up to 30 functions at a time, and 10 of 10" in finding.text


def test_concurrency_is_read_from_the_templates() -> None:
    assert planned_concurrency([PLANNED]) == Concurrency({URGENT: 50}, mapped=100, warm=3)


def test_a_new_account_cannot_reserve_what_production_does(cloud: Any) -> None:
    small = cloud()
    small.concurrency(total=10, unreserved=10)
    (finding,) = small.account.concurrency_findings(planned_concurrency([PLANNED]))
    assert finding.refuses
    assert "leaves -40 of 10" in finding.text
    # The remedy is the command that raises it, in this region, to what suffices.
    assert "--region eu-central-1 --service-code lambda --quota-code L-B99A9384" in finding.text
    assert "--desired-value 150" in finding.text
    with pytest.raises(QuotaError, match="nothing was deployed"):
        check_quotas([finding])


@pytest.mark.parametrize(
    ("unreserved", "deployed", "refused"),
    [(149, None, True), (150, None, False), (99, 50, True), (100, 50, False)],
)
@pytest.mark.lost_answers
def test_a_hundred_stay_free(cloud: Any, unreserved: int, deployed: int | None, refused: bool) -> None:
    """What is reserved already is not counted twice."""
    tight = cloud()
    tight.concurrency(total=1_000, unreserved=unreserved, deployed=deployed)
    found = list(tight.account.concurrency_findings(Concurrency({URGENT: 50}, mapped=0, warm=0)))
    assert any(each.refuses for each in found) is refused


def test_mappings_that_could_use_up_the_account_are_a_warning(cloud: Any) -> None:
    busy = cloud()
    busy.concurrency(total=1_000, unreserved=1_000)
    (finding,) = busy.account.concurrency_findings(Concurrency({URGENT: 50}, mapped=1_300, warm=0))
    assert not finding.refuses
    assert "up to 1300 functions at a time, and 950 of 1000 are left" in finding.text
    assert "--desired-value 1350" in finding.text
    assert check_quotas([finding]) == [finding.text]


@pytest.mark.lost_answers
def test_a_quota_that_is_too_small_for_the_devices_refuses(cloud: Any) -> None:
    frankfurt = cloud()
    frankfurt.quota("iot_connections", 500_000)
    frankfurt.quota("iot_connects_per_s", 100)
    # The account has none of its own: AWS's default of the region counts.
    frankfurt.quota("iot_publishes_per_s", None, 2_000)
    frankfurt.quota("iot_rule_evaluations_per_s", 20_000)
    connects, publishes = frankfurt.account.device_findings(100_000)
    assert connects.refuses
    assert publishes.refuses
    assert "100000 devices need 112, and there are 100" in connects.text
    assert "100000 devices need 2030, and there are 2000" in publishes.text
    assert "--service-code iotcore --quota-code L-4B33E451 --desired-value 2030" in publishes.text


def test_quotas_that_suffice_are_no_finding(cloud: Any) -> None:
    enough = cloud()
    enough.concurrency(total=1_000, unreserved=1_000)
    for name, needed in device_needs(1_000).items():
        enough.quota(name, needed)
    assert quota_findings(enough.account, [PLANNED], 1_000) == []


def test_documented_defaults_count(cloud: Any) -> None:
    virginia = cloud("us-east-1")
    for _ in QUOTAS:
        virginia.quotas.add_client_error("get_service_quota", "AccessDeniedException")
    found = list(virginia.account.device_findings(1_000_000))
    unread = [each for each in found if "not read" in each.text]
    assert len(unread) == len(QUOTAS)
    assert not any(each.refuses for each in unread)
    assert "servicequotas:GetServiceQuota" in unread[0].text
    # A million devices: 500,000 connections, 500 connects/s, 20,000 publishes/s are too few.
    assert sum(each.refuses for each in found) == 4


def test_a_region_with_an_unknown_quota_is_a_warning_not_a_guess(cloud: Any) -> None:
    elsewhere = cloud("eu-south-2")
    for name in QUOTAS:
        elsewhere.quota(name, None, None)
    found = list(elsewhere.account.device_findings(100))
    assert [each.refuses for each in found] == [False] * len(QUOTAS)
    assert "unknown in eu-south-2, and 100 devices need 100; see https://docs.aws" in found[0].text


def test_unreadable_account_settings_are_a_warning(cloud: Any) -> None:
    closed = cloud()
    closed.functions.add_client_error("get_account_settings", "AccessDeniedException")
    (finding,) = closed.account.concurrency_findings(planned_concurrency([PLANNED]))
    assert not finding.refuses
    assert "lambda:GetAccountSettings" in finding.text


OPEN = [{"Principal": {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"}, "Permissions": ["ALL"]}]


@pytest.mark.parametrize(
    ("payer", "tables", "said"),
    [
        ("111122223333", OPEN, []),
        (None, OPEN, []),
        ("999999999999", OPEN, ["costs: this account is a member"]),
        (None, [], ["Lake Formation governs new tables"]),
        ("AccessDeniedException", OPEN, ["costs and tables of an organisation: not read"]),
    ],
)
@pytest.mark.lost_answers
def test_what_an_organisation_governs_is_a_warning(payer: str | None, tables: Any, said: list[str]) -> None:
    types = ("AWS::CE::AnomalyMonitor", "AWS::Glue::Table")
    planned = PlannedStack("plane", None, frozenset(), {each: {"Type": each} for each in types})
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    clients: dict[str, Any] = {
        each: boto3.client(each, **keys) for each in ("organizations", "lakeformation", "sts")
    }
    organization, lake, identity = (Stubber(each) for each in clients.values())
    identity.add_response("get_caller_identity", {"Account": "111122223333"})
    if payer is not None and payer.isdigit():
        organization.add_response("describe_organization", {"Organization": {"MasterAccountId": payer}})
    else:
        organization.add_client_error("describe_organization", payer or "AWSOrganizationsNotInUseException")
    settings = {"DataLakeSettings": {"CreateTableDefaultPermissions": tables}}
    lake.add_response("get_data_lake_settings", settings)
    with organization, lake, identity:
        found = [*organisation_findings([planned], clients.__getitem__)]
    assert [each.text.startswith(text) for each, text in zip(found, said, strict=True)] == [True] * len(said)
    assert not any(each.refuses for each in found)
