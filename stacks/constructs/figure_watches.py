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

_RETRIES: Final = {
    URGENT_ROUTER: "Urgent messages fail and come again every 10 to 20 seconds: an inbox, the ledger's queue "
    "or a table refuses. The router's log names it.",
    INGEST_ERRORS: "What an ingest rule could not write down cannot be sent to the routers either. The log "
    "of ingest-errors names the queue: restore it, its key or the role.",
    URGENT_HTTP_SINK: "The endpoint of an urgent inbox does not take events. The webhook's log has its "
    "answer.",
    HTTP_SINK: "An endpoint does not take events. The webhook's log has its answer.",
    ROUTER: "Messages fail and come again: an inbox, the ledger's queue or a table refuses. The router's log "
    "names it.",
    ARCHIVE: "The archive's writers cannot write. Their log names bucket, key or role; nothing is lost for "
    "half a day.",
    DOWNLINK: "What goes down to devices fails and comes again. The downlink functions' log names the table.",
}
"""What to do where messages come again, by the service whose functions count them."""

_URGENT: Final = (URGENT_ROUTER, INGEST_ERRORS, URGENT_HTTP_SINK)


def of_figures(services: Collection[str], environment: Environment) -> Iterator[Watch]:
    """Yield the watches of the metrics of `services`, each a folder of functions or their name for it."""
    for service in (ROUTER, URGENT_ROUTER):
        if service in services:
            yield from _of_routers(service, environment)
    for service in (HTTP_SINK, URGENT_HTTP_SINK):
        if service in services:
            yield _of_given_up(service, environment)
    for service, remedy in _RETRIES.items():
        if service in services:
            yield _of_retries(service, remedy, environment)
    others = {
        "fleet": _of_fleet,
        "presence": _of_presence,
        DOWNLINK: _of_downlink,
        CANARY: _of_canary,
    }
    for service, watches in others.items():
        if service in services:
            yield from watches(environment)


def _of_retries(service: str, remedy: str, environment: Environment) -> Watch:
    """Of messages that come again: partial responses leave `Errors` at 0, and the age of a queue counts no
    message that was received three times (Amazon SQS guide, CloudWatch metrics)."""
    is_urgent = service in _URGENT
    return Watch(
        name=environment.resource_name(f"{service.replace('_', '-')}-retried"),
        metric=figure(environment, service, "Retried", period=MINUTE if is_urgent else FIVE_MINUTES),
        is_page=is_urgent,
        periods=2 if service == URGENT_ROUTER else 3,
        remedy=remedy,
    )


def _of_given_up(service: str, environment: Environment) -> Watch:
    return Watch(
        name=environment.resource_name(f"{service.replace('_', '-')}-dead-lettered"),
        metric=figure(environment, service, "DeadLettered"),
        is_page=service in _URGENT,
        remedy="Endpoints did not take events, which are given up. Their dead letters are in "
        "operations.inbox, with the reason.",
    )


def _of_routers(service: str, environment: Environment) -> Iterator[Watch]:
    name, is_urgent = environment.resource_name(service), service == URGENT_ROUTER
    yield Watch(
        name=f"{name}-urgent-delay",
        metric=figure(environment, service, "UrgentDeliveryDelay", statistic="Maximum"),
        is_page=True,
        threshold=1_000 * environment.alarms.urgent_age_s,
        remedy="An urgent event was in the cloud for too long: see the routers' duration and queues' age.",
    )
    yield Watch(
        name=f"{name}-contract-unseen",
        metric=figure(environment, service, "ContractUnseen"),
        is_page=is_urgent,
        remedy="A process has not seen the contract in force: its messages wait, urgent events went out "
        "by the contract that came with the code. Restore the tables within an hour.",
    )
    yield Watch(
        name=f"{name}-dead-lettered",
        metric=figure(environment, service, "DeadLettered"),
        remedy="Events can never be delivered. Their dead letters are in operations.inbox, with the reason.",
    )
    if is_urgent:
        return
    # All routers read the same tables.
    yield Watch(
        name=f"{name}-contract-refused",
        metric=figure(environment, service, "ContractRefused"),
        remedy="A published contract cannot be used; the one before it stays. Publish it by the command.",
    )
    yield Watch(
        name=f"{name}-contract-unchecked",
        metric=figure(environment, service, "ContractUnchecked"),
        periods=3,
        remedy="A table that routes come from does not answer; what was read last stays.",
    )
    yield Watch(
        name=f"{name}-subscription-refused",
        metric=figure(environment, service, "SubscriptionRefused"),
        remedy="What a participant subscribed or announced cannot be used; the log says why.",
    )


