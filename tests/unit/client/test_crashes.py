"""A crash before and after every step: no event twice out of `get`, none missing."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventplane.envelope import Envelope
from eventplane_client.errors import NothingThereError
from tests.examples import examples
from tests.unit.client.conftest import WORLDS, make_world
from tests.unit.client.worlds import READER, SENDER, Crash, Steps, World, event

EVENTS = 4
MANY = 1_000
"""Receives: here crashes are what is tried, not poison."""


class Service:
    """Gets events and handles them, in a process that may crash at any step and then starts again.

    `returned` counts what came out of `get`, `doubted` what was in doubt, `handled` what it has dealt with.
    """

    def __init__(self, world: World, batch: int) -> None:
        self._world = world
        self._batch = batch
        self.returned: Counter[str] = Counter()
        self.doubted: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()

    def run(self, steps: Steps) -> bool:
        """Handle all there is; False if it crashed."""
        handle = steps.around(self)
        try:
            client = self._world.client(READER, steps=steps)
            inbox = client.subscribe(on_doubt=self._decide)
            try:
                while True:
                    found = inbox.get_batch(self._batch, 0.0)
                    self.returned.update(each.id for each in found)
                    for each in found:
                        handle.handle(each)
            except NothingThereError:
                client.close()
        except Crash:
            self._world.crash()
            return False
        self._world.hurry()
        return True

    def handle(self, event: Envelope) -> None:
        self.handled[event.id] += 1

    def _decide(self, event: Envelope) -> bool:
        self.doubted[event.id] += 1
        return event.id not in self.handled


def check(service: Service, sent: list[str], *, crashes: int) -> None:
    assert service.handled == Counter(sent)
    # Out of `get` only once, unless its program looked and asked for it.
    again = {id for id in service.doubted if service.returned[id] > 1}
    assert all(service.returned[id] == 1 for id in sent if id not in again)
    assert all(service.returned[id] <= 1 + service.doubted[id] for id in sent)
    assert len(service.doubted) == 0 or crashes > 0


def put_all(world: World) -> list[str]:
    sent = [event(f"e{number}") for number in range(EVENTS)]
    with world.client(SENDER) as sender:
        for each in sent:
            sender.put(each)
    world.deliver(sent[0])  # as a transport does that delivers twice
    return [each.id for each in sent]


@pytest.mark.long
@pytest.mark.source("P14")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("kind", WORLDS)
def test_no_crash_loses_or_repeats(request: pytest.FixtureRequest, kind: str, batch: int) -> None:
    if kind.startswith("sqs"):
        request.getfixturevalue("fake_aws")
    at, cuts = 1, 0
    while True:
        for after in (False, True):
            with TemporaryDirectory() as directory:
                world = make_world(kind, Path(directory), MANY)
                service = Service(world, batch)
                sent = put_all(world)
                crashed = not service.run(Steps(at, after=after))
                while not service.run(Steps()) or world.pending():
                    pass
                check(service, sent, crashes=crashed)
                assert world.letters() == []
                world.close()
                cuts += crashed
        if not crashed:
            break
        at += 1
    assert cuts > 2 * EVENTS


@pytest.mark.source("P14", "F1")
@given(
    kind=st.sampled_from(WORLDS[:2]),
    batch=st.integers(1, 5),
    # Five receives without an end would make a dead letter of an event.
    crashes=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_number_of_crashes(kind: str, batch: int, crashes: list[tuple[int, bool]]) -> None:
    with TemporaryDirectory() as directory:
        world = make_world(kind, Path(directory), MANY)
        service = Service(world, batch)
        sent = put_all(world)
        for at, after in crashes:
            service.run(Steps(at, after=after))
        while not service.run(Steps()) or world.pending():
            pass
        check(service, sent, crashes=len(crashes))
        world.close()
