"""What this process delivered of messages that come again: a failing inbox makes no copies in the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from eventplane.ledger import SENT_BEFORE, Basis
from lambdas.router.planner import Step

MAX_REMEMBERED: Final = 50_000
"""Most deliveries that are remembered; the messages that came first are forgotten first. Ours: 20 MB."""

_Delivery: TypeAlias = tuple[str, str, str, str | None, str | None]


class DeliveryMemory:
    """Deliveries of messages that come again, and those among them that the ledger does not have yet.

    It spares copies, and promises nothing: another process, or this one after a restart, delivers again.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._delivered: OrderedDict[str, dict[_Delivery, Basis]] = OrderedDict()
        self._unwritten: list[Step] = []

    @property
    def unwritten(self) -> list[Step]:
        """Deliveries of earlier invocations that the ledger still has to get."""
        return list(self._unwritten)

    def sort_out(self, steps: Iterable[Step]) -> tuple[list[Step], list[Step]]:
        """Return the `steps` that are still to be made, and records of those that this process has made.

        Only a delivery that was made on another basis is recorded again: by this one it is due as well.
        """
        new: list[Step] = []
        known: list[Step] = []
        for step in steps:
            basis = self._delivered.get(step.record.message_id, {}).get(_delivery(step))
            if basis is None or step.event is None:
                new.append(step)
            elif basis is not step.record.basis:
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
                of_message.setdefault(_delivery(step), step.record.basis)
        self._unwritten = [] if is_written else [*self._unwritten, *tried]
        self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        size = sum(map(len, self._delivered.values())) + len(self._unwritten)
        while size > self._most and self._delivered:
            id, deliveries = self._delivered.popitem(last=False)
            # They will be made again, and recorded then.
            kept = [step for step in self._unwritten if step.record.message_id != id]
            size -= len(deliveries) + len(self._unwritten) - len(kept)
            self._unwritten = kept


def _delivery(step: Step) -> _Delivery:
    record = step.record
    return record.sender, record.source, record.id, record.route, record.destination
