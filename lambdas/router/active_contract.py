"""The contract in force: the one that came with the code, or what was published since.

With it go the routes that participants added and what they announced that they handle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.contract import Contract, ContractError
from eventplane.contract.publication import ContractTable, Head
from eventplane.contract.subscription import IN_FORCE_S, Subscription, with_subscriptions
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.interest.announcement import Announcement, with_interest
from eventplane.interest.table import InterestTable, LeasedAnnouncement
from lambdas.common.aws import WORST_CALL_MS
from lambdas.common.log import logger
from lambdas.common.metrics import Count, count
from lambdas.common.system import Call, Clock, Pool, Threads

RETRY_MS: Final = 1_000
"""Shortest time between two looks while a table has not been read yet, milliseconds. Ours: whatever waits
goes on soon after the table is back, and a table that is throttled is not asked for every batch."""

_PAUSE: Final = 2
"""So many times as long as a look took no other one is taken. Ours: tables that hang take a third of the
function's time, and events wait no longer than one of them hangs."""

PATIENCE_S: Final = 1.0
"""Longest that events wait for a look at the tables, seconds. Ours: three reads take 0.1 s, and 0.5 s where
they open the process's first connection."""

CONTRACTS: Final = "contracts"
SUBSCRIPTIONS: Final = "subscriptions"
INTEREST: Final = "interest"


class MadeOfContract(Protocol):
    """An object made of a contract, such as a router's engine, and that contract."""

    @property
    def contract(self) -> Contract: ...


Engine = TypeVar("Engine", bound=MadeOfContract)


class _UnusableError(Exception):
    """What participants added makes no contract that can be used: its own routes stay."""


@dataclass(frozen=True, slots=True)
class Unseen(Generic[Engine]):
    """The contract in force is not known; `engine` is made of what is at hand.

    It has not been seen since the process started: at hand is the contract that came with the code, or the
    published one without what participants subscribed. Or a function that delivers events could not read the
    subscriptions for `IN_FORCE_S`. Routes may be missing, so that what it does not deliver is not done.
    """

    engine: Engine


