"""Items of a cloud service for routers: its subscriptions, and, with a lease, what its program handles."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from eventplane.contract import ContractError
from eventplane.contract.subscription import Subscription, new_subscription
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.interest.announcement import Announcement
from eventplane.interest.table import ANNOUNCEMENT, LEASE_S, LeasedAnnouncement, announcement_item
from eventplane.records import Records
from eventplane.values import timestamp
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.aws import unavailable
from eventplane_client.errors import (
    AlreadySubscribedError,
    ClosedError,
    NotSubscribedError,
    SubscriptionError,
    UnavailableError,
)
from eventplane_client.subscription import in_force_from
from eventplane_client.system import SYSTEM, System


class DynamoDbSubscriptions:
    """Routes of `participant` in `table`; in force `IN_FORCE_S` after they were written at the latest."""

    def __init__(self, dynamodb: Any, table: str, participant: str, system: System = SYSTEM) -> None:
        self._table = SubscriptionTable(DynamoDbTables(dynamodb, system.random_bytes), table)
        self._participant = participant
        self._system = system

    def subscribe(self, name: str, filter: object) -> datetime:
        now = timestamp(self._system.now())
        try:
            subscription = new_subscription(self._participant, name, filter, now)
        except ContractError as error:
            raise SubscriptionError(name, error.problems) from error
        with unavailable(self._participant):
            if self._table.write(subscription):
                return in_force_from(self._system.now())
            known = self._table.get(self._participant, name)
        if known is None or known.filter != subscription.filter:
            raise AlreadySubscribedError(self._participant, name)
        return in_force_from(self._system.now(), _time_of(known))

    def unsubscribe(self, name: str) -> None:
        with unavailable(self._participant):
            known = self._table.get(self._participant, name)
            if known is None or not self._table.remove(known):
                raise NotSubscribedError(self._participant, name)


def _time_of(subscription: Subscription) -> datetime | None:
    """When it was created; None where its text is none, which whoever has rights on the table can write."""
    try:
        return datetime.fromisoformat(subscription.created_at).astimezone(UTC)
    except ValueError:
        return None


_log = logging.getLogger(__name__)

_SHARE: Final = 3
"""Renewed so many times in a lease: one failure more does no harm."""


class DynamoDbInterest:
    """An item of `participant` in `table` through a boto3 DynamoDB client.

    `lease_s` seconds is how long it counts unless it is renewed; `clock` gives Unix seconds.
    """

    def __init__(
        self,
        dynamodb: Any,
        table: str,
        participant: str,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] | None = None,
        system: System = SYSTEM,
    ) -> None:
        self._records = Records(DynamoDbTables(dynamodb, system.random_bytes), table, ANNOUNCEMENT)
        self._participant = participant
        self._lease_s = lease_s
        self._clock = clock or system.now_s
        self._system = system
        self._announced: LeasedAnnouncement | None = None
        self._lock = system.lock()
        self._ending = system.event()
        self._is_started = False

    @cached_property
    def _announcer(self) -> str:
        # Two programs of one participant, an old and a new one, may handle different things; drawn with its
        # first use, as clones of a function's snapshot would share what is drawn before it.
        return self._system.random_bytes(16).hex()

    def announce(self, announcement: Announcement) -> None:
        with self._lock:
            if self._ending.is_set():  # by another thread: it would count until its lease ends
                raise ClosedError(self._participant)
            leased = LeasedAnnouncement(announcement, 0, int(1_000 * self._clock()))
            self._put(leased)
            self._announced = leased
            if not self._is_started:
                self._is_started = True
                self._system.start_thread(f"{self._participant}-interest", self._run)

    def withdraw(self) -> None:
        with self._lock:
            if self._announced is None:
                return
            with unavailable(self._participant):
                self._records.discard(self._participant, self._announcer)
            self._announced = None

    def close(self) -> None:
        self._ending.set()
        try:
            self.withdraw()
        except UnavailableError as error:
            _log.warning("%s: the announcement ends with its lease: %s", self._participant, error)

    def _put(self, leased: LeasedAnnouncement) -> None:
        leased = replace(leased, until_s=int(self._clock() + self._lease_s))
        with unavailable(self._participant):
            self._records.force(announcement_item(leased, self._announcer))

    def _run(self) -> None:
        while not self._ending.wait(self._lease_s / _SHARE):
            with self._lock:
                if self._announced is None:
                    continue
                try:
                    self._put(self._announced)
                except UnavailableError as error:
                    _log.warning("%s: its interest will be unknown: %s", self._participant, error)
