"""Questions of a service that wait for their answers."""

from __future__ import annotations

import threading

from eventplane.conversation.questions import (
    StateAnswer,
    read_state_answer,
    write_state_answer,
    write_state_question,
)
from eventplane_client.open_questions import OpenQuestions


def open_questions() -> OpenQuestions[str, StateAnswer]:
    return OpenQuestions("topic", 5.0, write_state_question, read_state_answer)


def test_a_question_is_repeated_until_it_is_answered() -> None:
    questions = open_questions()
    assert questions.deadline() is None
    id = questions.ask("a/b/c")
    assert questions.due(100.0) == [write_state_question(id, "a/b/c")]
    assert questions.due(104.0) == []
    assert questions.deadline() == 105.0
    assert questions.due(105.0) == [write_state_question(id, "a/b/c")]
    questions.resend()
    assert questions.due(106.0) == [write_state_question(id, "a/b/c")]
    questions.take_answer(write_state_answer(StateAnswer("another", None)))
    questions.take_answer(write_state_answer(StateAnswer(id, "{}")))
    assert questions.wait_answer(id, 0.0) == StateAnswer(id, "{}")
    assert questions.deadline() is None


def test_after_a_timeout_the_question_is_gone() -> None:
    questions = open_questions()
    id = questions.ask("a/b/c")
    assert questions.wait_answer(id, 0.0) is None
    questions.take_answer(write_state_answer(StateAnswer(id, "{}")))
    assert questions.due(1.0) == []
    assert questions.wait_answer(id, 0.0) is None


def test_closing_ends_the_wait() -> None:
    questions = open_questions()
    id = questions.ask("a/b/c")
    closing = threading.Timer(0.0, questions.close)
    closing.start()
    assert questions.wait_answer(id, 60.0) is None
    closing.join()
