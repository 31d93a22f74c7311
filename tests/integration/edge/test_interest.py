"""Announced interest, with a real Mosquitto at both ends and the forwarder as a process."""

import pytest

from contract.loader import load_contract
from eventplane.contract import Contract
from eventplane.envelope import Envelope, write_event
from tests.integration.edge.conftest import SECONDS, Home, wait_for
from tests.small_contract import with_changes

MOTION = "org.eventplane.activity.motion.v1"
DOOR = "org.eventplane.activity.door.v1"
DOORS = {"exact": {"type": DOOR}}
ANNOUNCED = "voice-service announced what it handles"
ENDED = "voice-service announces nothing any more"


@pytest.fixture
def home_contract() -> Contract:
    """The shipped contract; the voice service reads activities too."""
    route = {"filter": {"prefix": {"type": "org.eventplane.activity."}}, "to": "voice-service.inbox"}
    return with_changes(load_contract(), {"routes/activities-to-voice": route})


def event(id: str, type: str) -> Envelope:
    return write_event({"id": id, "source": "/homes/1/activity", "type": type}, {"state": "moved"})


@pytest.mark.source("C8", "C10")
def test_interest_outlives_kills(home: Home) -> None:
    came: list[str] = []
    voice = home.listen("voice-service", lambda each: came.append(each.id), handles=[DOORS])
    wait_for(lambda: home.logged(ANNOUNCED) == 1)
    sensor = home.connect("activity-service")
    for number, kill in enumerate((home.broker.child, home.forwarder), start=2):
        known, connected = home.logged(ANNOUNCED), home.logged("local broker connected")
        kill.kill()
        kill.start()
        # Of the service over its own new connection, or of what the broker kept.
        wait_for(lambda: home.logged(ANNOUNCED) > known)  # noqa: B023
        wait_for(lambda: home.logged("local broker connected") > connected)  # noqa: B023
        sensor.put(event(f"motion-{number}", MOTION), SECONDS)
        sensor.put(event(f"door-{number}", DOOR), SECONDS)
        wait_for(lambda: f"door-{number}" in came)  # noqa: B023
    assert not [each for each in came if each.startswith("motion")]
    voice.withdraw()
    wait_for(lambda: home.logged(ENDED) == 1)
    sensor.put(event("last", MOTION), SECONDS)
    wait_for(lambda: came[-1] == "last")
