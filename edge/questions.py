"""Answers the questions of services. Only a device on which a service asks loads this module."""

from __future__ import annotations

import logging
from functools import cached_property

from edge.decision import Decider
from edge.interest import Interest
from edge.planning import Role
from edge.spool.store import Spool
from eventplane.contract import Channel, Contract, Downlink
from eventplane.conversation.handlers import Handlers, NoAskerError
from eventplane.conversation.questions import (
    HandlersAnswer,
    HandlersQuestion,
    QuestionError,
    StateAnswer,
    StateQuestion,
    read_handlers_question,
    read_state_question,
    write_handlers_answer,
    write_state_answer,
)
from eventplane.envelope import parse_event
from eventplane.topics import handlers_answer_topic, state_answer_topic

_log = logging.getLogger(__name__)


class Answers:
    """Answers for the device `thing`, from its contract, spool and decisions, and the services' interest."""

    def __init__(
        self, contract: Contract, thing: str, spool: Spool, decider: Decider, interest: Interest
    ) -> None:
        self._contract = contract
        self._thing = thing
        self._spool = spool
        self._decider = decider
        self._interest = interest

    def to(self, role: Role, question: bytes, inbox: Channel) -> tuple[str, bytes] | None:
        """Return topic and payload of the answer to the reader of `inbox`; None for what is no question."""
        service = inbox.participant
        try:
            if role is Role.STATE_QUESTIONS:
                state = self._state(read_state_question(question, inbox.address))
                return state_answer_topic(service), write_state_answer(state)
            handlers = self._who_handles(read_handlers_question(question, inbox.address), inbox)
            return handlers_answer_topic(service), write_handlers_answer(handlers)
        except QuestionError as error:
            _log.warning("a question of %s ignored: %s", service, error)
            return None

    def _state(self, question: StateQuestion) -> StateAnswer:
        """Return the current state of a key to a service that the device would send it to."""
        stored = self._spool.device_state(Downlink.STATE, question.key)
        if stored is None or not stored.json:
            return StateAnswer(question.id, None)
        readers = self._decider.addresses(parse_event(stored.json))
        return StateAnswer(question.id, stored.json if question.inbox in readers else None)

    def _who_handles(self, question: HandlersQuestion, inbox: Channel) -> HandlersAnswer:
        try:
            found = self._handlers.of(question.event, inbox.participant, self._thing)
        except NoAskerError as error:
            return HandlersAnswer(question.id, self._thing, (), inbox.receipts, str(error)[:400])
        names = tuple(sorted(each.participant for each in found))
        last, everybody = self._interest.last, self._contract.participants
        announced = {each: last[to] for each in names if (to := everybody[each].inbox.address) in last}
        return HandlersAnswer(question.id, self._thing, names, inbox.receipts, announced=announced)

    @cached_property
    def _handlers(self) -> Handlers:
        # A second index of all routes: only a device on which a service asks for handlers needs it.
        return Handlers(self._contract, self._interest.answers)
