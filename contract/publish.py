"""Put a contract into force without a deployment: checked against what is deployed, and one at a time.

The publisher needs `cloudformation:DescribeStacks`, and GetItem, PutItem and DeleteItem on the table. Nothing
in the plane has the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.alarm_floor import floor_problems
from eventplane.contract import Channel, Contract, Problem, Route, Transport
from eventplane.contract.publication import (
    CONTRACTS_TABLE,
    ContractTable,
    Head,
    cloud_destinations,
    published,
    unserved,
)
from eventplane.errors import EventPlaneError
from eventplane.records import Tables
from eventplane.resource_names import RECEIPTS_OUTPUT, RECEIPTS_SUFFIX, RETIRED_OUTPUT, resource_name
from eventplane.settings import Settings, SettingsError, variable_of
from eventplane_aws.rules import DYNAMODB_ITEM


class PublishError(EventPlaneError):
    """A contract was not published; nothing has changed."""


class NotDeployedError(PublishError):
    """The plane of the environment `name` cannot be found. `problem` is what AWS reports."""

    name: str
    problem: str
    message = (
        "the plane {name!r} cannot be reached: {problem}; name one that is deployed, and use credentials and "
        "a region of its account"
    )


class DestinationsNotDeployedError(PublishError):
    """`inboxes` have no queue, or one of the other kind; `routes` lead there."""

    inboxes: list[str]
    routes: list[Route]
    message = (
        "no such queues are deployed: {places}; a new participant or another transport needs a deployment"
    )

    @property
    def places(self) -> str:
        return ", ".join([*self.inboxes, *(f"{each.name} -> {each.destination}" for each in self.routes)])


class SourceMissingError(PublishError):
    """`participants`, whose outboxes are deployed, are not in the contract."""

    participants: list[str]
    message = "deployed participants are missing from the contract: {names}; remove them by a deployment"

    @property
    def names(self) -> str:
        return ", ".join(self.participants)


class TooLargeError(PublishError):
    """The compressed contract has `size` bytes, more than `most`, the size of an item."""

    size: int
    most: int
    message = (
        "the contract has {size} bytes compressed, and only {most} can be published; deploy it instead "
        "(make deploy)"
    )


class AlarmFloorError(PublishError):
    """Devices would refuse the contract: `problems` are the alarms of their `image` that it takes away."""

    image: str
    problems: Sequence[Problem]
    message = "devices with the contract {image} refuse it, for their alarms:{lines}"

    @property
    def lines(self) -> str:
        return "".join(f"\n  {each}" for each in self.problems)


class CandidateError(PublishError):
    """The contract `candidate` is being rolled out."""

    candidate: str
    message = (
        "contract {candidate} is being rolled out; finish that or go back first "
        "(eventplane contract rollout status)"
    )


class NoCandidateError(PublishError):
    """No roll-out is to be ended."""

    message = "no contract is being rolled out; look at what is in force (eventplane contract rollout status)"


class OvertakenError(PublishError):
    """Somebody published while this contract was checked."""

    message = "somebody else published just now; look at what is in force, then publish again"


def check_floor(image: Contract, contract: Contract) -> None:
    """Raise `AlarmFloorError` where devices whose image has the contract `image` would refuse `contract`."""
    if problems := floor_problems(image, contract):
        raise AlarmFloorError(image.version, problems)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A deployment: its contract `base`, the queue URL of each inbox it routes to, the table's name.

    To participants that are `retired` nothing is routed; their outboxes are read. Readers of the inboxes
    `with_receipts` can leave receipts.
    """

    base: str
    queues: Mapping[str, str]
    table: str
    retired: frozenset[str] = frozenset()
    with_receipts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Outputs(Settings):
    """What a publisher needs of the outputs of the routers' stack."""

    inboxes: Mapping[str, str]


def find_deployment(name: str, clients: Any) -> Baseline:
    """The deployment of the environment `name`; `clients` makes boto3 clients. Raises `NotDeployedError`."""
    try:
        stacks = clients("cloudformation").describe_stacks(StackName=f"eventplane-{name}-routing")["Stacks"]
        outputs = {each["OutputKey"]: each["OutputValue"] for each in stacks[0].get("Outputs", [])}
        inboxes = _Outputs.read({variable_of("inboxes"): outputs["Inboxes"]}).inboxes
        named = (
            frozenset(filter(None, outputs.get(each, "").split(",")))
            for each in (RETIRED_OUTPUT, RECEIPTS_OUTPUT)
        )
        return Baseline(outputs["ContractVersion"], inboxes, resource_name(name, CONTRACTS_TABLE), *named)
    except (ClientError, BotoCoreError) as error:
        raise NotDeployedError(name, str(error)) from error
    except LookupError as error:
        raise NotDeployedError(name, f"it is of an older version, {error!r} is missing") from error
    except SettingsError as error:
        raise NotDeployedError(name, f"it is of another version, {error}") from error


