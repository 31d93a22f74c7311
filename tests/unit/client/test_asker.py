"""Who asks, without a broker: who leaves, who comes back, and what is sent."""

from __future__ import annotations

import pytest

from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.conversation.open_requests import Replies
from eventplane.envelope import Envelope
from eventplane.sender import Sender
from eventplane_client.asker import Asker, Found, Send
from eventplane_client.errors import RequestTimeoutError
from tests.unit.eventplane.conversation.worlds import ask

SECONDS = 30


class Home:
    """A lamp handles everything, and never answers."""

    def __init__(self) -> None:
        self.sent: list[Envelope] = []
        self.asker = Asker("button", lambda _: None)

    def request(self, timeout_s: float, send: Send, *, expires: bool) -> Replies:
        def find(_event: Envelope, _timeout_s: float) -> Found:
            return Found([Replier("lamp")], device="home-7")

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


def test_a_reply_in_the_name_of_another_or_of_one_that_was_not_asked_is_ignored_and_counted() -> None:
    home = Home()

    def send(event: Envelope, timeout_s: float) -> None:
        for sender, claimed in (("chime", "lamp"), ("chime", "chime"), ("", "lamp"), ("lamp", "lamp")):
            reply = write_reply(
                event, Reply(Replier(claimed), Status.HANDLED, sender), "2026-01-01T00:00:00Z"
            )
            home.asker.take(reply.stamped(**Sender(service=sender).attributes).json.encode())

    found = home.request(SECONDS, send, expires=True)
    assert {name: reply.answer for name, reply in found.items()} == {"lamp": "lamp"}
    assert home.asker.ignored_replies == 3
