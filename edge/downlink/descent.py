"""What came down from the cloud, judged within a turn: stored, delivered in the home and answered at once.

One commit takes the state, its delivery and the answer, so whichever of them is there the others are too.
What finds no room gets no answer: the cloud keeps it and comes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.commit import Batch
from edge.decision import Decider, DownlinkDecision
from edge.downlink.answers import ANSWER_BYTES, answer_events
from edge.downlink.contract_update import is_contract_update, why_refused
from edge.downlink.uplink_interest import is_uplink_interest, why_interest_refused
from edge.outgoing import Outgoing
from edge.pressure import Pressure
from edge.reports import NotStored
from edge.spool import MOST_KEYS, Delivery, Holding, Size, Spool
from eventplane.contract import Contract, Downlink, Priority, WhenFull
from eventplane.delivery import Refusal
from eventplane.downlink.acknowledgements import OLDER, Acknowledgement, rejected, stored
from eventplane.downlink.reception import Verdict, held, receive
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.wire import Incoming
from eventplane.interest import NO_INTEREST
from eventplane.receipts import SPOOL_FULL

TOO_MANY_KEYS = "too_many_keys"
TOO_MUCH_STATE = "too_much_state"
UNROUTED = "unrouted"
"""Why the device takes no further state, and no command that nobody in the home reads. A state needs no
reader: the contract that names one may come after it."""


_SHARE = 4
"""One part in so many of the spool's capacity is for states: what stays must not crowd out what passes."""


