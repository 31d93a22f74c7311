"""The players: in order, past a home that stands still, with malformed messages at their places."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from eventplane.envelope import Envelope
from local.input import open_input
from local.players import PlayerError, Players, mixed
from local.poison import Poison


class Services:
    """A home that notes what it is given; `gate` holds it up, `failure` breaks it."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure = failure
        self.events: list[tuple[str, Envelope]] = []
        self.poison: list[Poison] = []

    def send(self, service: str, event: Envelope) -> None:
        self.gate.wait()
        if self.failure:
            raise self.failure
        self.events.append((service, event))

    def send_poison(self, service: str, message: Poison) -> None:
        self.poison.append(message)


def homes(*names: str) -> dict[str, Any]:
    return {name: Services() for name in names}


def test_each_home_gets_its_own_events_in_order() -> None:
    events = list(open_input(homes=2, events=300))
    services = homes("home-01", "home-02")
    done: list[int] = []

    Players(services).play(events, len(events), done.append)

    for name, each in services.items():
        assert each.events == [(event.service, event.event) for event in events if event.home == name]
    assert done == list(range(1, 301))


@pytest.mark.parametrize(("events", "malformed"), [(2_000, 5), (10_000, 20), (20, 5), (3, 3)])
def test_a_malformed_message_follows_every_500_events_and_at_least_five_in_all(
    events: int, malformed: int
) -> None:
    messages = [message.content for _, message in mixed(open_input(homes=2, events=events), events)]
    bad = [each for each in messages if isinstance(each, Poison)]

    assert len(bad) == malformed
    assert len(messages) == events + malformed
    assert len({each.payload for each in bad}) == malformed


def test_a_home_that_stands_still_does_not_stop_the_others() -> None:
    events = list(open_input(homes=2, events=300))
    services = homes("home-01", "home-02")
    services["home-01"].gate.clear()

    def release(done: int) -> None:
        # All have been dealt out while the first home stood still.
        if done == len(events):
            services["home-01"].gate.set()

    Players(services).play(events, len(events), release)

    assert sum(len(each.events) for each in services.values()) == len(events)


def test_a_home_that_cannot_send_ends_the_play_with_its_name() -> None:
    services = homes("home-01", "home-02")
    services["home-02"].failure = OSError("the broker is gone")

    with pytest.raises(PlayerError, match="home-02 could not send: the broker is gone") as raised:
        Players(services).play(open_input(homes=2, events=5_000), 5_000)

    assert isinstance(raised.value.__cause__, OSError)


def test_an_interruption_does_not_wait_for_a_home_that_stands_still() -> None:
    services = homes("home-01")
    services["home-01"].gate.clear()

    def interrupt(done: int) -> None:
        if done == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Players(services).play(open_input(homes=1, events=200), 200, interrupt)
    services["home-01"].gate.set()

    # It ends after the message in its hands.
    player = next((each for each in threading.enumerate() if each.name.startswith("player home-01")), None)
    if player:
        player.join()
    assert len(services["home-01"].events) <= 1
