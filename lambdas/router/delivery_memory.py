"""What this process delivered of messages that come again: a failing inbox makes no copies in the others."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from eventplane.ledger import SENT_BEFORE, Basis, LedgerRecord
from lambdas.router.planner import Step

MAX_REMEMBERED: Final = 50_000
"""Most deliveries that are remembered; the messages that came first are forgotten first. Ours: 20 MB."""

_Delivery: TypeAlias = tuple[str, str, str, str | None, str | None]
_DecidedBy: TypeAlias = tuple[Basis, str]


class DeliveryMemory:
    """Deliveries of messages that come again, and those among them that the ledger does not have yet.

    It spares copies, and promises nothing: another process, or this one after a restart, delivers again.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._delivered: OrderedDict[str, dict[_Delivery, _DecidedBy]] = OrderedDict()
        self._unwritten: list[LedgerRecord] = []

    @property
    def unwritten(self) -> list[LedgerRecord]:
        """Records of earlier invocations that the ledger still has to get."""
        return list(self._unwritten)

    def sort_out(self, steps: Iterable[Step]) -> tuple[list[Step], list[Step]]:
        """Return the `steps` that are still to be made, and records of those that this process has made.

        Only a delivery that was made on another basis, or by another contract, is recorded again: by this one
        it is due as well, and the ledger shows by which contract the message ended.
        """
        new: list[Step] = []
        known: list[Step] = []
        for step in steps:
            before = self._delivered.get(step.record.message_id, {}).get(_delivery(step))
            if before is None or step.event is None:
                new.append(step)
            elif before != _decided_by(step):
                known.append(replace(step, record=replace(step.record, reason=SENT_BEFORE), event=None))
        return new, known

    def end(
        self, facts: Iterable[Step], done: Iterable[str], failed: Collection[str], *, is_written: bool
    ) -> None:
        """Remember the deliveries among `facts` of the `failed` messages, and forget the `done` ones.

        Of what the ledger did not get, the deliveries are kept for it; all else is decided again.
        """
        for id in done:
            self._delivered.pop(id, None)
        tried = [step for step in facts if step.event is not None or step.tried_once]
        for step in tried:
            if step.event is not None and step.record.message_id in failed:
                of_message = self._delivered.setdefault(step.record.message_id, {})
                of_message.setdefault(_delivery(step), _decided_by(step))
        # Without their events, of which there may be 100 KB each.
        self._unwritten = [] if is_written else [*self._unwritten, *(step.record for step in tried)]
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        excess = sum(map(len, self._delivered.values())) + len(self._unwritten) - self._most
        if excess <= 0:
            return
        unwritten = Counter(each.message_id for each in self._unwritten)
        forgotten: set[str] = set()
        while excess > 0 and self._delivered:
            id, deliveries = self._delivered.popitem(last=False)
            excess -= len(deliveries) + unwritten[id]
            forgotten.add(id)
        # They will be made again, and recorded then. What is left was dropped, and is so again.
        kept = [each for each in self._unwritten if each.message_id not in forgotten]
        self._unwritten = kept[max(0, excess) :]


def _delivery(step: Step) -> _Delivery:
    record = step.record
    return record.sender, record.source, record.id, record.route, record.destination


def _decided_by(step: Step) -> _DecidedBy:
    return step.record.basis, step.record.contract_version