class Descent:
    """Judges what the cloud sent to `thing`, under `contract`, against what `spool` holds.

    No contract takes away the alarms of the `image`'s.
    `intake` routes it, `pressure` says what finds room, `outgoing` knows what still waits.
    """

    def __init__(
        self,
        contract: Contract,
        image: Contract,
        thing: str,
        spool: Spool,
        intake: Decider,
        pressure: Pressure,
        outgoing: Outgoing,
    ) -> None:
        self._contract = contract
        # By the image's as well: a contract that lost a cloud service must not lock out its successor.
        self._rights = [DownlinkRights(each) for each in (contract, image)]
        self._image = image
        self._inbox = contract.device.inbox
        self._thing = thing
        self._spool = spool
        self._intake = intake
        self._pressure = pressure
        self._outgoing = outgoing

    def judge(self, turn: Batch) -> None:
        """What becomes of `turn.descents`, put into `turn`. To be called once all of them are there."""
        answers = [answer for each in turn.descents if (answer := self._judge(each, turn)) is not None]
        turn.descended.update(each.reason or each.result.value for each in answers)
        for event in answer_events(
            answers, self._thing, self._spool.epoch, turn.slot.sequence, self._intake.timestamp()
        ):
            turn.store(self._intake.own(event, turn.slot))

    def _judge(self, incoming: Incoming, turn: Batch) -> Acknowledgement | None:
        before = self._held(incoming, turn)
        verdict = receive(before.held if before else None, incoming)
        if verdict is Verdict.DUPLICATE and before is not None and self._may_be_undelivered(before):
            verdict = Verdict.APPLY
        if verdict is Verdict.APPLY:
            return self._apply(incoming, before, turn)
        if not self._has_room_for_answer():
            return None
        if verdict is Verdict.DUPLICATE:
            return stored(incoming)
        return rejected(incoming, OLDER, "the device holds a newer one of this key")

    def _apply(self, incoming: Incoming, before: Holding | None, turn: Batch) -> Acknowledgement | None:
        descended = self._intake.descend(incoming.event, self._inbox, turn.slot)
        refusal = self._refusal(incoming, before, descended, turn)
        if refusal is not None:
            if not self._has_room_for_answer():
                return None
            return rejected(incoming, refusal.reason, refusal.detail)
        keeps_text = incoming.kind is Downlink.STATE and not incoming.is_deleted
        size = Size(
            len(incoming.event.json) * (keeps_text + descended.is_stored) + ANSWER_BYTES,
            len(descended.expiries) + 1,
        )
        if not self._pressure.admits(descended.rank, size, self._inbox.when_full):
            turn.turned_away[NotStored(self._inbox.address, incoming.event.type, SPOOL_FULL)] += 1
            return None
        turn.fleeting.extend(descended.fleeting)
        rank, sequence = self._deliver(descended, before, turn, supersedes=incoming.kind is Downlink.STATE)
        text = incoming.event.json if keeps_text else ""
        turn.new_keys += _adds_key(incoming, before)
        turn.new_characters += _growth(incoming, before)
        turn.holdings[incoming.kind, incoming.key] = Holding(
            incoming.kind, incoming.key, held(incoming), rank, sequence, text
        )
        turn.contract_changed |= is_contract_update(incoming)
        turn.uplink_interest_changed |= is_uplink_interest(incoming)
        return stored(incoming)

    def _refusal(
        self, incoming: Incoming, before: Holding | None, descended: DownlinkDecision, turn: Batch
    ) -> Refusal | None:
        refused = [each.entry_refusal(incoming.event, incoming.kind, incoming.key) for each in self._rights]
        if all(refused):
            return refused[0]
        if is_contract_update(incoming):
            return why_refused(incoming, self._image)
        if is_uplink_interest(incoming) and (refusal := why_interest_refused(incoming)):
            return refusal
        if incoming.kind is Downlink.COMMAND and not (descended.is_stored or descended.fleeting):
            if descended.unwanted:
                readers = ", ".join(descended.unwanted)
                return Refusal(NO_INTEREST, f"the reader of {readers} announced that it handles others")
            return Refusal(UNROUTED, f"no route of the device takes type {incoming.event.type!r:.200}")
        if _adds_key(incoming, before) and self._spool.held_keys() + turn.new_keys >= MOST_KEYS:
            return Refusal(TOO_MANY_KEYS, f"the device holds {MOST_KEYS} keys; delete some of them")
        most, grows = self._spool.capacity_bytes // _SHARE, _growth(incoming, before)
        if grows > 0 and self._spool.held_bytes() + turn.new_characters + grows > most:
            return Refusal(TOO_MUCH_STATE, f"the device holds {most} bytes of states; delete or shorten some")
        return None

    def _deliver(
        self, descended: DownlinkDecision, before: Holding | None, turn: Batch, *, supersedes: bool
    ) -> tuple[int, int]:
        """Let the event's delivery follow that of the one `before`, or take its place; rank and sequence."""
        rank = descended.rank
        if before is not None and before.sequence:
            if before.sequence >= turn.first_sequence:
                # Of this same turn.
                if supersedes and descended.is_stored:
                    turn.arrivals[before.sequence - turn.first_sequence] = descended.arrival(
                        before.rank, before.sequence
                    )
                    return before.rank, before.sequence
                rank = max(rank, before.rank)
            elif supersedes:
                turn.replaced += self._ways(before)
            elif self._waits(before):
                rank = max(rank, before.rank)
        if not descended.is_stored:
            return (before.rank, before.sequence) if before and before.sequence > 0 else (rank, 0)
        sequence = turn.slot.sequence
        turn.store(descended.arrival(rank, sequence))
        return rank, sequence

    def _has_room_for_answer(self) -> bool:
        return self._pressure.admits(Priority.URGENT.rank, Size(ANSWER_BYTES, 1), WhenFull.REFUSE)

    def _held(self, incoming: Incoming, turn: Batch) -> Holding | None:
        known = turn.holdings.get((incoming.kind, incoming.key))
        return known or self._spool.holding(incoming.kind, incoming.key)

    def _may_be_undelivered(self, before: Holding) -> bool:
        """Whether it was salvaged and its delivery was not: that one may have been made, or lost."""
        # One that still waits is enough: of two with the same bytes a receipt could end only one.
        return before.sequence < 0 and not self._waits(before)

    def _waits(self, before: Holding) -> bool:
        """Whether the event before is still on its way: one that follows must not overtake it."""
        return any(self._outgoing.waiting(each) for each in self._ways(before))

    def _ways(self, before: Holding) -> Sequence[Delivery]:
        """The deliveries that the event before may have had."""
        uplink = self._contract.device.outbox.address
        destinations = (each for each in self._spool.destinations() if each != uplink)
        return [Delivery(each, before.rank, before.sequence) for each in destinations]


def _growth(incoming: Incoming, before: Holding | None) -> int:
    """By how many characters more text of states will be held."""
    keeps_text = incoming.kind is Downlink.STATE and not incoming.is_deleted
    return len(incoming.event.json) * keeps_text - (len(before.json) if before else 0)


def _adds_key(incoming: Incoming, before: Holding | None) -> bool:
    """Whether the device will hold one state more."""
    is_live = incoming.kind is Downlink.STATE and not incoming.is_deleted
    return is_live and not (before and before.is_live)
