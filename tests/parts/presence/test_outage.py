"""The fleet as a population: it is counted, and an outage makes one notice of many."""

import pytest

from eventplane.names import NOTICE, NOTICE_OF_MANY
from eventplane.presence import PRESENCE, Line, OutageLimits, PresenceItem, Sighting, gone
from eventplane.records import Records
from parts.presence import outage
from parts.presence.outage import NOTICE_MS
from parts.presence.table import Population, PresenceTable
from tests.fakes.faults import FailingClient, HookedClient
from tests.fakes.tables import MemoryTables
from tests.parts.presence.world import HOUR, LIMITS, MINUTE, START, S, World, heartbeat, lifecycle, records_of

pytestmark = pytest.mark.source("P9")

MANY = [f"home-{number:02}" for number in range(LIMITS.outage.least)]
SETTLED_MS = round(S * LIMITS.disconnected_after_s)


def say(world: World, line: Line, version: int, devices: list[str]) -> None:
    world.record(*(lifecycle(line, world.clock(), version, device=each) for each in devices))


@pytest.fixture
def fleet(world: World) -> World:
    """Homes that have been connected for an hour."""
    say(world, Line.CONNECTED, 0, MANY)
    world.fire(START + HOUR)
    world.words()
    return world


def cut(fleet: World, devices: list[str] = MANY, version: int = 0) -> None:
    """Have them lose their connections, and judge them."""
    say(fleet, Line.DISCONNECTED, version, devices)
    fleet.fire(fleet.clock() + SETTLED_MS)


def notices(world: World) -> list[tuple[str, list[str]]]:
    """Take the events in the outbox; the phase and the devices of each notice."""
    return [
        (each["data"]["phase"], sorted(of["device"] for of in each["data"].get("devices", [each["data"]])))
        for each in world.sent()
        if each["type"] in (NOTICE, NOTICE_OF_MANY)
    ]


def test_an_outage_is_one_notice(fleet: World) -> None:
    cut(fleet)
    found = fleet.look()
    assert notices(fleet) == [], "it is held back"
    assert (found["Connected"], found["Lost"], found["FleetOutage"]) == (0, len(MANY), len(MANY))
    fleet.look(fleet.clock() + MINUTE)
    fleet.look(fleet.clock() + MINUTE)
    assert notices(fleet) == [("opened", MANY)]
    found = fleet.look(fleet.clock() + HOUR)
    assert (found["Lost"], found["FleetOutage"]) == (len(MANY), len(MANY)), "until they are back"

    say(fleet, Line.CONNECTED, 1, MANY)
    fleet.fire(fleet.clock() + MINUTE)
    found = fleet.look(fleet.clock() + MINUTE)
    assert notices(fleet) == [("over", MANY)]
    assert found["FleetOutage"] == 0
    assert fleet.look()["Connected"] == len(MANY)
    # The next one is its own again.
    cut(fleet, MANY[:1], 1)
    assert notices(fleet) == [("opened", MANY[:1])]


def test_a_device_that_is_back_before_the_notice_is_not_named(fleet: World) -> None:
    cut(fleet)
    say(fleet, Line.CONNECTED, 1, MANY[:3])
    fleet.fire(fleet.clock() + MINUTE)
    fleet.look()
    assert notices(fleet) == [("opened", MANY[3:])]
    assert fleet.state(MANY[0]).incident is None


def test_worse_devices_are_named_once(fleet: World) -> None:
    fleet.record(*(heartbeat(1, device=each) for each in MANY), heartbeats=True)
    fleet.fire(fleet.clock() + 15 * MINUTE)
    assert fleet.state(MANY[-1]).quiet
    told = notices(fleet)
    cut(fleet)
    fleet.look(fleet.clock() + MINUTE)
    named = told + notices(fleet)
    for device in MANY:
        phases = [phase for phase, devices in named if device in devices]
        assert phases in (["opened"], ["opened", "worsened"])


def test_few_devices_are_no_outage(fleet: World) -> None:
    cut(fleet, MANY[1:])
    assert fleet.look()["FleetOutage"] == 0
    assert sorted(notices(fleet)) == [("opened", [each]) for each in MANY[1:]]
    say(fleet, Line.CONNECTED, 1, MANY[1:])
    fleet.fire(fleet.clock() + HOUR)
    say(fleet, Line.DISCONNECTED, 2, MANY)
    assert fleet.look(fleet.clock() + SETTLED_MS - 1)["FleetOutage"] == 0
    say(fleet, Line.CONNECTED, 3, MANY)
    assert fleet.look(fleet.clock() + MINUTE)["FleetOutage"] == 0


