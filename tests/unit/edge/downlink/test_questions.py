from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.downlink.open_questions import OpenQuestions
from edge.downlink.questions import (
    Answer,
    Question,
    QuestionError,
    read_answer,
    read_question,
    write_answer,
    write_question,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts.filter(lambda it: 0 < len(it) <= 400), texts.filter(lambda it: 0 < len(it) <= 400))
def test_a_question_is_read_as_it_was_written(id: str, key: str) -> None:
    assert read_question(write_question(id, key), "x.inbox") == Question(id, key, "x.inbox")


@given(st.none() | texts)
def test_an_answer_is_read_as_it_was_written(event: str | None) -> None:
    assert read_answer(write_answer(Answer("1", event))) == Answer("1", event)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"1", b"[]", b'{"id":1}', b'{"id":"i"}', b'{"id":"","key":"k"}', b'{"id":"i","event":1}'],
)
def test_other_bytes_are_neither(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_answer(payload)


class TestOpenQuestions:
    def test_they_are_asked_again_until_they_are_answered(self) -> None:
        questions = OpenQuestions(5.0)
        assert questions.deadline() is None
        id = questions.ask("a/b/c")
        assert questions.due(100.0) == [write_question(id, "a/b/c")]
        assert questions.due(104.0) == []
        assert questions.deadline() == 105.0
        assert questions.due(105.0) == [write_question(id, "a/b/c")]
        questions.resend()
        assert questions.due(106.0) == [write_question(id, "a/b/c")]
        questions.answered(Answer("another", None))
        questions.answered(Answer(id, "{}"))
        assert questions.wait_answer(id, 0.0) == Answer(id, "{}")
        assert questions.deadline() is None

    def test_who_gave_up_is_not_waited_for(self) -> None:
        questions = OpenQuestions(5.0)
        id = questions.ask("a/b/c")
        assert questions.wait_answer(id, 0.0) is None
        questions.answered(Answer(id, "{}"))
        assert questions.due(1.0) == []
        assert questions.wait_answer(id, 0.0) is None

    def test_closing_wakes_who_waits(self) -> None:
        questions = OpenQuestions(5.0)
        id = questions.ask("a/b/c")
        closing = threading.Timer(0.0, questions.close)
        closing.start()
        assert questions.wait_answer(id, 60.0) is None
        closing.join()
