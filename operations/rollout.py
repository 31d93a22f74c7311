"""Take a roll-out one step further: send the contract to a stage, judge what follows, go on or go back.

Every step may be repeated and broken off anywhere: what was done is seen in the tables. The record of the
roll-out is written on condition, so that of two who take a step at once one ends with `OvertakenError`.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, Final

from contract.promises import less_promised
from contract.publish import (
    Baseline,
    CandidateError,
    ContractPublisher,
    NoCandidateError,
    OvertakenError,
    PublishError,
)
from contract.rollout import (
    MEMBERS,
    MEMBERS_A_PAGE,
    ROLLOUT,
    ROLLOUT_KEY,
    ContractRollout,
    Member,
    MemberPage,
    RolloutPhase,
    StageEvidence,
    StageFinding,
    StageLimits,
    group_of,
    harm,
    lacking,
    page_id,
)
from eventplane.contract import Contract, Downlink, ParticipantKind, load_compiled
from eventplane.contract.publication import ContractTable, Head, published
from eventplane.contract.subscription import IN_FORCE_S
from eventplane.device_record import Device, LifecycleState
from eventplane.device_reports import CONTRACT_KEYS, DEVICE_CONTRACT
from eventplane.downlink.desired import COUNTERS_END, Desired
from eventplane.downlink.desired import Phase as Delivery
from eventplane.downlink.table import sort_key
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EventPlaneError
from eventplane.ledger import CONTRACTS
from eventplane.records import NEW, Records, Tables
from eventplane.values import timestamp_ms
from operations.archive import Archive, body_of
from operations.rollout_evidence import EvidenceReader

_GZIP: Final = 16 + zlib.MAX_WBITS
_MOST_BYTES: Final = 4 * 1024 * 1024
"""What a contract may unpack to, bytes. Ours: four times what a device takes."""

MOST_FOUND: Final = 5
"""Findings that are printed of many. Ours."""

REGISTRY_S: Final = 300.0
"""How long one who watches uses what the registry said, seconds. Ours: new devices follow within minutes."""

_GONE: Final = LifecycleState.DECOMMISSIONED
_OUT: Final = (LifecycleState.QUARANTINED, _GONE)
"""Devices in these states do not connect."""

Report = Mapping[str, Any]


class InProgressError(PublishError):
    """Another contract, `version`, is being rolled out."""

    version: str
    phase: RolloutPhase
    message = "{version} is being rolled out ({phase}); finish that, or `eventplane contract rollout go-back`"


class NoRolloutError(PublishError):
    """There is no roll-out."""

    message = "no contract is being rolled out; begin with `eventplane contract rollout NEW`"


class DeployedSinceError(PublishError):
    """The plane was deployed with the contract `now` since the roll-out began under `base`."""

    base: str
    now: str
    message = "the plane was deployed anew ({now}, it was {base}); `eventplane contract rollout go-back`"


class NoContractSenderError(PublishError):
    """The contract lets no cloud service, or several, give devices a contract."""

    names: list[str]
    message = (
        f"{{count}} cloud services send {DEVICE_CONTRACT} by the contract in force, one has to; deploy one "
        "that has it in `sends`, with `may_address: everyone`"
    )

    @property
    def count(self) -> int:
        return len(self.names)


class LessPromisedError(PublishError):
    """A contract promises less than the one in force, or would have kept less: `found` is what."""

    found: Sequence[StageFinding]
    message = "nothing was begun, as the contract promises less:{lines}"

    @property
    def lines(self) -> str:
        more = len(self.found) - MOST_FOUND
        lines = [*map(str, self.found[:MOST_FOUND]), *([f"and {more} more"] if more > 0 else [])]
        return "".join(f"\n  {each}" for each in lines)


class EmptyGroupError(PublishError):
    """No device is in `groups`, of which each is a stage."""

    groups: list[str]
    message = "no device is in the group {names}; see `eventplane fleet list`"

    @property
    def names(self) -> str:
        return ", ".join(self.groups)


class OtherNameError(PublishError):
    """A contract of another name than the one in force, `former`."""

    name: str
    former: str
    message = "devices follow the contract {former!r} and refuse {name!r}; keep its name"


@dataclass(frozen=True)
class RolloutPlane:
    """The plane of a `deployment`: its `tables`, its `fleet`, what is `desired`, and its `archive`.

    `send` puts an event into the outbox of a cloud service; `audit` returns the report on today, None where
    the plane has no such audit. `now` is the wall clock.
    """

    deployment: Baseline
    tables: Tables
    fleet: Callable[[], Iterable[Device]]
    desired: Records[Desired]
    archive: Archive
    send: Callable[[str, Envelope], object]
    audit: Callable[[], Report | None]
    now: Callable[[], datetime]


@dataclass
class RolloutRunner:
    """Takes steps in `plane`; what it knows of a stage makes the next step cheaper, and may be lost.

    `compare` returns what a contract promises less than the one before.
    """

    plane: RolloutPlane
    compare: Callable[[Contract, Contract], list[StageFinding]] = less_promised
    _reader: tuple[tuple[str, int, frozenset[str]], EvidenceReader] | None = None
    _stored: set[str] = field(default_factory=set)
    _members_of: str = ""
    _members: dict[str, Member] = field(default_factory=dict)
    _pages: int = 0
    _fleet: tuple[float, list[Device]] = (-inf, [])

    def __post_init__(self) -> None:
        plane = self.plane
        self._table = ContractTable(plane.tables, plane.deployment.table)
        self._rollouts = Records(plane.tables, plane.deployment.table, ROLLOUT)
        self._member_pages = Records(plane.tables, plane.deployment.table, MEMBERS)
        self._publisher = ContractPublisher(plane.deployment, plane.tables, plane.now)

    def found(self) -> ContractRollout | None:
        """Return the roll-out that there is, or was last; None for none."""
        return self._rollouts.read(ROLLOUT_KEY)

    def head(self) -> Head | None:
        """Return what is published beside or instead of the deployment's contract; None for nothing."""
        return self._publisher.in_force()

    def start(
        self, new: Contract, former: Contract, judged_by: str, stages: tuple[str, ...], limits: StageLimits
    ) -> ContractRollout:
        """Begin to roll out `new` in place of `former`, or return the roll-out of it that there is.

        Raises `InProgressError`, `OtherNameError`, `NoContractSenderError`, `LessPromisedError`,
        `EmptyGroupError`, `CandidateError`, `OvertakenError`, and what `ContractPublisher.check` raises.
        """
        before, head = self.found(), self._publisher.in_force()
        if before and not before.phase.is_over:
            if before.version != new.version:
                raise InProgressError(before.version, before.phase)
            rollout = before
        else:
            if head and head.candidate not in (None, new.version):
                raise CandidateError(str(head.candidate))
            if new.name != former.name:
                raise OtherNameError(new.name, former.name)
            _sender(former)
            self._publisher.check(new)
            if found := limits.refused(self.compare(former, new)):
                raise LessPromisedError(found)
            self._table.contracts.force(published(former))
            named = {each for device in self.plane.fleet() for each in device.groups}
            if empty := [each for each in map(group_of, stages) if each is not None and each not in named]:
                raise EmptyGroupError(empty)
            if before:
                self._forget(before)  # should that have been broken off
            now_ms = self._now_ms()
            rollout = ContractRollout(
                base=self.plane.deployment.base,
                version=new.version,
                former=former.version,
                judged_by=judged_by,
                stages=stages,
                limits=limits,
                began_ms=now_ms,
                stage_ms=now_ms,
                revision=before.revision if before else NEW,
            )
            # The record first: a candidate without one could not be taken back.
            rollout = self._write(rollout)
        if rollout.phase in (RolloutPhase.WATCHING, RolloutPhase.UNPROVEN):
            self._publisher.offer(new)  # once more, should the first have been broken off
        return rollout

    def step(self) -> ContractRollout:
        """Take the roll-out as far as it goes now, and return it.

        Raises `NoRolloutError`, `DeployedSinceError`, `NoCandidateError`, `OvertakenError`.
        """
        rollout = self._present()
        if rollout.phase in (RolloutPhase.WATCHING, RolloutPhase.UNPROVEN):
            if rollout.base != self.plane.deployment.base:
                raise DeployedSinceError(rollout.base, self.plane.deployment.base)
            rollout = self._watch(rollout)
        return self._return(rollout) if rollout.phase is RolloutPhase.GOING_BACK else rollout

    def go_back(self, why: str, *, is_final: bool = False) -> ContractRollout:
        """Give all devices of the roll-out back what they followed; `is_final` waits for none of them.

        Raises `NoRolloutError`, `OvertakenError`.
        """
        rollout = self._present()
        if rollout.phase is not RolloutPhase.GOING_BACK:
            rollout = self._write(replace(rollout, phase=RolloutPhase.GOING_BACK, why=(why,)))
        return self._return(rollout, is_final=is_final)

    def proceed(self) -> ContractRollout:
        """Let a stage pass that is unproven. Raises `NoRolloutError`, `OvertakenError`."""
        rollout = self._present()
        return self._next(rollout) if rollout.phase is RolloutPhase.UNPROVEN else rollout

    def _present(self) -> ContractRollout:
        rollout = self.found()
        if rollout is None or rollout.phase.is_over:
            raise NoRolloutError
        return rollout

    def _watch(self, rollout: ContractRollout) -> ContractRollout:
        head = self._publisher.in_force()
        if head is None or rollout.version not in (head.candidate, head.version):
            raise NoCandidateError
        new = self._table.contract(rollout.version)
        members = [each.thing for each in self._in_stages(rollout) if each.state not in _OUT]
        if not members:
            after = self._next(rollout)
            return after if after.phase.is_over else self._watch(after)
        # A device must not name a candidate that a router does not know: it would be judged by the other one.
        known_s = timestamp_ms(head.published_at) / 1_000 + IN_FORCE_S + 1 - self._now_ms() / 1_000
        if known_s > 0:
            lacked = (f"{known_s:.0f} s until every router knows it",)
            return self._write(replace(rollout, looked_ms=self._now_ms(), lacked=lacked))
        rejected = self._send_all(rollout, new, members)
        evidence = self._evidence_of(rollout, new, frozenset(members))
        for thing in rejected:
            evidence.rejected.setdefault(thing, "it has rejected it; see its dead letter")
        now_ms, limits = self._now_ms(), rollout.limits
        seconds = (now_ms - rollout.stage_ms) / 1_000
        found, lacks = harm(evidence, limits, now_ms), lacking(evidence, limits, seconds)
        if not (found or lacks):
            evidence.audited, problem = self._audited(rollout, members)
            found, lacks = harm(evidence, limits, now_ms), [problem] if problem else []
        rollout = replace(
            rollout,
            looked_ms=now_ms,
            devices=len(members),
            stored=len(self._stored.intersection(members)),
            following=len(evidence.following.intersection(members)),
            events=evidence.events,
            alarms=evidence.alarms,
            lacked=tuple(lacks),
        )
        if found:
            why, keys = tuple(map(str, found)), tuple(each.key for each in found)
            return self._write(replace(rollout, phase=RolloutPhase.GOING_BACK, why=why, findings=keys))
        if not lacks:
            return self._next(rollout)
        # Only a person may let pass what was not seen.
        if seconds >= limits.limit_s and rollout.phase is not RolloutPhase.UNPROVEN:
            return self._write(replace(rollout, phase=RolloutPhase.UNPROVEN, why=tuple(lacks)))
        return self._write(rollout)

    def _next(self, rollout: ContractRollout) -> ContractRollout:
        """Return the roll-out in its next stage, or done."""
        self._reader = None
        if rollout.stage + 1 < len(rollout.stages):
            after = replace(
                rollout, stage=rollout.stage + 1, stage_ms=self._now_ms(), phase=RolloutPhase.WATCHING, why=()
            )
            return self._write(after)
        self._publisher.finish(rollout.version)
        return self._end(rollout, RolloutPhase.DONE)

    # Devices

    def _in_stages(self, rollout: ContractRollout) -> list[Device]:
        """Return the devices of the stages so far; the registry is read again after a while."""
        now_s = self._now_ms() / 1_000
        if not 0 <= now_s - self._fleet[0] < REGISTRY_S:
            self._fleet = now_s, [*self.plane.fleet()]
        return [each for each in self._fleet[1] if rollout.has(each.thing, each.groups)]

    def _known(self, rollout: ContractRollout) -> dict[str, Member]:
        """Return the members by name, of this roll-out alone."""
        if self._members_of != rollout.name:
            self._members_of, self._members, self._pages, self._stored = rollout.name, {}, 0, set()
        while (page := self._member_pages.read(page_id(rollout.name, self._pages))) is not None:
            self._members |= {each.thing: each for each in page.members}
            self._pages += 1
        return self._members

    def _send_all(self, rollout: ContractRollout, new: Contract, things: Sequence[str]) -> list[str]:
        """Send the contract to the devices that have not stored it, and return those that reject it."""
        known, rejected = self._known(rollout), list[str]()
        data, by = _packed(new), _sender(self._table.contract(rollout.former))
        for items in self._desired(new.name, [each for each in things if each not in self._stored]):
            self._enter(rollout, {thing: item for thing, item in items.items() if thing not in known})
            for thing, item in items.items():
                number = known[thing].number
                if item is None or item.message is None or item.message.version < number:
                    self._send(by, new.name, thing, number, data)
                elif item.message.version == number and item.state is Delivery.REJECTED:
                    rejected.append(thing)
                elif item.acknowledged_version is not None and item.acknowledged_version >= number:
                    self._stored.add(thing)
        return rejected

    def _enter(self, rollout: ContractRollout, items: Mapping[str, Desired | None]) -> None:
        """Write down what devices followed until now, before they are sent anything."""
        members = list[Member]()
        for thing, item in items.items():
            before, number = None, 0
            if item and item.message:
                number = item.message.version + 1
                if item.is_present:
                    former = _contract_in(parse_event(item.message.text))
                    self._table.contracts.force(published(former))
                    before = former.version
            # A counter goes on as a counter; what begins is numbered by the time.
            number = number if 0 < number < COUNTERS_END else max(number, self._now_ms())
            members.append(Member(thing, number, before))
        if members:
            if self._member_pages.write(MemberPage(rollout.name, self._pages, tuple(members))) is None:
                raise OvertakenError
            self._known(rollout)

    def _return(self, rollout: ContractRollout, *, is_final: bool = False) -> ContractRollout:
        """Send devices what they followed before; end the roll-out when none has the contract any more."""
        packed = dict[str, str]()
        by, name = _sender(contract := self._table.contract(rollout.former)), contract.name
        known, states = self._known(rollout), {each.thing: each.state for each in self._in_stages(rollout)}
        there = [each for each in known if states.get(each, _GONE) is not _GONE]
        # One in quarantine gets it when it is released. One that cannot be looked up now is waited for.
        waiting = {each for each in there if states[each] not in _OUT}
        for items in self._desired(name, there):
            for thing, item in items.items():
                member, number = known[thing], known[thing].number + 1
                if item is None or item.message is None or item.message.version < number:
                    if member.before is not None and member.before not in packed:
                        packed[member.before] = _packed(self._table.contract(member.before))
                    self._send(by, name, thing, number, packed[member.before] if member.before else None)
                elif (item.acknowledged_version or 0) >= number or not _has(item, member):
                    waiting.discard(thing)
        rollout = replace(rollout, looked_ms=self._now_ms(), stored=len(waiting))
        if waiting and not is_final:
            return self._write(rollout)
        if rollout.former != rollout.version:
            # Of the deployment under which it began: that one could come back.
            deployment = replace(self.plane.deployment, base=rollout.base)
            ContractPublisher(deployment, self.plane.tables, self.plane.now).go_back(rollout.version)
        return self._end(rollout, RolloutPhase.WENT_BACK)

    def _end(self, rollout: ContractRollout, phase: RolloutPhase) -> ContractRollout:
        # The record first: who goes on without the pages would take the new contract for the former one.
        why = () if phase is RolloutPhase.DONE else rollout.why
        rollout = self._write(replace(rollout, phase=phase, why=why))
        self._forget(rollout)
        return rollout

    def _forget(self, rollout: ContractRollout) -> None:
        """Delete what devices followed before: nothing goes back to it any more."""
        self._known(rollout)
        # The last first: if this is broken off, what is left is found again.
        for page in reversed(range(self._pages)):
            self._member_pages.discard(page_id(rollout.name, page))
        self._members_of = ""

    def _desired(self, name: str, things: Sequence[str]) -> Iterator[dict[str, Desired | None]]:
        """Yield, page by page, what devices are to follow, without those that cannot be looked up now."""
        for at in range(0, len(things), MEMBERS_A_PAGE):
            some, key = things[at : at + MEMBERS_A_PAGE], sort_key(Downlink.STATE, CONTRACT_KEYS + name)
            yield self.plane.desired.read_many(some, sort=key)

    def _send(self, by: str, name: str, thing: str, number: int, packed: str | None) -> None:
        """Send a device a contract, or None: the one of its image. Once more it is the same event."""
        attributes = {
            "id": f"rollout-{thing}-{number}",
            "source": "/rollout",
            "type": DEVICE_CONTRACT,
            "todevice": thing,
            "statekey": CONTRACT_KEYS + name,
            "stateversion": str(number),
        }
        if packed is None:
            attributes["statedelete"] = "true"
        else:
            attributes |= {"datacontenttype": "application/gzip", "data_base64": packed}
        self.plane.send(by, write_event(attributes))

    # What they show

    def _evidence_of(self, rollout: ContractRollout, new: Contract, members: frozenset[str]) -> StageEvidence:
        if self._reader is None or self._reader[0] != (rollout.version, rollout.stage_ms, members):
            archived = body_of(self.plane.archive, f"{CONTRACTS}/{rollout.judged_by}.json")
            former = (
                load_compiled(archived, rollout.judged_by)
                if archived
                else self._table.contract(rollout.former)
            )
            reader = EvidenceReader(self.plane.archive, rollout, former, new, members)
            self._reader = (rollout.version, rollout.stage_ms, members), reader
        return self._reader[1].read(self.plane.now())

    def _audited(self, rollout: ContractRollout, members: Collection[str]) -> tuple[list[str], str]:
        """Return the promises that today's audit finds broken to devices of the stage since it began.

        Besides, why there is no audit, '' where there is one, or the plane has none.
        """
        try:
            report = self.plane.audit()
        except EventPlaneError as error:
            return [], f"the audit of today: {error}"
        if report is None:
            return [], ""
        broken = {each["kind"] for each in report["kinds"] if each["weight"] == "broken"}
        found: dict[str, list[str]] = {}
        for each in report["findings"]:
            # What the archive does not place in time, it does not lay to this stage.
            is_since = (each["at_ms"] or 0) >= rollout.stage_ms
            if is_since and each["kind"] in broken and each["device"] in members:
                name = f"{each['id'] or each['device']} of {each['source'] or each['device']}"
                found.setdefault(each["kind"], []).append(name)
        return [f"{kind}: {len(names)}, such as {names[0]}" for kind, names in found.items()], ""

    def _write(self, rollout: ContractRollout) -> ContractRollout:
        written = self._rollouts.write(rollout)
        if written is None:
            raise OvertakenError
        return written

    def _now_ms(self) -> int:
        return int(self.plane.now().timestamp() * 1_000)


def _has(item: Desired, member: Member) -> bool:
    """Return whether a device has the contract of the roll-out, or it is on its way there."""
    is_sent = item.sent is not None and item.sent.version == member.number
    return is_sent or item.acknowledged_version == member.number


def _sender(contract: Contract) -> str:
    """Return the cloud service that gives devices contracts. Raises `NoContractSenderError`."""
    services = contract.of_kind(ParticipantKind.CLOUD_SERVICE)
    names = [each.name for each in services if each.sends and each.may_send(DEVICE_CONTRACT)]
    if len(names) != 1:
        raise NoContractSenderError(names)
    return names[0]


def _packed(contract: Contract) -> str:
    return base64.b64encode(gzip.compress(contract.canonical, mtime=0)).decode()


def _contract_in(event: Envelope) -> Contract:
    """Return the contract that a service has sent to a device. Raises `ContractError`."""
    data = event.data()
    if isinstance(data, bytes):
        data = json.loads(zlib.decompressobj(_GZIP).decompress(data, _MOST_BYTES))
    return load_compiled(json.dumps(data), event.source)