def test_what_left_the_fleet_or_was_never_seen_is_not_counted(fleet: World) -> None:
    cut(fleet)
    for device in MANY:
        records_of(fleet.dynamodb).force(gone(device))
    found = fleet.look()
    assert [found[each] for each in ("Connected", "Lost", "Quiet", "FleetOutage")] == [0, 0, 0, 0]


@pytest.mark.parametrize("connected", [480, 500])
def test_an_outage_is_a_share_of_the_fleet(connected: int) -> None:
    records = Records(MemoryTables(), "presence", PRESENCE)
    for number in range(connected + 10):
        line = Line.DISCONNECTED if number < 10 else Line.CONNECTED
        records.write(PresenceItem(f"home-{number}", sighting=Sighting(line, START, 1, "s")))
    population = Population(PresenceTable(records), OutageLimits(share=0.02, least=10))
    assert population.outage(START + MINUTE, lambda: True) == (10 if connected == 480 else 0)
    assert population.outage(START + HOUR, lambda: True) == 0, "they went long ago"


def test_an_uncounted_fleet_has_single_notices(fleet: World) -> None:
    say(fleet, Line.DISCONNECTED, 0, MANY)
    fleet.fire(fleet.clock() + SETTLED_MS, dynamodb=FailingClient(fleet.dynamodb, "query"))
    assert sorted(notices(fleet)) == [("opened", [each]) for each in MANY]
    assert fleet.look(dynamodb=FailingClient(fleet.dynamodb, "query")) == {}


def test_who_is_not_noted_as_told_is_told_again_by_the_same_notice(fleet: World) -> None:
    cut(fleet)
    fleet.clock.now_ms += MINUTE

    def crash() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.look(sqs=HookedClient(fleet.sqs, "send_message_batch", after=crash))
    (first,) = (each for each in fleet.sent() if each["type"] == NOTICE_OF_MANY)
    fleet.look(fleet.clock() + MINUTE)
    (again,) = fleet.sent()
    assert again["id"] == first["id"]
    assert notices(fleet) == []


@pytest.mark.parametrize("left_ms", [0, NOTICE_MS - 1])
def test_without_time_notices_wait_for_the_next_look(fleet: World, left_ms: int) -> None:
    cut(fleet)
    fleet.look(fleet.clock() + MINUTE, left_ms=left_ms)
    assert notices(fleet) == []
    fleet.look()
    assert notices(fleet) == [("opened", MANY)]


def test_a_notice_is_bounded(fleet: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "MOST_NAMED", 4)
    monkeypatch.setattr(outage, "MOST_READ", 8)
    cut(fleet)
    fleet.look(fleet.clock() + MINUTE)
    named = notices(fleet)
    assert len(named) == 2, "and reads no more than it can name"
    fleet.look()
    named += notices(fleet)
    assert [len(devices) for _, devices in named] == [4, 4, 2]
    assert sorted(device for _, devices in named for device in devices) == MANY


@pytest.mark.parametrize("judged_ms", [0, MINUTE])
def test_a_return_during_a_notice_is_told(fleet: World, judged_ms: int) -> None:
    cut(fleet)
    fleet.clock.now_ms += MINUTE

    def back() -> None:
        say(fleet, Line.CONNECTED, 1, MANY[:1])
        fleet.fire(fleet.clock() + judged_ms)

    fleet.look(sqs=HookedClient(fleet.sqs, "send_message_batch", before=back))
    assert notices(fleet) == [("opened", MANY)]
    fleet.fire(fleet.clock() + MINUTE)
    fleet.look(fleet.clock() + MINUTE)
    assert notices(fleet) == [("over", MANY[:1])]


def test_a_held_back_end_continues_an_incident(fleet: World) -> None:
    cut(fleet)
    fleet.look(fleet.clock() + MINUTE)
    incident = fleet.state(MANY[0]).incident
    assert notices(fleet) == [("opened", MANY)]
    for version in (1, 2):
        say(fleet, Line.CONNECTED, version, MANY[:1])
        fleet.fire(fleet.clock() + MINUTE)
        cut(fleet, MANY[:1], version)
        again = fleet.state(MANY[0]).incident
        assert again == incident
    fleet.look()
    say(fleet, Line.CONNECTED, 3, MANY[:1])
    fleet.fire(fleet.clock() + MINUTE)
    fleet.look(fleet.clock() + MINUTE)
    assert notices(fleet) == [("worsened", MANY[:1]), ("over", MANY[:1])]
