"""What somebody has to be told of by the functions' own figures (`lambdas/common/metrics.py`).

The figures' names are repeated here: stacks and functions do not know each other. A test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.constructs.watch import Watch
from stacks.environment import Environment

NAMESPACE: Final = "EventPlane"

_PERIOD: Final = Duration.minutes(5)


def of_figures(folder: str, function: str, environment: Environment) -> Iterator[Watch]:
    """Of the `function` with the code of `lambdas/<folder>`."""
    if folder == "router":
        yield Watch(
            name=f"{function}-contract-refused",
            metric=figure(function, "ContractRefused"),
            remedy="A published contract cannot be used; the one before it stays. Publish it by the command.",
        )
        yield Watch(
            name=f"{function}-contract-unchecked",
            metric=figure(function, "ContractUnchecked"),
            periods=3,
            remedy="A table that routes come from does not answer; what was read last stays.",
        )
        yield Watch(
            name=f"{function}-contract-unseen",
            metric=figure(function, "ContractUnseen"),
            remedy="A process has not seen the contract in force: its messages wait, urgent events went out "
            "by the contract that came with the code. Restore the tables within an hour.",
        )
        yield Watch(
            name=f"{function}-subscription-refused",
            metric=figure(function, "SubscriptionRefused"),
            remedy="What a participant subscribed or announced cannot be used; the log says why.",
        )
        yield Watch(
            name=f"{function}-urgent-delay",
            metric=figure(function, "UrgentDeliveryDelay", statistic="Maximum"),
            threshold=1_000 * environment.urgent_age_alarm_s,
            remedy="An urgent event was under way in the cloud for too long: see the function's duration.",
        )
    elif function.endswith("-provisioning-hook"):
        yield Watch(
            name=f"{function}-taken",
            metric=figure(function, "RegistrationRefused", reason="taken"),
            remedy="Somebody with the claim wanted to be a device that is in service. See docs/fleet.md.",
        )
    elif folder == "presence" and function.endswith(("-timers", "-reconciler")):
        yield Watch(
            name=f"{function}-late",
            metric=figure(function, "TimersLate"),
            periods=3,
            remedy="Notices come later than is promised, or timers were lost: see the age of the queue "
            "presence-timers, its dead letters, and the functions' throttles. See docs/presence.md.",
        )
        yield Watch(
            name=f"{function}-flooding",
            metric=figure(function, "DeviceFlooding"),
            remedy="A device sends more than its quota. The log line 'a device floods' names it, and so does "
            "the event device.flooding.v1 in operations.inbox. `fleet quarantine DEVICE` takes it off.",
        )
    elif "-downlink-" in function:
        yield Watch(
            name=f"{function}-parked",
            metric=figure(function, "Parked"),
            remedy="A device is connected and acknowledges nothing that is sent down. See its log.",
        )
    elif function.endswith("-certificate-keeper"):
        yield Watch(
            name=f"{function}-decommissioned",
            metric=figure(function, "DecommissionedDevice"),
            remedy="A device that was taken out of service came back, and was locked out. See docs/fleet.md.",
        )


def figure(function: str, metric: str, *, statistic: str = "Sum", **dimensions: str) -> cloudwatch.Metric:
    """A figure of the `function`."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=metric,
        dimensions_map={"service": function, **dimensions},
        statistic=statistic,
        period=_PERIOD,
    )