class ContractPublisher:
    """Publishes for one `deployment`, in its `tables`; `now` is the wall clock."""

    def __init__(self, deployment: Baseline, tables: Tables, now: Callable[[], datetime]) -> None:
        self._now = now
        self._deployment = deployment
        self._table = ContractTable(tables, deployment.table)

    def in_force(self) -> Head | None:
        """The head that is published for the deployment; None where its own contract is in force."""
        return self._table.head(self._deployment.base)

    def check(self, contract: Contract) -> None:
        """Raises `DestinationsNotDeployedError`, `SourceMissingError`, `TooLargeError`."""
        queues = self._deployment.queues
        # Every deployed service has an outbox, whose channel its router, which others share, must find.
        services = {address.partition(".")[0] for address in queues} | self._deployment.retired
        gone = services - set(contract.participants)
        if gone:
            raise SourceMissingError(sorted(gone))
        # A participant that asks no more leaves its queue for replies behind.
        deployed = [each for each in contract.channels if each.address in queues]
        of_a_kind = {each.address for each in deployed if _carries(queues[each.address], each)}
        # Also where no route leads: participants add routes of their own.
        destinations = list(cloud_destinations(contract))
        missing = {each.address for each in destinations} - of_a_kind
        missing |= {
            f"{each.participant}{RECEIPTS_SUFFIX}"
            for each in destinations
            if each.asks_for_receipts and each.address not in self._deployment.with_receipts
        }
        routes = unserved(contract, of_a_kind)
        if missing or routes:
            inboxes = missing | {route.destination for route in routes}
            raise DestinationsNotDeployedError(sorted(inboxes), routes)
        size = len(published(contract).compiled) + 100
        if size > DYNAMODB_ITEM.most:
            raise TooLargeError(size, DYNAMODB_ITEM.most)

    def publish(self, contract: Contract) -> None:
        """Put `contract` into force. Raises what `check` raises, `CandidateError`, and `OvertakenError`."""
        self.check(contract)
        before = self._settled()
        self._store(contract)
        if before and before.version == contract.version:
            return
        head = before or Head(self._deployment.base, "", None, "")
        self._write(replace(head, version=contract.version, previous=head.version or None))

    def offer(self, contract: Contract) -> Head:
        """Put `contract` into force beside the one in force, for devices that follow it; return the head.

        Nothing changes if it is in force already, for all or for those. Raises what `publish` raises.
        """
        self.check(contract)
        before = self.in_force()
        if before and before.candidate not in (None, contract.version):
            raise CandidateError(before.candidate)
        self._store(contract)
        if before and contract.version in (before.candidate, before.version):
            return before
        base = self._deployment.base
        return self._write(replace(before or Head(base, base, None, ""), candidate=contract.version))

    def finish(self, candidate: str) -> Head:
        """Put the `candidate` into force for all; return the head.

        Nothing changes if it is already. Raises `NoCandidateError`, and `OvertakenError`.
        """
        before = self.in_force()
        if before and before.candidate is None and before.version == candidate:
            return before
        if before is None or before.candidate != candidate:
            raise NoCandidateError
        return self._write(replace(before, version=candidate, previous=before.version, candidate=None))

    def go_back(self, candidate: str) -> Head:
        """End the roll-out of the `candidate`: the other contract is in force for all; return the head.

        Nothing changes if it has ended so already. Raises `NoCandidateError`, and `OvertakenError`.
        """
        before = self.in_force()
        if before and before.candidate is None and before.version != candidate:
            return before
        if before is None or before.candidate != candidate:
            raise NoCandidateError
        return self._write(replace(before, candidate=None))

    def withdraw(self) -> None:
        """Put the contract of the deployment into force again. Raises `CandidateError`, `OvertakenError`."""
        before = self._settled()
        if before and not self._table.heads.remove(before):
            raise OvertakenError

    def _settled(self) -> Head | None:
        """Return the head. Raises `CandidateError` while it names a candidate."""
        head = self.in_force()
        if head and head.candidate:
            raise CandidateError(head.candidate)
        return head

    def _store(self, contract: Contract) -> None:
        """Store what a head will name, so that it never names what is not there.

        Always, so that a damaged one is mended.
        """
        self._table.contracts.force(published(contract))

    def _write(self, head: Head) -> Head:
        """Write the successor of `head`, which was changed since it was read. Raises `OvertakenError`."""
        written = self._table.heads.write(
            replace(head, published_at=self._now().isoformat(timespec="seconds"))
        )
        if not written:
            raise OvertakenError
        return written


def _carries(url: str, channel: Channel) -> bool:
    """Whether what is deployed at `url` is of the transport that the contract gives `channel`."""
    if channel.is_added_protocol:
        return url.partition(":")[0] == channel.transport
    is_queue = url.partition(":")[0] in ("http", "https")
    return is_queue and url.endswith(".fifo") is (channel.transport is Transport.SQS_FIFO)
