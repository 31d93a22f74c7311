"""Answers the questions of services. Only a device on which a service asks loads this module."""

from __future__ import annotations

import logging

from edge.dispatch import Role
from edge.parts import PartMissingError
from eventplane.contract import Channel, Contract
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
from eventplane.topics import handlers_answer_topic, state_answer_topic

_log = logging.getLogger(__name__)


class Answers:
    """Answers for the device `thing`: without the part `questions`, that it is missing."""

    def __init__(self, contract: Contract, thing: str) -> None:
        self._contract = contract
        self._thing = thing

    def to(self, role: Role, question: bytes, inbox: Channel) -> tuple[str, bytes] | None:
        """Return topic and payload of the answer to the reader of `inbox`; None for what is no question."""
        service = inbox.participant
        try:
            if role is Role.STATE_QUESTIONS:
                state = self._state(read_state_question(question, inbox.address))
                return state_answer_topic(service), write_state_answer(state)
            handlers = self._who_handles(read_handlers_question(question, inbox.address), service)
            return handlers_answer_topic(service), write_handlers_answer(handlers)
        except QuestionError as error:
            _log.warning("a question of %s ignored: %s", service, error)
            return None

    def _state(self, question: StateQuestion) -> StateAnswer:
        return StateAnswer(question.id, None, str(PartMissingError("questions")))

    def _who_handles(self, question: HandlersQuestion, _service: str) -> HandlersAnswer:
        problem = str(PartMissingError("questions"))
        return HandlersAnswer(question.id, self._thing, (), comes_again=False, problem=problem)
