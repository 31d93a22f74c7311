"""Who asks, without a broker: who leaves, who comes back, and what is sent."""

from __future__ import annotations

import pytest

from edge.asker import Asker
from edge.errors import RequestTimeoutError
from edge.questions.handlers import HandlersAnswer
from eventplane.envelope import Envelope
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
