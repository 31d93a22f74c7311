"""The forwarder's answers to the questions of services on the device."""

from __future__ import annotations

from functools import cached_property

from edge.decision import Decider
from edge.interest import Interest
from edge.questions import handlers, state
from edge.questions.handlers import HandlersAnswer, HandlersQuestion
from edge.questions.state import StateAnswer, StateQuestion
from edge.spool import Spool
from eventplane.contract import Contract, Downlink
from eventplane.conversation.errors import NotAskingError
from eventplane.conversation.handlers import Handlers
from eventplane.envelope import parse_event
from eventplane.topics import handlers_answer_topic, state_answer_topic


class Answers:
    """Of the device `thing`: by `contract`, what the `spool` holds, and where `intake` would lead that.

    Who handles an event is a matter of `interest` too.
    """

    def __init__(
        self, contract: Contract, thing: str, spool: Spool, intake: Decider, interest: Interest
    ) -> None:
        self._contract = contract
        self._thing = thing
        self._spool = spool
        self._intake = intake
        self._interest = interest

    def to(self, question: StateQuestion | HandlersQuestion) -> tuple[str, bytes]:
        """The topic and the payload of the answer."""
        service = self._contract.channel(question.inbox).participant
        if isinstance(question, StateQuestion):
            return state_answer_topic(service), state.write_answer(self._state(question))
        return handlers_answer_topic(service), handlers.write_answer(self._who_handles(question, service))

    def _state(self, question: StateQuestion) -> StateAnswer:
        """The current state of a key, for a service that would be sent it."""
        holding = self._spool.holding(Downlink.STATE, question.key)
        if holding is None or not holding.json:
            return StateAnswer(question.id, None)
        readers = self._intake.addresses(parse_event(holding.json))
        return StateAnswer(question.id, holding.json if question.inbox in readers else None)

    def _who_handles(self, question: HandlersQuestion, service: str) -> HandlersAnswer:
        comes_again = self._contract.channel(question.inbox).receipts
        try:
            found = self._handlers.of(question.event, service)
        except NotAskingError as error:
            return HandlersAnswer(question.id, self._thing, (), comes_again, str(error)[:400])
        names = tuple(sorted(each.participant for each in found))
        inboxes = {each: self._contract.participants[each].inbox.address for each in names}
        announced = {each: last for each, inbox in inboxes.items() if (last := self._interest.last(inbox))}
        return HandlersAnswer(question.id, self._thing, names, comes_again, announced=announced)

    @cached_property
    def _handlers(self) -> Handlers:
        # A second index of all routes: only a device on which somebody asks needs it.
        return Handlers(self._contract, self._interest.answers)
