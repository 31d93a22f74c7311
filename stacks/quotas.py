"""Compare what a deployment needs with the quotas of its account, and with what its organisation governs."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane_aws.rules import LAMBDA_UNRESERVED
from stacks.deployment import PlannedStack

CONCURRENCY: Final = "L-B99A9384"
"""Code of Lambda's quota "Concurrent executions" in Service Quotas."""

PUBLISHES_PER_DEVICE_S: Final = 0.0203
"""Publishes of one device, a second: an event a minute, and its own reports (docs/explanation/scale.md)."""

BACK_WITHIN_S: Final = 900
"""After an outage all devices should be connected again after so many seconds."""


@dataclass(frozen=True, slots=True)
class AwsQuota:
    """A quota as Service Quotas has it. `default` is what AWS documents, by region."""

    service: str
    code: str
    name: str
    source: str
    default: Mapping[str, float]


QUOTAS: Final[Mapping[str, AwsQuota]] = {
    name: AwsQuota(**values)
    for name, values in tomllib.loads(Path(__file__).with_name("quotas.toml").read_text()).items()
}


@dataclass(frozen=True, slots=True)
class Shortage:
    """A quota that does not suffice, or could not be read. Deploying is refused if `refuses`."""

    text: str
    refuses: bool


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The planned functions' share of the account's concurrent executions.

    `reserved` by function; `mapped` is what the queues of the others may call at a time, and `warm` what they
    keep warm.
    """

    reserved: Mapping[str, int]
    mapped: int
    warm: int


def planned_concurrency(planned: Collection[PlannedStack]) -> Concurrency:
    """Read the concurrency of the functions in `planned` from their templates."""
    reserved: dict[str, int] = {}
    mapped = warm = 0
    for stack in planned:
        names = {
            id: each["Properties"]["FunctionName"]
            for id, each in stack.resources.items()
            if each["Type"] == "AWS::Lambda::Function"
        }
        own = {
            id: stack.resources[id]["Properties"]["ReservedConcurrentExecutions"]
            for id in names
            if "ReservedConcurrentExecutions" in stack.resources[id]["Properties"]
        }
        reserved |= {names[id]: int(count) for id, count in own.items()}
        for each in stack.resources.values():
            if _function_id(each, stack.resources) in own:
                continue
            properties = each.get("Properties", {})
            mapped += properties.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
            provisioned = properties.get("ProvisionedConcurrencyConfig", {})
            warm += provisioned.get("ProvisionedConcurrentExecutions", 0)
    return Concurrency(reserved, mapped, warm)


def _function_id(resource: Mapping[str, Any], resources: Mapping[str, Any]) -> str | None:
    """The logical id of the function that `resource` names, by its own or by that of an alias."""
    name = resource.get("Properties", {}).get("FunctionName")
    text = str(name)
    for id, each in resources.items():
        if f"'{id}'" in text:
            if each["Type"] == "AWS::Lambda::Function":
                return id
            if each["Type"] == "AWS::Lambda::Alias":
                return _function_id(each, resources)
    return None


def device_needs(devices: int) -> dict[str, float]:
    """Return the need of so many devices of each of `QUOTAS`."""
    publishes = devices * PUBLISHES_PER_DEVICE_S
    return {
        "iot_connections": devices,
        "iot_connects_per_s": devices / BACK_WITHIN_S,
        "iot_publishes_per_s": publishes,
        "iot_rule_evaluations_per_s": publishes,
    }


def organisation_findings(
    planned: Collection[PlannedStack], client: Callable[[str], Any]
) -> Iterator[Shortage]:
    """Report what an organisation may govern of what is planned, by AWS's documentation."""
    types = {each["Type"] for stack in planned for each in stack.resources.values()}
    try:
        if "AWS::CE::AnomalyMonitor" in types and _is_member(client("organizations"), client("sts")):
            yield Shortage(
                "costs: this account is a member of an organisation, and monitors by a cost tag exist in the "
                "payer's account alone; leave costs out in stacks/environments.toml, and watch the tag there",
                refuses=False,
            )
        if "AWS::Glue::Table" in types:
            lake = client("lakeformation").get_data_lake_settings()["DataLakeSettings"]
            if not lake.get("CreateTableDefaultPermissions"):
                yield Shortage(
                    "Lake Formation governs new tables of the catalog, which the plane does not support: the "
                    "audit's stack or its queries may fail; leave new tables to IAM in its settings",
                    refuses=False,
                )
    except (BotoCoreError, ClientError) as error:
        yield Shortage(
            f"costs and tables of an organisation: not read, because AWS answered: {error}; the credentials "
            "need organizations:DescribeOrganization and lakeformation:GetDataLakeSettings",
            refuses=False,
        )