def _of_fleet(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("provisioning-hook-taken"),
        metric=figure(environment, "fleet", "RegistrationRefused", reason="taken"),
        remedy="Somebody with the claim wanted to be a device that is in service. See parts/fleet/how-to.md.",
    )
    yield Watch(
        name=environment.resource_name("key-suspected"),
        metric=figure(environment, "fleet", "KeySuspected"),
        remedy="Somebody besides a device may hold its key. The log line 'a key may be stolen' names it, and "
        "so does the event device.suspected.v1 in operations.inbox. See parts/fleet/how-to.md.",
    )


def _of_presence(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("fleet-outage"),
        metric=figure(environment, "presence", "FleetOutage", statistic="Maximum", period=MINUTE),
        is_page=True,
        remedy="A share of the fleet went within minutes, and carers get one notice. Was a policy, a "
        "certificate or an image rolled out? Then see AWS IoT's health. See docs/how-to/runbook.md.",
    )
    outage = environment.presence.outage
    yield Watch(
        name=environment.resource_name("connections-refused"),
        # Of the account: IoT Core has no metric by device or policy.
        metric=metric("AWS/IoT", "Connect.AuthError", "Sum", FIVE_MINUTES, Protocol="MQTT"),
        is_page=True,
        threshold=max(outage.least, outage.share * environment.devices),
        remedy="IoT Core refuses connections of many devices: see their policy, and what became of their "
        "certificates. `aws iot list-attached-policies` and IoT Core's log name the reason.",
    )
    yield Watch(
        name=environment.resource_name("presence-late"),
        metric=figure(environment, "presence", "TimersLate"),
        periods=3,
        remedy="Notices come later than is promised, or timers were lost: see the age of the queue "
        "presence-timers, its dead letters, and the functions' throttles. See parts/presence/explanation.md.",
    )
    yield Watch(
        name=environment.resource_name("presence-flooding"),
        metric=figure(environment, "presence", "DeviceFlooding"),
        remedy="A device sends more than its quota. The log line 'a device floods' names it, and so does "
        "the event device.flooding.v1 in operations.inbox. `fleet quarantine DEVICE` takes it off.",
    )


def _of_downlink(environment: Environment) -> Iterator[Watch]:
    yield Watch(
        name=environment.resource_name("downlink-parked"),
        metric=figure(environment, "downlink", "Parked"),
        remedy="A device is connected and acknowledges nothing that is sent down. See its log.",
    )
    if environment.alarms.is_detailed:
        yield Watch(
            name=environment.resource_name("downlink-not-transmitted"),
            metric=figure(environment, "downlink", "NotTransmitted"),
            periods=2,
            remedy="AWS IoT does not take what is published to devices; it is repeated. See the downlink "
            "functions' log for its answer, their role, and the quotas of AWS IoT.",
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
        remedy="The canary's alarms do not reach their inbox, or late: people's alarms neither. See the "
        "canary's log for the hop that failed, then the urgent queue and router (docs/reference/alarms.md).",
    )
    yield Watch(
        name=environment.resource_name("dead-letters"),
        metric=figure(environment, CANARY, "DeadLetters", statistic="Maximum", period=looks),
        is_silence_bad=settings.is_canary_scheduled,
        remedy="Messages failed time and again; the canary's log names their dead-letter queues. Find "
        "the cause, then redrive: they are kept for 14 days from when they were first sent.",
    )
    if not settings.is_detailed:
        yield Watch(
            name=environment.resource_name("backlog"),
            metric=figure(environment, CANARY, "Backlog", statistic="Maximum", period=looks),
            threshold=settings.age_s,
            remedy="A queue has not been empty for so many seconds; the canary's log names it. Its reader is "
            "down, too slow, or fails.",
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
