"""Find the contract in force: the archive keeps them by version, the ledger says from when each was used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from eventplane.contract import (
    Channel,
    Contract,
    DeliveryGuarantee,
    ParticipantKind,
    Place,
    Priority,
    Route,
    load_compiled,
)
from eventplane.contract.publication import HEADS, Head, read_head
from eventplane.contract.subscription import without_added
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from eventplane.sinks import GONE_S
from eventplane.values import MAX_TIME_MS, timestamp_ms
from glue_jobs.common.listing import ObjectFault
from glue_jobs.common.objects import Objects, Stored
from glue_jobs.delivery_audit.errors import AlteredContractError, NoContractError

INTERVAL_MS: Final = 5 * 60 * 1_000
"""The intervals in which uses of a contract are collected, milliseconds. Ours."""

STALE_AFTER: Final = 3
"""After how many intervals beside its successor a contract's use is stale. Ours: routers look every 30 s, and
a deployment replaces all of them within minutes."""

SLACK_MS: Final = STALE_AFTER * INTERVAL_MS
"""How long after its beginning or end a roll-out may be unknown to a router, or its publisher's clock wrong,
milliseconds. Ours: as long as a deployment takes."""

MAX_HEAD_BYTES: Final = 4_096
"""Largest archived head, bytes. Ours: it names three versions and a time."""

LOOK_BACK: Final = 36
"""For how many intervals around a decision another version's use is looked for: three hours. Ours."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Routers decided by contract `version` in an interval, first at `first_ms`, Unix milliseconds.

    `interval` is its number, counted in `INTERVAL_MS` from the Unix epoch on. `is_in_force` is false where
    the contract had come with a router's code, which had not yet seen the one in force, and for a replay.
    """

    version: str
    interval: int
    first_ms: int
    is_in_force: bool = True


@dataclass(frozen=True, slots=True)
class Candidacy:
    """The contract `candidate` was in force beside another for devices that followed it, by archived heads.

    Its `versions`, and those `beside` it, are what routers made of the two with what participants added.
    Times are Unix milliseconds; without an end it lasts. It was `taken` if it replaced the other one.
    """

    candidate: str
    from_ms: int
    to_ms: int = MAX_TIME_MS
    is_taken: bool = False
    versions: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()

    def is_certain(self, at_ms: int) -> bool:
        """Return whether every router knows of it at a time: not right after its beginning or end."""
        return self.from_ms + SLACK_MS <= at_ms <= self.to_ms - SLACK_MS

    def is_possible(self, at_ms: int) -> bool:
        """Return whether a router may know of it at a time."""
        return self.from_ms - SLACK_MS <= at_ms <= self.to_ms + SLACK_MS


@dataclass(frozen=True, slots=True)
class Use:
    """A `contract` and when a router first decided by it, Unix milliseconds (None: the ledger has no use)."""

    contract: Contract
    first_used_ms: int | None


@dataclass(frozen=True, slots=True)
class ContractHistory:
    """The contracts of a window, in the order of their first use; at least one."""

    uses: tuple[Use, ...]
    stale: frozenset[tuple[str, int]] = frozenset()
    """Versions with the intervals in which they were used though a successor had long been in force."""

    candidacies: tuple[Candidacy, ...] = ()
    """The roll-outs of contracts, in the order of their beginning."""

    @property
    def contracts(self) -> tuple[Contract, ...]:
        return tuple(use.contract for use in self.uses)

    @property
    def uplinks(self) -> list[str]:
        """The channels over which events come from devices; those that the tap sees."""
        return sorted({contract.device.outbox.address for contract in self.contracts})

    @property
    def homes(self) -> dict[str, bool]:
        """The inboxes on the device, and whether by every contract their readers confirm each event."""
        kind = ParticipantKind.DEVICE_SERVICE
        inboxes = [each.inbox for contract in self.contracts for each in contract.of_kind(kind)]
        confirmed = dict.fromkeys((each.address for each in inboxes), True)
        return confirmed | {each.address: False for each in inboxes if not each.receipts}

    @property
    def home_routes(self) -> Iterator[tuple[Contract, Route]]:
        """The routes by which a device must store urgent events for inboxes on it, with their contracts."""
        for contract in self.contracts:
            # What is urgent by the uplink alone need not be so for a service beside it.
            is_unclear = contract.device.outbox.priority is Priority.URGENT
            for route in () if is_unclear else contract.routes_at(Place.DEVICE):
                declared = route.delivery_guarantee, contract.channel(route.destination).delivery_guarantee
                if route.destination in self.homes and DeliveryGuarantee.BEST_EFFORT not in declared:
                    yield contract, route

    @property
    def inboxes(self) -> list[Channel]:
        """The inboxes of all participants, once for each contract."""
        return [each.inbox for contract in self.contracts for each in contract.participants.values()]

    @property
    def webhooks(self) -> frozenset[str]:
        """The addresses of the inboxes that are webhooks."""
        return frozenset(each.address for each in self.inboxes if each.webhook)

    @property
    def readers(self) -> frozenset[str]:
        """The addresses of the inboxes whose readers leave receipts by some contract."""
        return frozenset(each.address for each in self.inboxes if each.asks_for_receipts)

    @property
    def patience_ms(self) -> dict[str, int]:
        """The inboxes of which each event's end is recorded, and how long that may take, milliseconds.

        As long as a webhook goes on trying, and as a queue keeps what a reader has to take; the longest of
        all contracts.
        """
        kept = [(each.retention_s, each.address) for each in self.inboxes if each.asks_for_receipts]
        # A pause of the endpoint ends no event: each waits for the request that follows.
        kept += [
            (each.give_up_after_s + GONE_S, each.address)
            for each in self.inboxes
            if each.webhook and each.give_up_after_s is not None
        ]
        return {address: 1_000 * kept_s for kept_s, address in sorted(kept)}

    def is_stale(self, version: str, decided_at_ms: int) -> bool:
        """Return whether a version had long had a successor in force when a router decided by it."""
        return bool(self.stale) and (version, decided_at_ms // INTERVAL_MS) in self.stale

    def with_uses(self, first_used_ms: Mapping[str, int]) -> ContractHistory:
        """Return the same with first uses where none was known."""
        return ContractHistory(
            tuple(
                Use(each.contract, each.first_used_ms or first_used_ms.get(each.contract.version))
                for each in self.uses
            ),
            self.stale,
            self.candidacies,
        )


def archived(objects: Objects) -> dict[str, Stored]:
    """Return the objects of the archived contracts by version, the one archived last at the end.

    With them are the archived heads, by names that begin with `HEADS`.
    """
    found = [each for each in objects.beneath(CONTRACTS) if each.name.endswith(".json")]
    found.sort(key=lambda each: (each.changed_ms, each.name))
    return {each.name.removeprefix(f"{CONTRACTS}/").removesuffix(".json"): each for each in found}


def load_history(
    objects: Objects, stored: Mapping[str, Stored], usages: Iterable[Usage]
) -> tuple[ContractHistory, list[ObjectFault]]:
    """Return the contracts that were used, as far as they can be read; when none was, the one archived last.

    One that is damaged is a fault: decisions by it are not understood. Raises `NoContractError`, or what is
    wrong with the first one, if none is left.
    """
    usages = list(usages)
    faults: list[ObjectFault] = []
    heads = _heads(objects, stored, faults)
    # To read a contract takes long: only of those that decided it is asked what they are.
    known = {each.version for each in usages}

    @cache
    def published(version: str) -> str:
        return _published(objects, stored, version)

    def family(version: str) -> frozenset[str]:
        return frozenset(each for each in known if published(each) == published(version))

    candidacies = tuple(_candidacies(heads, family))
    first_used_ms = _first_uses(_of_stable(usages, candidacies))
    used = sorted(first_used_ms, key=lambda version: (first_used_ms[version], version))
    # Without a first use, so that it is never the one in force for all.
    used += sorted({each.version for each in usages} - first_used_ms.keys())
    archived = [version for version in stored if not version.startswith(HEADS)]
    uses, errors = [], {}
    for version in [version for version in used if version in stored] or archived[-1:]:
        try:
            uses.append(Use(_load(objects, stored[version], version), first_used_ms.get(version)))
        except EventPlaneError as error:
            errors[stored[version].name] = error
    if not uses:
        raise next(iter(errors.values()), NoContractError(f"{objects.uri}/{CONTRACTS}", used))
    faults += [
        ObjectFault("unreadable", name, None, CONTRACTS, str(error), None) for name, error in errors.items()
    ]
    # Of a contract that nobody can read, nobody can tell that it succeeds another.
    known = {each.contract.version for each in uses}
    stale = stale_uses([each for each in usages if each.version in known], candidacies)
    return ContractHistory(tuple(uses), stale, candidacies), faults


def _heads(
    objects: Objects, stored: Mapping[str, Stored], faults: list[ObjectFault]
) -> Iterable[Sequence[Head]]:
    """Return the archived heads of each deployment in the order of time; a damaged one is among `faults`."""
    found: defaultdict[str, list[Head]] = defaultdict(list)
    for each in (each for name, each in stored.items() if name.startswith(HEADS)):
        try:
            # A larger one is cut, and then is no JSON.
            head = read_head((objects.read(each.name) or b"")[:MAX_HEAD_BYTES])
        except (ValueError, RecursionError) as error:
            faults.append(ObjectFault("unreadable", each.name, None, CONTRACTS, str(error), None))
        else:
            found[head.base].append(head)
    for heads in found.values():
        heads.sort(key=lambda head: (timestamp_ms(head.published_at), not head.candidate))
    return found.values()


def _candidacies(heads: Iterable[Sequence[Head]], family: Callable[[str], frozenset[str]]) -> list[Candidacy]:
    """Return the roll-outs that `heads` show; `family` gives what routers made of a version."""
    found = []
    for of_base in heads:
        for before, head in pairwise([None, *of_base]):
            if head is None or head.candidate is None or (before and before.candidate == head.candidate):
                continue
            later = of_base[of_base.index(head) :]
            end = next((each for each in later if each.candidate != head.candidate), None)
            found.append(
                Candidacy(
                    head.candidate,
                    timestamp_ms(head.published_at),
                    timestamp_ms(end.published_at) if end else MAX_TIME_MS,
                    end is not None and end.version == head.candidate,
                    family(head.candidate),
                    family(head.version),
                )
            )
    return sorted(found, key=lambda each: each.from_ms)


def _published(objects: Objects, stored: Mapping[str, Stored], version: str) -> str:
    """Return the version of a contract as it was published; its own where it cannot be read."""
    try:
        return without_added(_load(objects, stored[version], version)).version
    except (EventPlaneError, LookupError):
        return version


def _of_stable(usages: Iterable[Usage], candidacies: Iterable[Candidacy]) -> list[Usage]:
    """Return the uses but for those of candidates during their roll-outs: they succeed nothing."""
    return [
        each
        for each in usages
        if not any(
            each.version in rollout.versions and rollout.is_possible(each.interval * INTERVAL_MS)
            for rollout in candidacies
        )
    ]


def stale_uses(usages: Sequence[Usage], candidacies: Sequence[Candidacy] = ()) -> frozenset[tuple[str, int]]:
    """Return versions with the intervals in which they were used though another one had long been in force.

    Long: at least `STALE_AFTER` intervals. A later one must be used before, meanwhile and afterwards, so that
    it was not withdrawn in between: after a rollback the earlier contract is the right one. A version that
    was given up for an earlier one and comes back is stale if that one stays in force: it was not rolled out.
    A candidate that was given up is succeeded by what it was beside.
    """
    usages = _of_stable(usages, candidacies)
    intervals: defaultdict[str, set[int]] = defaultdict(set)
    for each in usages:
        if each.is_in_force:
            intervals[each.version].add(each.interval)
    first_ms = _first_uses(usages)
    ended = {version: each.is_taken for each in candidacies for version in each.versions}
    first_ms |= {version: -1 for version in first_ms if not ended.get(version, True)}

    def is_used(version: str, *spans: tuple[int, int], is_later: bool) -> bool:
        """Return whether a later, or an earlier, version was used in each of some spans of intervals."""
        return any(
            all(any(at in intervals[other] for at in range(*span)) for span in spans)
            for other in intervals
            if first_ms[other] != first_ms[version] and (first_ms[other] > first_ms[version]) == is_later
        )

    left_over = {
        (version, at)
        for version, used in intervals.items()
        for at, back in _returns(used).items()
        # The one before is still used when a rollout would long be over.
        if is_used(
            version,
            (back - STALE_AFTER, back),
            (at - STALE_AFTER + 1, at + 1),
            (at + STALE_AFTER, at + LOOK_BACK + 1),
            is_later=False,
        )
    }
    for version, at in left_over:
        intervals[version].discard(at)
    behind = {
        (version, at)
        for version, used in intervals.items()
        for at in used
        if is_used(
            version,
            (at - LOOK_BACK, at - STALE_AFTER + 1),
            (at - STALE_AFTER + 1, at + 1),
            (at + 1, at + STALE_AFTER + 1),
            is_later=True,
        )
    }
    return frozenset(left_over | behind)


def best_effort_names(contracts: Sequence[Contract]) -> tuple[bool, set[str], set[str]]:
    """Return of what a device need not store every event: of all, of which services, of which types.

    Where a route of the device declares it, its filter decided: what has no number is believed to be such.
    """
    services, types, is_any = set[str](), set[str](), False
    for contract in contracts:
        uplink = contract.device.outbox
        leading = [each for each in contract.routes_at(Place.DEVICE) if each.destination == uplink.address]
        is_any |= any(
            DeliveryGuarantee.BEST_EFFORT in (each.delivery_guarantee, uplink.delivery_guarantee)
            for each in leading
        )
        services |= {
            name
            for name, each in contract.participants.items()
            if any(channel.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT for channel in each.channels)
        }
        types |= {
            each.name
            for each in contract.event_types.values()
            if each.delivery_guarantee is DeliveryGuarantee.BEST_EFFORT
        }
    return is_any, services, types


def _returns(used: Collection[int]) -> dict[int, int]:
    """Return for each interval since a version came back, after `LOOK_BACK` without it, when it did."""
    found: dict[int, int] = {}
    back: int | None = None
    for before, at in pairwise(sorted(used)):
        back = at if at - before > LOOK_BACK else back
        if back is not None:
            found[at] = back
    return found


def _first_uses(usages: Iterable[Usage]) -> dict[str, int]:
    """Return when each version was first used while it was in force, Unix milliseconds."""
    first_ms: dict[str, int] = {}
    for each in usages:
        if each.is_in_force:
            first_ms[each.version] = min(first_ms.get(each.version, each.first_ms), each.first_ms)
    return first_ms


# To read a contract takes as long as to judge a hundred events, and many archives have the same.
_compiled = lru_cache(maxsize=16)(load_compiled)


def _load(objects: Objects, stored: Stored, version: str) -> Contract:
    uri = f"{objects.uri}/{stored.name}"
    contract = _compiled((objects.read(stored.name) or b"").decode("utf-8", "replace"), uri)
    if contract.version != version:
        raise AlteredContractError(uri, version, contract.version)
    return contract
