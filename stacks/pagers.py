"""Who should be told of alarms, compared with who has confirmed to SNS that they want to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from stacks.deployment import PlannedStack
from stacks.quotas import Finding

_SUBSCRIPTION: Final = "AWS::SNS::Subscription"


def pager_findings(planned: Collection[PlannedStack], sns: Any) -> Iterator[Finding]:
    """Report the subscribers in `planned` that deployed topics do not notify, by a boto3 client of SNS.

    SNS notifies only confirmed subscribers, and drops an unconfirmed one after three days. Of a topic that is
    not deployed yet nothing is reported.
    """
    wanted: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for stack in planned:
        for each in stack.resources.values():
            if each["Type"] == _SUBSCRIPTION:
                asked = each["Properties"]
                topic = stack.resources[asked["TopicArn"]["Ref"]]["Properties"]["TopicName"]
                wanted[topic][asked["Endpoint"]] = asked["Protocol"]
    if not wanted:
        return
    try:
        for each in [*_listed(sns, "list_topics", "Topics")]:
            arn = each["TopicArn"]
            if subscribers := wanted.get(arn.rsplit(":", 1)[-1]):
                yield from _unconfirmed(sns, arn, subscribers)
    except (BotoCoreError, ClientError) as error:
        yield Finding(
            f"subscribers of alarms: not read, because AWS answered: {error}; the credentials need "
            "sns:ListTopics and sns:ListSubscriptionsByTopic",
            refuses=False,
        )


def _unconfirmed(sns: Any, arn: str, wanted: dict[str, str]) -> Iterator[Finding]:
    listed = _listed(sns, "list_subscriptions_by_topic", "Subscriptions", TopicArn=arn)
    found = {each["Endpoint"]: each["SubscriptionArn"] for each in listed}
    for endpoint, protocol in wanted.items():
        if not found.get(endpoint, "").startswith("arn:"):
            state = "has not confirmed" if endpoint in found else "is not subscribed"
            yield Finding(
                f"{arn.rsplit(':', 1)[-1]}: {endpoint} {state} and is told of no alarm; unless this "
                f"deployment adds it, ask again: aws sns subscribe --topic-arn {arn} --protocol {protocol} "
                f"--notification-endpoint {endpoint}, and confirm what comes",
                refuses=False,
            )


def _listed(sns: Any, operation: str, member: str, **asked: str) -> Iterator[Any]:
    for page in sns.get_paginator(operation).paginate(**asked):
        yield from page[member]
