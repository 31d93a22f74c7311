from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.questions import handlers
from edge.questions.handlers import HandlersAnswer, HandlersQuestion
from edge.questions.open_questions import OpenQuestions
from edge.questions.state import (
    StateAnswer,
    StateQuestion,
    read_answer,
    read_question,
    write_answer,
    write_question,
)
from edge.questions.wire import QuestionError
from eventplane.envelope import write_event

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts.filter(lambda it: 0 < len(it) <= 400), texts.filter(lambda it: 0 < len(it) <= 400))
def test_a_question_is_read_as_it_was_written(id: str, key: str) -> None:
    assert read_question(write_question(id, key), "x.inbox") == StateQuestion(id, key, "x.inbox")


@given(st.none() | texts)
def test_an_answer_is_read_as_it_was_written(event: str | None) -> None:
    assert read_answer(write_answer(StateAnswer("1", event))) == StateAnswer("1", event)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"1", b"[]", b'{"id":1}', b'{"id":"i"}', b'{"id":"","key":"k"}', b'{"id":"i","event":1}'],
)
def test_other_bytes_are_neither(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_answer(payload)


@given(
    texts.filter(lambda it: 0 < len(it) <= 400),
    st.lists(st.sampled_from(["lamp", "desk"])).map(tuple),
    st.booleans(),
    st.none() | st.just("it asks nothing"),
)
def test_who_handles_it_is_read_as_it_was_written(
    thing: str, names: tuple[str, ...], again: bool, problem: str | None
) -> None:
    answer = HandlersAnswer("1", thing, names, again, problem)
    assert handlers.read_answer(handlers.write_answer(answer)) == answer


def test_an_event_is_asked_about_by_its_attributes() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "loud": True, "n": 7}, {"much": "data"})
    payload = handlers.write_question("q", event)
    assert b"much" not in payload
    question = handlers.read_question(payload, "x.inbox")
    assert question == HandlersQuestion("q", question.event, "x.inbox")
    assert question.event.attributes == event.attributes


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"id":"i"}',
        b'{"id":"i","event":{}}',
        b'{"id":"i","event":[]}',
        b'{"event":{"specversion":"1.0","id":"1","source":"/a","type":"t"}}',
        b'{"id":"i","thing":"t","handlers":"x","comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[""],"comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[],"comes_again":1}',
        b'{"id":"i","thing":"","handlers":[],"comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[],"comes_again":true,"problem":1}',
    ],
)
def test_other_bytes_say_nothing_of_handlers(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        handlers.read_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        handlers.read_answer(payload)


def test_what_a_later_version_answers_in_addition_is_ignored() -> None:
    payload = b'{"id":"i","thing":"t","handlers":["lamp"],"comes_again":false,"mood":"good"}'
    assert handlers.read_answer(payload) == HandlersAnswer("i", "t", ("lamp",), False)


def open_questions() -> OpenQuestions[str, StateAnswer]:
    return OpenQuestions("topic", 5.0, write_question, read_answer)


class TestOpenQuestions:
    def test_they_are_asked_again_until_they_are_answered(self) -> None:
        questions = open_questions()
        assert questions.deadline() is None
        id = questions.ask("a/b/c")
        assert questions.due(100.0) == [write_question(id, "a/b/c")]
        assert questions.due(104.0) == []
        assert questions.deadline() == 105.0
        assert questions.due(105.0) == [write_question(id, "a/b/c")]
        questions.resend()
        assert questions.due(106.0) == [write_question(id, "a/b/c")]
        questions.answered(write_answer(StateAnswer("another", None)))
        questions.answered(write_answer(StateAnswer(id, "{}")))
        assert questions.wait_answer(id, 0.0) == StateAnswer(id, "{}")
        assert questions.deadline() is None

    def test_who_gave_up_is_not_waited_for(self) -> None:
        questions = open_questions()
        id = questions.ask("a/b/c")
        assert questions.wait_answer(id, 0.0) is None
        questions.answered(write_answer(StateAnswer(id, "{}")))
        assert questions.due(1.0) == []
        assert questions.wait_answer(id, 0.0) is None

    def test_closing_wakes_who_waits(self) -> None:
        questions = open_questions()
        id = questions.ask("a/b/c")
        closing = threading.Timer(0.0, questions.close)
        closing.start()
        assert questions.wait_answer(id, 60.0) is None
        closing.join()