class ActiveContract(Generic[Engine]):
    """Keeps the engine of the contract in force, at most `refresh_ms` older than the tables.

    `build` makes the engine of a contract, or raises where it cannot be used: then an earlier one stays, or
    where that is due to what was added, the contract without it.
    `queues` are the inboxes that it can lead to; None where nobody writes to them.
    While a table cannot be read, what it said last stays as well, announcements for as long as they hold.
    Until contracts and subscriptions have been read once, the engine is `Unseen`. With `queues` it is so
    again when what was read of one of them is `IN_FORCE_S` old: something newer may be in force.
    Announcements are no part of that: without them, more is delivered.
    `under` puts an engine into force by the table's head, with the contract that is offered beside it and its
    engine, where it can be used (None for both: there is none). Without `under` there is no second version.
    """

    def __init__(
        self,
        *,
        bundled: Contract,
        build: Callable[[Contract], Engine],
        table: ContractTable,
        subscriptions: SubscriptionTable,
        interest: InterestTable,
        refresh_ms: int,
        clock: Clock,
        queues: Collection[str] | None = None,
        under: Callable[[Engine, Head, Contract | None, Engine | None], Engine] | None = None,
    ) -> None:
        self._bundled = build(bundled)
        self._published = self._bundled
        self._engine = self._bundled
        self._build = build
        self._table = table
        self._subscriptions = subscriptions
        self._interest = interest
        self._queues = queues
        self._under = under
        self._head: Head | None = None
        self._offered: Engine | None = None
        self._subscribed: frozenset[Subscription] = frozenset()
        self._leased: frozenset[LeasedAnnouncement] = frozenset()
        self._announced: frozenset[Announcement] = frozenset()
        self._derived_from = self._basis
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._checked_ms: int | None = None
        self._pause_ms = 0
        self._refused: set[str] = set()
        self._unseen = {CONTRACTS, SUBSCRIPTIONS}
        self._is_derived = False
        self._read_ms = {CONTRACTS: 0, SUBSCRIPTIONS: 0, INTEREST: 0}
        self._known_ms = 0
        self._is_stale = False

    @property
    def _basis(self) -> tuple[object, ...]:
        """The basis of the engine; the published contract first."""
        return self._published, self._head, self._offered, self._subscribed, self._announced

    @property
    def is_seen(self) -> bool:
        """True if the last `engine` is made of all that events can be due by."""
        return not self._unseen and self._is_derived and not self._is_stale

    @property
    def bundled(self) -> Contract:
        """The contract that came with the code."""
        return self._bundled.contract

    def engine(self) -> Engine | Unseen[Engine]:
        """The engine to route the next messages by; it stays the same while they are worked on."""
        if self.is_due:
            self.look()
        return self.current()

    def current(self) -> Engine | Unseen[Engine]:
        """The engine by the tables as they were read last. From any thread, also during a `look`."""
        # What was written before the tables were read last is among that which the engine is made of.
        self._is_stale = self._queues is not None and not (
            0 <= self._clock() - self._known_ms < 1_000 * IN_FORCE_S
        )
        engine, is_seen = self._engine, self.is_seen
        return engine if is_seen else Unseen(engine)

    def look(self) -> None:
        """Read the tables and make the engine of them."""
        now_ms = self._clock()
        self._look_at_all(now_ms)
        # Also after a failure: a table that is down is not asked for every message.
        self._checked_ms = self._clock()
        # Bounded, because the clock may have been put forward meanwhile.
        self._pause_ms = _PAUSE * min(self._checked_ms - now_ms, WORST_CALL_MS)
        # What is only renewed changes nothing: a lease is no part of a version.
        self._announced = frozenset(
            each.announcement for each in self._leased if 1_000 * each.until_s > now_ms
        )
        self._derive_safely()

    @property
    def is_due(self) -> bool:
        """True if it is time for another look."""
        now_ms = self._clock()
        if self._checked_ms is None:
            return True
        interval_ms = self._refresh_ms if self.is_seen else min(RETRY_MS, self._refresh_ms)
        # A clock that was put back does not postpone the next look.
        return not 0 <= now_ms - self._checked_ms < max(interval_ms, self._pause_ms)

    def _look_at_all(self, began_ms: int) -> None:
        for table, refresh in (
            (CONTRACTS, self._refresh),
            (SUBSCRIPTIONS, self._refresh_subscriptions),
            (INTEREST, self._refresh_interest),
        ):
            if self._look(table, refresh):
                self._unseen.discard(table)
            elif self._unseen or self._clock() - began_ms >= RETRY_MS:
                # Urgent events wait meanwhile: a table that hangs takes seconds of the function's time.
                return

    def _look(self, table: str, refresh: Callable[[], None]) -> bool:
        """Whether the table could be read."""
        began_ms = self._clock()
        try:
            refresh()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the others are read
            logger.warning(
                f"the table of {table} could not be read",
                contract=self._engine.contract.version,
                error=f"{type(error).__name__}: {error}",
            )
            count(Count.CONTRACT_UNCHECKED)
            return False
        self._read_ms[table] = began_ms
        return True

    def _refresh_subscriptions(self) -> None:
        self._subscribed = self._subscriptions.all()

    def _refresh_interest(self) -> None:
        self._leased = self._interest.all(self._clock() / 1_000)

    def _derive_safely(self) -> None:
        """Derive the engine; where that fails, the last one stays, unless another contract is published.

        That one is then at hand without what was added, and `Unseen`. The next look tries again.
        """
        basis = self._basis
        try:
            if basis != self._derived_from:
                self._derive()
        except Exception:  # noqa: BLE001 - whatever is wrong with what was added, routers go on
            logger.exception("what was added cannot be read", contract=self._published.contract.version)
            count(Count.CONTRACT_UNCHECKED)
            if not self._is_derived or self._derived_from[0] is not self._published:
                # In this order: another thread must not take it for what is in force.
                self._is_derived = False
                self._engine = self._published
            return
        self._derived_from = basis
        self._known_ms = min(self._read_ms[CONTRACTS], self._read_ms[SUBSCRIPTIONS])
        self._is_derived = not self._unseen

    def _derive(self) -> None:
        """Route by the published contract with subscriptions and interest, and by the candidate with them."""
        try:
            engine = self._with_added(self._published)
        except _UnusableError:
            engine = self._published
        if self._under and self._head:
            offered, candidate = self._offered, None
            try:
                candidate = self._with_added(offered) if offered else None
            except Exception:  # noqa: BLE001 - whatever is wrong with a candidate, the other contract stays
                logger.exception("a candidate cannot be used", contract=self._head.candidate)
                count(Count.CONTRACT_REFUSED)
            engine = self._under(engine, self._head, offered.contract if offered else None, candidate)
        self._engine = engine

    def _with_added(self, published: Engine) -> Engine:
        """Return the engine with what participants added. Raises `_UnusableError` where it cannot be used."""
        contract, refused = with_subscriptions(published.contract, self._subscribed, self._queues)
        for subscription, problem in refused.items():
            logger.warning("a subscription cannot be used", route=subscription.route, problem=str(problem))
            count(Count.SUBSCRIPTION_REFUSED)
        contract = self._with_interest(contract)
        if contract is published.contract:
            return published
        try:
            engine = self._build(contract)
        except Exception as error:
            logger.exception("what was added cannot be used", contract=published.contract.version)
            count(Count.SUBSCRIPTION_REFUSED)
            raise _UnusableError from error
        logger.info(
            "subscriptions and interest are in force",
            contract=contract.version,
            subscriptions=len(self._subscribed),
            announcements=len(self._announced),
        )
        return engine

    def _with_interest(self, contract: Contract) -> Contract:
        """Return `contract` with what was announced; as it is if that cannot be added."""
        try:
            contract, unusable = with_interest(contract, self._announced)
        except ContractError:
            # Without interest more is delivered; without an engine, only urgent events.
            logger.exception("interest cannot be added", contract=contract.version)
            count(Count.SUBSCRIPTION_REFUSED)
            return contract
        for announcement, problem in unusable.items():
            logger.warning(
                "an announcement cannot be used", participant=announcement.participant, problem=str(problem)
            )
            count(Count.SUBSCRIPTION_REFUSED)
        return contract

    def _refresh(self) -> None:
        head = self._table.head(self._bundled.contract.version)
        candidate = head.candidate if head and self._under else None
        offered = self._offered
        if offered and offered.contract.version != candidate:
            # First: what ended is over, also where what follows cannot be read.
            self._offered = None
        self._head = head
        for version in head.versions if head else ():
            if version == self._published.contract.version:
                break
            is_offered = offered is not None and offered.contract.version == version
            if found := offered if is_offered else self._load(version):
                self._published = found
                logger.info("a published contract is in force", contract=version)
                break
        # What is withdrawn is over; what is only broken replaces nothing.
        if head is None:
            self._published = self._bundled
        if candidate and self._offered is None:
            self._offered = self._load(candidate)

    def _load(self, version: str) -> Engine | None:
        if version == self._bundled.contract.version:
            return self._bundled
        if version not in self._refused:
            try:
                return self._build(self._table.contract(version))
            except (ClientError, BotoCoreError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the one in force stays
                logger.exception("a published contract cannot be used", contract=version)
                # An item without a whole contract is mended by publishing once more: it is read again.
                if not isinstance(error, ContractError):
                    self._refused.add(version)
        count(Count.CONTRACT_REFUSED)
        return None


@dataclass(slots=True)
class BoundedLook(Generic[Engine]):
    """Keeps events from waiting for tables that hang: the look at them goes on in a thread.

    Events wait for it for `patience_s` at most, once for each look; then they go by what was read before.
    """

    in_force: ActiveContract[Engine]
    threads: Threads
    monotonic: Callable[[], float]
    patience_s: float = PATIENCE_S
    _thread: Pool = field(init=False)
    _look: Call[None] | None = field(default=None, init=False)
    _until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._thread = self.threads.pool(1)

    def engine(self) -> Engine | Unseen[Engine]:
        """The engine to route the next messages by."""
        if self._look is None and self.in_force.is_due:
            self._look = self._thread.submit(self.in_force.look)
            self._until = self.monotonic() + self.patience_s
        if self._look is not None:
            if self.threads.ended([self._look], max(0.0, self._until - self.monotonic())):
                look, self._look = self._look, None
                look.result()
            else:
                logger.warning("the tables do not answer; routed by what was read before")
                count(Count.CONTRACT_UNCHECKED)
        return self.in_force.current()
