"""The functions' figures, in the log as embedded metrics: CloudWatch makes metrics of them by itself.

The dimension `service` is the environment and the functions' package (`eventplane-prod-router`): one metric
for all functions that do the same, so that one alarm watches them all. A line's log group names the function.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit, single_metric
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from eventplane.reasons import Outcome
from eventplane.settings import variable_of

NAMESPACE: Final = "EventPlane"


class Count(StrEnum):
    """The counters of an invocation."""

    MESSAGES = "Messages"
    """Messages of the source queue."""
    REQUESTS = "Requests"
    """Requests that an API answered, refused ones included."""
    RETRIED = "Retried"
    """Messages that went back to it."""
    DELIVERED = "Delivered"
    """Copies of events written to an inbox, or taken by an endpoint; the next five are events too, as the
    ledger, or the handovers, have them."""
    DEAD_LETTERED = "DeadLettered"
    EXPIRED = "Expired"
    DROPPED = "Dropped"
    UNROUTED = "Unrouted"
    NOT_WANTED = "NotWanted"
    """Events that a route takes and its reader said it does not handle."""
    CONTRACT_REFUSED = "ContractRefused"
    """Looks at a published contract that cannot be used; an earlier one stays in force."""
    CONTRACT_UNCHECKED = "ContractUnchecked"
    """Looks for a published contract that failed; the last one stays in force."""
    CONTRACT_UNSEEN = "ContractUnseen"
    """Messages that went back because the process has not seen the contract in force yet."""
    CLOCK_SKEW = "ClockSkew"
    """Batches decided by the queue's clock, because the machine's own is ahead or behind."""
    SUBSCRIPTION_REFUSED = "SubscriptionRefused"
    """Subscriptions and announcements that the contract in force has no use for, at each change."""
    ARCHIVED = "Archived"
    """Messages whose content was written to the tap, or to the ledger."""
    LEDGER_DETOURED = "LedgerDetoured"
    """Records that the ledger's queue refused and the archive took."""
    QUARANTINED = "Quarantined"
    """Messages that are no frame."""
    RESENT = "Resent"
    """Failures of the ingest rule that were handed to a queue again."""
    TRANSMITTED = "Transmitted"
    """Events published to a device's inbox."""
    NOT_TRANSMITTED = "NotTransmitted"
    """Publishes to a device's inbox that AWS IoT did not take; they are repeated."""
    ACKNOWLEDGED = "Acknowledged"
    """What devices answered, this one and the next."""
    REJECTED = "Rejected"
    PARKED = "Parked"
    """Deliveries that a device did not acknowledge although it is there; the reconciler goes on with them."""
    RECONCILED = "Reconciled"
    """Items that the reconciler looked at."""
    TIMERS_LATE = "TimersLate"
    """Devices that were judged later than is promised, or whose timer was lost."""

    SPANS = "Spans"
    """Spans of events that a collector took."""
    SPANS_LOST = "SpansLost"
    """Spans that it did not take in time; the events are as they should be."""
    NOT_IN_TAP = "NotInTap"
    """Deliveries that an order asks for and the tap has no event of any more."""


class Delay(StrEnum):
    """The longest time in an invocation from acceptance to delivery, milliseconds."""

    DELIVERY = "DeliveryDelay"
    URGENT = "UrgentDeliveryDelay"
    CANARY = "CanaryDelay"
    """Of each of the canary's alarms, from its publish to its inbox."""


class Gauge(StrEnum):
    """The measurements of a look; 0 is written as well, to show that somebody looked."""

    CANARY_MISSED = "CanaryMissed"
    """1 where an alarm of the canary's was not in its inbox in time, 0 where it was."""
    CONNECTED = "Connected"
    """Devices that are connected and well, as presence counts them every minute; the next three as well."""
    LOST = "Lost"
    """Devices that are not connected."""
    QUIET = "Quiet"
    """Devices that are connected and not well."""
    OUTAGE = "FleetOutage"
    """Devices that went within minutes, where they are so large a share of the fleet that it is an outage."""

    DEAD_LETTERS = "DeadLetters"
    """Messages in dead-letter queues, which the canary counts."""
    BACKLOG = "Backlog"
    """Seconds for which a queue has not been empty, the longest of all queues."""


_OUTCOMES: Final = {
    Outcome.DELIVERED: Count.DELIVERED,
    Outcome.DEAD_LETTERED: Count.DEAD_LETTERED,
    Outcome.EXPIRED: Count.EXPIRED,
    Outcome.DROPPED: Count.DROPPED,
    Outcome.UNROUTED: Count.UNROUTED,
    Outcome.NO_INTEREST: Count.NOT_WANTED,
}

# The stacks set it. Without it Powertools takes POWERTOOLS_SERVICE_NAME.
_SERVICE: Final = os.environ.get(variable_of("metrics_service"))

_lock = threading.Lock()
"""Powertools has none, and some functions have threads that count."""


class _Provider(AmazonCloudWatchEMFProvider):
    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:
        """Write what was counted; what another thread counts meanwhile is written the next time."""
        with _lock:
            super().flush_metrics(raise_on_empty_metrics)


metrics = Metrics(provider=_Provider(namespace=NAMESPACE, service=_SERVICE))

# An invocation that counted nothing is no mistake.
warnings.filterwarnings("ignore", "No application metrics to publish")


def count(metric: Count, number: int = 1) -> None:
    """Add `number` to `metric`; nothing for 0, as each hour with a value is paid for. From any thread."""
    if not number:
        return
    with _lock:
        metrics.add_metric(metric.value, MetricUnit.Count, number)
        if metric is Count.RETRIED and _SERVICE:
            # By function as well: a roll-out ends when the function itself gives messages back.
            with single_metric(metric.value, MetricUnit.Count, number, namespace=NAMESPACE):
                pass


def count_outcomes(outcomes: Mapping[Outcome, int]) -> None:
    """Add what became of events. From any thread."""
    for outcome, metric in _OUTCOMES.items():
        if number := outcomes.get(outcome):
            count(metric, number)


def measure(figure: Delay | Gauge, value: int) -> None:
    """Add one value of `figure`, in the unit that it names."""
    unit = MetricUnit.Milliseconds if isinstance(figure, Delay) else MetricUnit.Count
    metrics.add_metric(figure.value, MetricUnit.Seconds if figure is Gauge.BACKLOG else unit, value)


def mark(name: str, **dimensions: str) -> None:
    """One more of `name`, in this service, with `dimensions` of few values each."""
    with single_metric(name=name, unit=MetricUnit.Count, value=1, namespace=NAMESPACE) as metric:
        if _SERVICE:
            metric.add_dimension(name="service", value=_SERVICE)
        for dimension, value in dimensions.items():
            metric.add_dimension(name=dimension, value=str(value))