def _is_member(organizations: Any, sts: Any) -> bool:
    try:
        payer = organizations.describe_organization()["Organization"]["MasterAccountId"]
    except organizations.exceptions.AWSOrganizationsNotInUseException:
        return False
    return bool(sts.get_caller_identity()["Account"] != payer)


class Quotas:
    """The quotas of an account in a region, by two boto3 clients."""

    def __init__(self, region: str, functions: Any, quotas: Any) -> None:
        self._region = region
        self._functions = functions
        self._quotas = quotas

    def concurrency_findings(self, needed: Concurrency) -> Iterator[Shortage]:
        """Compare with the account's concurrent executions. Nothing else of the account is looked at."""
        try:
            limits = self._functions.get_account_settings()["AccountLimit"]
            deployed = sum(map(self._reserved_now, needed.reserved))
        except (BotoCoreError, ClientError) as error:
            yield _unread("Concurrent executions", error)
            return
        total, unreserved = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
        reserved = sum(needed.reserved.values())
        left = unreserved + deployed - reserved
        # Where nothing is reserved nothing is refused: a new account has ten executions.
        if reserved and left < LAMBDA_UNRESERVED.most:
            remedy = self._raise("lambda", CONCURRENCY, total + LAMBDA_UNRESERVED.most - left)
            yield Shortage(
                f"Concurrent executions: {reserved} would be reserved, which leaves {left} of {total}, and "
                f"Lambda keeps {LAMBDA_UNRESERVED.most}; {remedy}, or lower reserved_concurrency in "
                "stacks/environments.toml",
                refuses=True,
            )
        elif needed.mapped + needed.warm > left:
            most = needed.mapped + needed.warm
            yield Shortage(
                f"Concurrent executions: the queues may call up to {most} functions at a time, and {left} of "
                f"{total} are left for them: in a flood some wait for others; "
                f"{self._raise('lambda', CONCURRENCY, total + most - left)}, or lower max_concurrency",
                refuses=False,
            )

    def device_findings(self, devices: int) -> Iterator[Shortage]:
        """Compare with what `devices` need of AWS IoT."""
        for name, needed in device_needs(devices).items():
            quota = QUOTAS[name]
            limit = None
            try:
                limit = self._limit(quota)
            except (BotoCoreError, ClientError) as error:
                yield _unread(quota.name, error)
                limit = quota.default.get(self._region)
            if limit is None:
                yield Shortage(
                    f"{quota.name}: unknown in {self._region}, and {devices} devices need "
                    f"{math.ceil(needed)}; see {quota.source}",
                    refuses=False,
                )
            elif limit < needed:
                yield Shortage(
                    f"{quota.name}: {devices} devices need {math.ceil(needed)}, and there are {limit:.0f}; "
                    f"{self._raise(quota.service, quota.code, math.ceil(needed))}, or lower devices in "
                    "stacks/environments.toml",
                    refuses=True,
                )

    def _reserved_now(self, function: str) -> int:
        try:
            answer = self._functions.get_function_concurrency(FunctionName=function)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return 0
        return int(answer.get("ReservedConcurrentExecutions", 0))

    def _limit(self, quota: AwsQuota) -> float | None:
        """What the account has, by its own quota or by AWS's default in this region."""
        asked = {"ServiceCode": quota.service, "QuotaCode": quota.code}
        for ask in (self._quotas.get_service_quota, self._quotas.get_aws_default_service_quota):
            try:
                return float(ask(**asked)["Quota"]["Value"])
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchResourceException":
                    raise
        return quota.default.get(self._region)

    def _raise(self, service: str, code: str, value: float) -> str:
        return (
            f"raise it: aws service-quotas request-service-quota-increase --region {self._region} "
            f"--service-code {service} --quota-code {code} --desired-value {value:.0f}"
        )


def _unread(name: str, error: Exception) -> Shortage:
    return Shortage(
        f"{name}: not read, because AWS answered: {error}; the credentials need lambda:GetAccountSettings, "
        "lambda:GetFunctionConcurrency, servicequotas:GetServiceQuota and "
        "servicequotas:GetAWSDefaultServiceQuota",
        refuses=False,
    )
