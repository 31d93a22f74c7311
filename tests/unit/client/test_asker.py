"""Who asks, without a broker: who leaves, who comes back, and what is sent."""

import threading

import pytest

from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.conversation.open_requests import Replies
from eventplane.conversation.questions import (
    StateAnswer,
    read_state_answer,
    write_state_answer,
    write_state_question,
)
from eventplane.envelope import Envelope, Sender
from eventplane_client.asker import Asker, Expected, Send
from eventplane_client.errors import RequestTimeoutError
from eventplane_client.open_questions import OpenQuestions
from eventplane_client.system import SYSTEM
from tests.unit.eventplane.conversation.worlds import ask

SECONDS = 30


class Home:
    """A lamp handles everything, and never answers."""

    def __init__(self) -> None:
        self.sent: list[Envelope] = []
        self.asker = Asker("button", lambda _: None, SYSTEM)

    def request(self, timeout_s: float, send: Send, *, expires: bool) -> Replies:
        def find(_event: Envelope, _timeout_s: float) -> Expected:
            return Expected([Replier("lamp")], device="home-7")

        return self.asker.ask(ask(), timeout_s, send, find, find, durable=True, expires=expires)

    def send(self, event: Envelope, timeout_s: float) -> None:
        assert timeout_s <= SECONDS
        self.sent.append(event)


@pytest.mark.parametrize("expires", [True, False])
def test_what_matters_whoever_waits_does_not_expire(expires: bool) -> None:
    home = Home()
    with pytest.raises(RequestTimeoutError):
        home.request(0.0, home.send, expires=expires)
    (request,) = home.sent
    assert ("expirytime" in request.attributes) is expires
    assert request.attributes["replydevice"] == "home-7"


def test_foreign_replies_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    home = Home()

    def send(event: Envelope, timeout_s: float) -> None:
        home.asker.take(b"garbage")
        for sender, claimed in (("chime", "lamp"), ("chime", "chime"), ("", "lamp"), ("lamp", "lamp")):
            reply = write_reply(
                event, Reply(Replier(claimed), Status.HANDLED, sender), "2026-01-01T00:00:00Z"
            )
            home.asker.take(reply.stamped(**Sender(service=sender).attributes).json.encode())

    found = home.request(SECONDS, send, expires=True)
    assert {name: reply.answer for name, reply in found.items()} == {"lamp": "lamp"}
    assert home.asker.ignored_replies == 4
    assert "'chime' sent it" in caplog.text
    assert "chime was not asked" in caplog.text


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
