"""Who asks, without a broker: who leaves, who comes back, and what is sent."""

from __future__ import annotations

import pytest

from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.conversation.questions import HandlersAnswer
from eventplane.envelope import Envelope
from eventplane.sender import Sender
from eventplane_client.device.asker import Asker
from eventplane_client.errors import RequestTimeoutError
from tests.unit.eventplane.conversation.worlds import ask

SECONDS = 30


class Home:
    """A lamp handles everything, and never answers."""

    def __init__(self) -> None:
        self.sent: list[Envelope] = []
        answer = HandlersAnswer("1", "home-7", ("lamp",), comes_again=False)
        self.asker = Asker("button", lambda _event, _timeout_s: answer, lambda _: None)

    def send(self, event: Envelope, timeout_s: float) -> None:
        assert timeout_s <= SECONDS
        self.sent.append(event)


@pytest.mark.parametrize("expires", [True, False])
def test_what_matters_whoever_waits_does_not_expire(expires: bool) -> None:
    home = Home()
    with pytest.raises(RequestTimeoutError):
        home.asker.request(ask(), 0.0, home.send, expires=expires)
    (request,) = home.sent
    assert ("expirytime" in request.attributes) is expires
    assert request.attributes["replydevice"] == "home-7"


def test_a_reply_in_the_name_of_another_or_of_one_that_was_not_asked_is_ignored_and_counted() -> None:
    home = Home()

    def send(event: Envelope, timeout_s: float) -> None:
        for sender, claimed in (("chime", "lamp"), ("chime", "chime"), ("", "lamp"), ("lamp", "lamp")):
            reply = write_reply(
                event, Reply(Replier(claimed), Status.HANDLED, sender), "2026-01-01T00:00:00Z"
            )
            home.asker.pending.take(reply.stamped(**Sender(service=sender).attributes).json.encode())

    found = home.asker.request(ask(), SECONDS, send, expires=True)
    assert {name: reply.answer for name, reply in found.items()} == {"lamp": "lamp"}
    assert home.asker.pending.ignored_replies == 3
