"""Find the handlers of an event by the contract in force: the given one or what was published since.

With it go, as in the routers, what participants subscribed and what they announced.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from eventplane.contract import Contract, ContractError, load_compiled
from eventplane.contract.publication import ContractTable
from eventplane.contract.subscription import Subscription, with_subscriptions
from eventplane.contract.subscription_table import SubscriptionTable
from eventplane.conversation.handlers import Handlers
from eventplane.conversation.messages import Replier
from eventplane.conversation.open_requests import NO_ANNOUNCEMENTS, Announcements
from eventplane.envelope import Envelope
from eventplane.interest.announcement import Announcement, with_interest
from eventplane.interest.table import InterestTable
from eventplane_aws.tables import DynamoDbTables
from eventplane_client.aws import unavailable
from eventplane_client.errors import ClientSettingsError, UnavailableError
from eventplane_client.system import SYSTEM, System

REFRESH_S: Final = 5.0
"""How old what is known of the tables may be, seconds."""


class ContractInForce:
    """For `participant`, with the `deployed` contract; the rest are tables of `dynamodb`, a boto3 client.

    Thread-safe.
    """

    def __init__(
        self,
        participant: str,
        deployed: Contract,
        dynamodb: Any,
        *,
        contracts: str,
        subscriptions: str,
        interest: str,
        system: System = SYSTEM,
    ) -> None:
        self._participant = participant
        self._deployed = deployed
        tables = DynamoDbTables(dynamodb, system.random_bytes)
        self._contracts = ContractTable(tables, contracts)
        self._subscriptions = SubscriptionTable(tables, subscriptions)
        self._interest = InterestTable(tables, interest)
        self._lock = system.lock()
        self._system = system
        self._handlers: Handlers | None = None
        self._basis: tuple[str, frozenset[Subscription], frozenset[Announcement]] | None = None
        self._looked_at = 0.0
        self._last: Announcements = NO_ANNOUNCEMENTS

    def announced(self) -> Announcements:
        """The last announcement of each participant, as `handlers` last read it. A renewal makes none."""
        with self._lock:
            return self._last

    def handlers(self, event: Envelope) -> frozenset[Replier]:
        """Return the handlers. Raises `UnavailableError`, `NotAskingError`, `NotOneDeviceError`."""
        with self._lock:
            if self._handlers is None or self._system.monotonic() - self._looked_at >= REFRESH_S:
                try:
                    with unavailable(self._participant):
                        self._handlers = self._look()
                except UnavailableError:
                    if self._handlers is None:
                        raise
                    # What is known may be a little old; that of a minute ago is better than nothing.
                self._looked_at = self._system.monotonic()
            found = self._handlers
        return found.of(event, self._participant)

    def _look(self) -> Handlers:
        contract, subscribed = self._published(), self._subscriptions.all()
        now_s = self._system.now_s()
        leased = [each for each in self._interest.all(now_s) if each.until_s > now_s]
        last: dict[Replier, int] = {}
        for each in leased:
            announcer = Replier(each.announcement.participant)
            last[announcer] = max(each.announced_ms, last.get(announcer, 0))
        self._last = {announcer: at_ms for announcer, at_ms in last.items() if at_ms}
        announced = frozenset(each.announcement for each in leased)
        if self._handlers is not None and self._basis == (contract.version, subscribed, announced):
            return self._handlers
        with_routes, _ = with_subscriptions(contract, subscribed)
        handlers = Handlers(with_interest(with_routes, announced)[0])
        self._basis = (contract.version, subscribed, announced)
        return handlers

    def _published(self) -> Contract:
        """As the routers choose: the newest published one that can be used, else the deployed one."""
        base = self._deployed.version
        head = self._contracts.head(base)
        for version in head.versions if head else ():
            if version == base:
                return self._deployed
            with suppress(ContractError):
                return self._contracts.contract(version)
        return self._deployed


def deployed_contract(path: Path) -> Contract:
    """The compiled contract in a file. Raises `ClientSettingsError`."""
    try:
        return load_compiled(path.read_bytes(), str(path))
    except (OSError, ContractError) as error:
        remedy = "name what `eventplane contract compile --output FILE` wrote"
        raise ClientSettingsError("contract", str(error), remedy) from error
