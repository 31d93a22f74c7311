"""Judge what the cloud sent down: store it, deliver it in the home, and answer, in one commit.

So the state, its delivery and the answer are all there or none is. What finds no room gets no answer: the
cloud keeps it and sends it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from edge.counts import NotStored
from edge.decision import Decider, DownlinkDecision
from edge.delivery_queues import DeliveryQueues
from edge.planning import Plan, Pressure
from edge.reports import Heading
from edge.sent_contract import is_contract_update, why_refused
from edge.spool import Delivery, DeviceState, Size
from edge.spool.states import MOST_KEYS
from edge.spool.store import Spool
from eventplane.contract import Contract, Downlink, Priority, WhenFull
from eventplane.dead_letter import Refusal
from eventplane.device_reports import ACKNOWLEDGED, UPLINK_KEY
from eventplane.downlink.device import (
    Acknowledgement,
    Recency,
    compare,
    rejected,
    state_version,
    stored,
    to_data,
)
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.wire import Incoming
from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError
from eventplane.filters import Filter
from eventplane.interest.uplink import UplinkInterestError, read_uplink_interest
from eventplane.reasons import Reason
from eventplane.receipts import SPOOL_FULL

_log = logging.getLogger(__name__)

ANSWER_BYTES = 500
"""What one answer usually takes in the spool."""

_MOST_CHARACTERS = 32 * 1024
"""Most text of the senders and the device in one event of answers: the rest has to fit as well."""

_SHARE = 4
"""One part in so many of the spool's capacity is for states: what stays must not crowd out what passes."""


class DownlinkReceiver:
    """Judges what the cloud sent to `thing`, under `contract`, against what `spool` holds.

    No contract may take away the alarms of the `image`'s. `decider` routes events, `pressure` decides whether
    there is room, `queues` know what is still pending.
    """

    def __init__(
        self,
        contract: Contract,
        image: Contract,
        thing: str,
        spool: Spool,
        decider: Decider,
        pressure: Pressure,
        queues: DeliveryQueues,
    ) -> None:
        self._contract = contract
        # By the image's as well: a contract without a cloud service must not lock out its successor.
        self._rights = [DownlinkRights(each) for each in (contract, image)]
        self._image = image
        self._inbox = contract.device.inbox
        self._thing = thing
        self._spool = spool
        self._decider = decider
        self._pressure = pressure
        self._queues = queues

    def judge(self, downlinks: Sequence[Incoming], plan: Plan) -> None:
        """Judge `downlinks` and put the results into `plan`."""
        answers = [answer for each in downlinks if (answer := self._judge(each, plan)) is not None]
        plan.downlink_outcomes.update(each.reason or each.result.value for each in answers)
        epoch, time = self._spool.epoch, self._decider.timestamp()
        for some in _parts(answers):
            heading = Heading(self._thing, epoch, plan.next.sequence, time)
            try:
                event = heading.write(ACKNOWLEDGED, to_data(some, epoch))
            except EnvelopeError as error:
                # One alone that names an event as long as one may be. The cloud parks what gets no answer.
                _log.error("%d answer(s) to the cloud cannot be written: %s", len(some), error)
            else:
                plan.store(self._decider.own(event, plan.next))

    def _judge(self, incoming: Incoming, plan: Plan) -> Acknowledgement | None:
        kind, key = incoming.kind, incoming.key
        before = plan.states.get((kind, key)) or self._spool.device_state(kind, key)
        recency = compare(before.state_version if before else None, incoming)
        is_duplicate = recency is Recency.DUPLICATE
        # It was salvaged without its delivery, which may have been made, or lost.
        is_doubtful = before is not None and before.sequence < 0 and not self._is_pending(before)
        if recency is Recency.NEWER or (is_duplicate and is_doubtful):
            return self._apply(incoming, before, plan)
        if not self._has_room_for_answer():
            return None
        if is_duplicate:
            return stored(incoming)
        return rejected(incoming, Reason.OLDER, "the device holds a newer one of this key")

    def _apply(self, incoming: Incoming, before: DeviceState | None, plan: Plan) -> Acknowledgement | None:
        decision = self._decider.decide_downlink(incoming.event, self._inbox, plan.next)
        refusal = self._refusal(incoming, before, decision, plan)
        if refusal is not None:
            if not self._has_room_for_answer():
                return None
            return rejected(incoming, refusal.reason, refusal.detail)
        keeps_text = incoming.kind is Downlink.STATE and not incoming.is_deleted
        size = Size(
            len(incoming.event.json) * (keeps_text + bool(decision.expiries)) + ANSWER_BYTES,
            len(decision.expiries) + 1,
        )
        if not self._pressure.admits(decision.rank, size, self._inbox.when_full):
            plan.rejected[NotStored(self._inbox.address, incoming.event.type, SPOOL_FULL)] += 1
            return None
        plan.volatile.extend(decision.volatile)
        rank, sequence = self._deliver(decision, before, plan, supersedes=incoming.kind is Downlink.STATE)
        text = incoming.event.json if keeps_text else ""
        plan.new_keys += _adds_key(incoming, before)
        plan.new_characters += _growth(incoming, before)
        plan.states[incoming.kind, incoming.key] = DeviceState(
            incoming.kind, incoming.key, state_version(incoming), rank, sequence, text
        )
        plan.contract_changed |= is_contract_update(incoming)
        plan.uplink_interest_changed |= is_uplink_interest(incoming)
        return stored(incoming)

    def _refusal(
        self, incoming: Incoming, before: DeviceState | None, decision: DownlinkDecision, plan: Plan
    ) -> Refusal | None:
        refused = [each.entry_refusal(incoming.event, incoming.kind, incoming.key) for each in self._rights]
        if all(refused):
            return refused[0]
        if is_contract_update(incoming):
            problem = why_refused(incoming, self._image)
            return Refusal(Reason.CONTRACT_REFUSED, problem) if problem else None
        if is_uplink_interest(incoming) and not incoming.is_deleted:
            try:
                read_uplink_interest(incoming.event)
            except UplinkInterestError as error:
                return Refusal(Reason.INTEREST_REFUSED, str(error))
        # A state needs no reader: the contract that names one may follow.
        if incoming.kind is Downlink.COMMAND and not (decision.expiries or decision.volatile):
            if decision.unwanted:
                readers = ", ".join(decision.unwanted)
                return Refusal(
                    Reason.NO_INTEREST, f"the reader of {readers} announced that it handles others"
                )
            return Refusal(Reason.UNROUTED, f"no route of the device takes type {incoming.event.type!r:.200}")
        if _adds_key(incoming, before) and self._spool.state_count() + plan.new_keys >= MOST_KEYS:
            return Refusal(Reason.TOO_MANY_KEYS, f"the device holds {MOST_KEYS} keys; delete some of them")
        most, grows = self._spool.space.capacity_bytes // _SHARE, _growth(incoming, before)
        if grows > 0 and self._spool.state_bytes() + plan.new_characters + grows > most:
            return Refusal(
                Reason.TOO_MUCH_STATE, f"the device holds {most} bytes of states; delete or shorten some"
            )
        return None

    def _deliver(
        self, decision: DownlinkDecision, before: DeviceState | None, plan: Plan, *, supersedes: bool
    ) -> tuple[int, int]:
        """Store the delivery behind that of the event `before`, or in its place; return rank and sequence."""
        rank = decision.rank
        if before is not None and before.sequence:
            if before.sequence >= plan.start.sequence:
                # Of this same plan.
                if supersedes and decision.expiries:
                    plan.arrivals[before.sequence - plan.start.sequence] = decision.arrival(
                        before.rank, before.sequence
                    )
                    return before.rank, before.sequence
                rank = max(rank, before.rank)
            elif supersedes:
                plan.replaced += self._deliveries_of(before)
            elif self._is_pending(before):
                rank = max(rank, before.rank)
        if not decision.expiries:
            return (before.rank, before.sequence) if before and before.sequence > 0 else (rank, 0)
        sequence = plan.next.sequence
        plan.store(decision.arrival(rank, sequence))
        return rank, sequence

    def _has_room_for_answer(self) -> bool:
        return self._pressure.admits(Priority.URGENT.rank, Size(ANSWER_BYTES, 1), WhenFull.REFUSE)

    def _is_pending(self, before: DeviceState) -> bool:
        """Return whether the event before is still pending: the next one must not overtake it."""
        return any(self._queues.find(each) for each in self._deliveries_of(before))

    def _deliveries_of(self, before: DeviceState) -> Sequence[Delivery]:
        """Return the deliveries that the event before may have."""
        uplink = self._contract.device.outbox.address
        destinations = (each for each in self._spool.destinations() if each != uplink)
        return [Delivery(each, before.rank, before.sequence) for each in destinations]


