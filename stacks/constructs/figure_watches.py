"""Watches of the functions' own metrics (`lambdas/common/metrics.py`).

The metrics' names are repeated here: stacks and functions do not know each other. A test compares them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from eventplane.names import CANARY, DOWNLINK
from stacks.constructs.metrics import FIVE_MINUTES, MINUTE, metric
from stacks.constructs.routers import URGENT_ROUTER
from stacks.constructs.watch import Watch
from stacks.environment import Environment
from stacks.names import ARCHIVE, HTTP_SINK, INGEST_ERRORS, ROUTER, URGENT_HTTP_SINK

NAMESPACE: Final = "EventPlane"

SLO_DELAY_MS: Final = 2_000
"""Objective: 99 % of urgent events are in their inbox so many milliseconds after IoT Core accepted them."""

SLO_AVAILABILITY: Final = 99.9
"""Objective: percentage of the canary's alarms that are in its inbox in time."""

_RETRIED: Final = (URGENT_ROUTER, INGEST_ERRORS, URGENT_HTTP_SINK, HTTP_SINK, ROUTER, ARCHIVE, DOWNLINK)
"""The services whose functions count messages that come again."""

_URGENT: Final = (URGENT_ROUTER, INGEST_ERRORS, URGENT_HTTP_SINK)


def of_figures(services: Collection[str], environment: Environment) -> Iterator[Watch]:
    """Yield the watches of the metrics of `services`, each a folder of functions or their name for it."""
    for service in (ROUTER, URGENT_ROUTER):
        if service in services:
            yield from _of_routers(service, environment)
    for service in (HTTP_SINK, URGENT_HTTP_SINK):
        if service in services:
            yield _of_given_up(service, environment)
    for service in _RETRIED:
        if service in services:
            yield _of_retries(service, environment)
    others = {
        "fleet": _of_fleet,
        "presence": _of_presence,
        DOWNLINK: _of_downlink,
        CANARY: _of_canary,
    }
    for service, watches in others.items():
        if service in services:
            yield from watches(environment)


def _of_retries(service: str, environment: Environment) -> Watch:
    """Of messages that come again: partial responses leave `Errors` at 0, and the age of a queue counts no
    message that was received three times (Amazon SQS guide, CloudWatch metrics)."""
    is_urgent = service in _URGENT
    return Watch(
        name=environment.resource_name(f"{service.replace('_', '-')}-retried"),
        metric=figure(environment, service, "Retried", period=MINUTE if is_urgent else FIVE_MINUTES),
        is_page=is_urgent,
        periods=2 if service == URGENT_ROUTER else 3,
    )


def _of_given_up(service: str, environment: Environment) -> Watch:
    return Watch(
        name=environment.resource_name(f"{service.replace('_', '-')}-dead-lettered"),
        metric=figure(environment, service, "DeadLettered"),
        is_page=service in _URGENT,
    )


def _of_routers(service: str, environment: Environment) -> Iterator[Watch]:
    name, is_urgent = environment.resource_name(service), service == URGENT_ROUTER
    yield Watch(
        name=f"{name}-urgent-delay",
        metric=figure(environment, service, "UrgentDeliveryDelay", statistic="Maximum"),
        is_page=True,
        threshold=1_000 * environment.alarms.urgent_age_s,
    )
    yield Watch(
        name=f"{name}-contract-unseen",
        metric=figure(environment, service, "ContractUnseen"),
        is_page=is_urgent,
    )
    yield Watch(
        name=f"{name}-dead-lettered",
        metric=figure(environment, service, "DeadLettered"),
    )
    if is_urgent:
        return
    # All routers read the same tables.
    yield Watch(
        name=f"{name}-contract-refused",
        metric=figure(environment, service, "ContractRefused"),
    )
    yield Watch(
        name=f"{name}-contract-unchecked",
        metric=figure(environment, service, "ContractUnchecked"),
        periods=3,
    )
    yield Watch(
        name=f"{name}-subscription-refused",
        metric=figure(environment, service, "SubscriptionRefused"),
    )


def _of_fleet(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("provisioning-hook-taken"),
        metric=figure(environment, "fleet", "RegistrationRefused", reason="taken"),
    )
    yield Watch(
        name=environment.resource_name("key-suspected"),
        metric=figure(environment, "fleet", "KeySuspected"),
    )


def _of_presence(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("fleet-outage"),
        metric=figure(environment, "presence", "FleetOutage", statistic="Maximum", period=MINUTE),
        is_page=True,
    )
    outage = environment.presence.outage
    yield Watch(
        name=environment.resource_name("connections-refused"),
        # Of the account: IoT Core has no metric by device or policy.
        metric=metric("AWS/IoT", "Connect.AuthError", "Sum", FIVE_MINUTES, Protocol="MQTT"),
        is_page=True,
        threshold=max(outage.least, outage.share * environment.devices),
    )
    yield Watch(
        name=environment.resource_name("presence-late"),
        metric=figure(environment, "presence", "TimersLate"),
        periods=3,
    )
    yield Watch(
        name=environment.resource_name("presence-flooding"),
        metric=figure(environment, "presence", "DeviceFlooding"),
    )


def _of_downlink(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("downlink-parked"),
        metric=figure(environment, "downlink", "Parked"),
    )
    if environment.alarms.is_detailed:
        yield Watch(
            name=environment.resource_name("downlink-not-transmitted"),
            metric=figure(environment, "downlink", "NotTransmitted"),
            periods=2,
        )


def _of_canary(environment: Environment) -> Iterator[Watch]:
    settings = environment.alarms
    # Two looks fall into it, so that a schedule's jitter is no silence.
    looks = Duration.minutes(2 * settings.queues_every_min)
    yield Watch(
        name=environment.resource_name(CANARY),
        metric=canary_missed(environment),
        is_page=True,
        periods=3 if settings.canary_every_min == 1 else 2,
        is_silence_bad=settings.is_canary_scheduled,
    )
    yield Watch(
        name=environment.resource_name("dead-letters"),
        metric=figure(environment, CANARY, "DeadLetters", statistic="Maximum", period=looks),
        is_silence_bad=settings.is_canary_scheduled,
    )
    if not settings.is_detailed:
        yield Watch(
            name=environment.resource_name("backlog"),
            metric=figure(environment, CANARY, "Backlog", statistic="Maximum", period=looks),
            threshold=settings.age_s,
        )


def canary_missed(environment: Environment, statistic: str = "Maximum") -> cloudwatch.Metric:
    """Return the metric of missed canary alarms, 0 or 1, over the time between two of its alarms."""
    period = Duration.minutes(environment.alarms.canary_every_min)
    return figure(environment, CANARY, "CanaryMissed", statistic=statistic, period=period)


def figure(
    environment: Environment,
    service: str,
    kind: str,
    *,
    statistic: str = "Sum",
    period: Duration = FIVE_MINUTES,
    **dimensions: str,
) -> cloudwatch.Metric:
    """A metric of all functions of a `service`."""
    dimensions["service"] = environment.resource_name(service)
    return metric(NAMESPACE, kind, statistic, period, **dimensions)
