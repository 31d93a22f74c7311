"""Who asks, without a broker: who leaves, who comes back, and what is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from edge.asker import Asker
from edge.errors import RequestTimeoutError
from edge.questions.handlers import HandlersAnswer
from eventplane.conversation.circuit import OPENS_AFTER, Circuit
from eventplane.conversation.reply import Replier, Reply, Status
from eventplane.envelope import Envelope
from tests.eventually import eventually
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


def test_who_is_said_to_have_left_is_waited_for_no_more() -> None:
    home = Home()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(home.asker.request, ask(), SECONDS, home.send, expires=True)
        assert eventually(lambda: bool(home.sent), SECONDS)
        home.asker.left("lamp")
        assert asking.result(SECONDS) == {"lamp": Reply(Replier("lamp"), Status.UNHANDLED)}


def test_who_announces_itself_is_worth_a_probe() -> None:
    home = Home()
    for _ in range(OPENS_AFTER):
        with pytest.raises(RequestTimeoutError, match="no reply of lamp"):
            home.asker.request(ask(), 0.0, home.send, expires=True)
    assert home.asker.peers() == {"lamp": Circuit.OPEN}
    home.asker.announced("lamp")
    assert home.asker.peers() == {"lamp": Circuit.HALF_OPEN}


@pytest.mark.parametrize("expires", [True, False])
def test_what_matters_whoever_waits_does_not_expire(expires: bool) -> None:
    home = Home()
    with pytest.raises(RequestTimeoutError):
        home.asker.request(ask(), 0.0, home.send, expires=expires)
    (request,) = home.sent
    assert ("expirytime" in request.attributes) is expires
    assert request.attributes["replydevice"] == "home-7"