def _growth(incoming: Incoming, before: DeviceState | None) -> int:
    """Return by how many characters the text of stored states grows."""
    keeps_text = incoming.kind is Downlink.STATE and not incoming.is_deleted
    return len(incoming.event.json) * keeps_text - (len(before.json) if before else 0)


def _adds_key(incoming: Incoming, before: DeviceState | None) -> bool:
    """Return whether the device will store one state more."""
    is_live = incoming.kind is Downlink.STATE and not incoming.is_deleted
    return is_live and not (before and before.is_live)


def _parts(answers: Iterable[Acknowledgement]) -> Iterator[list[Acknowledgement]]:
    """Yield the answers that one event carries."""
    part: list[Acknowledgement] = []
    size = 0
    for each in answers:
        written = ANSWER_BYTES + len(each.source) + len(each.id) + len(each.detail)
        if part and size + written > _MOST_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(each)
        size += written
    if part:
        yield part


def is_uplink_interest(incoming: Incoming) -> bool:
    """Return whether `incoming` is the state that says which events the cloud wants."""
    return incoming.kind is Downlink.STATE and incoming.key == UPLINK_KEY


def uplink_interest(spool: Spool) -> Filter | None:
    """Return what the cloud wants, by the state in `spool`; None where it is unknown. Raises `SpoolError`."""
    stored = spool.device_state(Downlink.STATE, UPLINK_KEY)
    if stored is None or stored.state_version.is_deleted:
        return None
    try:
        return read_uplink_interest(parse_event(stored.json))
    except UplinkInterestError as error:
        # An older program after a newer one.
        _log.error("what the cloud wants cannot be read, everything goes up: %s", error)
        return None
