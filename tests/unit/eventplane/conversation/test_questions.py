"""Questions of services and their answers, as they travel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.conversation.questions import (
    HandlersAnswer,
    HandlersQuestion,
    QuestionError,
    StateAnswer,
    StateQuestion,
    read_handlers_answer,
    read_handlers_question,
    read_state_answer,
    read_state_question,
    write_handlers_answer,
    write_handlers_question,
    write_state_answer,
    write_state_question,
)
from eventplane.envelope import write_event

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts.filter(lambda it: 0 < len(it) <= 400), texts.filter(lambda it: 0 < len(it) <= 400))
def test_a_state_question_is_read_as_it_was_written(id: str, key: str) -> None:
    assert read_state_question(write_state_question(id, key), "x.inbox") == StateQuestion(id, key, "x.inbox")


@given(st.none() | texts, st.none() | st.just("this build has no answers"))
def test_a_state_answer_is_read_as_it_was_written(event: str | None, problem: str | None) -> None:
    answer = StateAnswer("1", event, problem)
    assert read_state_answer(write_state_answer(answer)) == answer


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"1", b"[]", b'{"id":1}', b'{"id":"i"}', b'{"id":"","key":"k"}', b'{"id":"i","event":1}'],
)
def test_other_bytes_are_neither_question_nor_answer(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_state_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_state_answer(payload)


@given(
    texts.filter(lambda it: 0 < len(it) <= 400),
    st.lists(st.sampled_from(["lamp", "desk"])).map(tuple),
    st.booleans(),
    st.none() | st.just("it asks nothing"),
)
def test_answers_are_read_back(thing: str, names: tuple[str, ...], again: bool, problem: str | None) -> None:
    answer = HandlersAnswer("1", thing, names, again, problem)
    written = write_handlers_answer(answer)
    assert read_handlers_answer(written) == answer
    # A later version may add members.
    assert read_handlers_answer(written[:-1] + b',"mood":"good"}') == answer


def test_a_handlers_question_has_the_attributes_of_the_event_only() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "loud": True, "n": 7}, {"much": "data"})
    payload = write_handlers_question("q", event)
    assert b"much" not in payload
    question = read_handlers_question(payload, "x.inbox")
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
def test_other_bytes_are_no_handlers_question_or_answer(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_handlers_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_handlers_answer(payload)
