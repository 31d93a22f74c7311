"""Answers the questions of services on the device. A build may leave this part out (`edge.parts`)."""

from __future__ import annotations

from functools import cached_property

from edge.answers import Answers
from edge.decision import Decider
from edge.interest import Interest
from edge.spool import Spool
from eventplane.contract import Contract, Downlink
from eventplane.conversation.handlers import Handlers, NotAskingError
from eventplane.conversation.questions import HandlersAnswer, HandlersQuestion, StateAnswer, StateQuestion
from eventplane.envelope import parse_event


class DeviceAnswers(Answers):
    """Answers for the device `thing`, from its contract, spool and decisions, and the services' interest."""

    def __init__(
        self, contract: Contract, thing: str, spool: Spool, decider: Decider, interest: Interest
    ) -> None:
        super().__init__(contract, thing)
        self._spool = spool
        self._decider = decider
        self._interest = interest

    def _state(self, question: StateQuestion) -> StateAnswer:
        """Return the current state of a key to a service that the device would send it to."""
        stored = self._spool.device_state(Downlink.STATE, question.key)
        if stored is None or not stored.json:
            return StateAnswer(question.id, None)
        readers = self._decider.addresses(parse_event(stored.json))
        return StateAnswer(question.id, stored.json if question.inbox in readers else None)

    def _who_handles(self, question: HandlersQuestion, service: str) -> HandlersAnswer:
        comes_again = self._contract.channel(question.inbox).receipts
        try:
            found = self._handlers.of(question.event, service, self._thing)
        except NotAskingError as error:
            return HandlersAnswer(question.id, self._thing, (), comes_again, str(error)[:400])
        names = tuple(sorted(each.participant for each in found))
        inboxes = {each: self._contract.participants[each].inbox.address for each in names}
        announced = {each: last for each, inbox in inboxes.items() if (last := self._interest.last(inbox))}
        return HandlersAnswer(question.id, self._thing, names, comes_again, announced=announced)

    @cached_property
    def _handlers(self) -> Handlers:
        # A second index of all routes: only a device on which a service asks needs it.
        return Handlers(self._contract, self._interest.answers)
