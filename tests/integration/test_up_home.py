"""A real home, no cloud: the buttons break what they say, and alarms get through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from local.certificates import Authority
from local.cloud import CloudEndpoint
from local.control_room.plane import Fault, Stage
from local.home import BROKER_CONNECTED, Home, start_home
from local.machine import ThisMachine
from local.network import Network
from local.ports import LOOPBACK, free_port
from local.process import Restarter, Supervisor
from local.services import CALL_SERVICE
from local.things import Thing
from local.up.observer import ObservingProxy
from local.up.plane import LocalPlane, NoRouterError, NothingToHealError
from tests.eventually import eventually
from tests.plane import shipped_contract

SECONDS = 60.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home at a cloud that nobody reaches; what is killed there starts again by itself."""
    folder = tmp_path_factory.mktemp("home")
    authority = Authority(folder / "authority")
    identity = authority.issue("home-1")
    thing = Thing("home-1", identity.certificate, identity.key, authority.ca, LOOPBACK, free_port())
    directory = ThisMachine().folder(folder, "home-1")
    with Supervisor(folder / "run") as supervisor, Network() as network:
        home = start_home(
            supervisor, network, thing, shipped_contract(), "rule", directory, ready=BROKER_CONNECTED
        )
        with Restarter(home.children, pause_s=0.1):
            yield home


@pytest.fixture(scope="module")
def plane(home: Home) -> Iterator[LocalPlane]:
    url = f"http://{LOOPBACK}:{free_port()}"
    cloud = CloudEndpoint(url, "us-east-1", "0" * 12, LOOPBACK, free_port(), "", "test", "test")
    with (
        ObservingProxy(cloud.url) as proxy,
        LocalPlane(cloud, proxy, home, shipped_contract(), {}, {"end it": "make down"}) as plane,
    ):
        yield plane


def arrived(plane: LocalPlane, id: str) -> bool:
    """Whether the home's call-service got the alarm: the way there needs no cloud."""
    return any(
        delivery.inbox == CALL_SERVICE and delivery.after_ms is not None
        for event in plane.state().events
        if event.id == id
        for delivery in event.deliveries
    )


def test_an_alarm_is_shown_with_where_it_goes(plane: LocalPlane) -> None:
    id = plane.send_alarm()
    assert eventually(lambda: arrived(plane, id), SECONDS)
    alarm = next(each for each in plane.state().events if each.id == id)
    assert {each.inbox for each in alarm.deliveries} >= {"alarm-centre", CALL_SERVICE}
    assert next(each for each in alarm.deliveries if each.inbox == "alarm-centre").after_ms is None
    assert eventually(lambda: plane.state().counters.waiting > 0, SECONDS)  # for the cloud, in the spool
    assert plane.state().counters.sent >= 2  # the alarm, and the call that it led to


@pytest.mark.parametrize(
    ("fault", "stage"), [(Fault.FORWARDER, Stage.FORWARDER), (Fault.MOSQUITTO, Stage.BROKER)]
)
def test_a_killed_process_starts_again_and_an_alarm_sent_meanwhile_arrives(
    plane: LocalPlane, home: Home, fault: Fault, stage: Stage
) -> None:
    child = home.forwarder if fault is Fault.FORWARDER else home.broker.child
    before = child.pid
    plane.strike(fault)
    id = plane.send_alarm()
    assert eventually(lambda: child.running and child.pid != before, SECONDS)
    assert eventually(lambda: arrived(plane, id), SECONDS)
    assert plane.state().stages[stage].is_up
    with pytest.raises(NothingToHealError, match="starts again by itself"):
        plane.heal(fault)


def test_network_and_s3_fail_until_they_are_healed(plane: LocalPlane) -> None:
    """Also the page gets to know it: what it is sent is JSON."""
    for fault, stage in ((Fault.NETWORK, Stage.RULE), (Fault.S3, Stage.ARCHIVE)):
        for _ in range(2):  # a second strike changes nothing
            plane.strike(fault)
        assert (fault in plane.state().active, plane.state().stages[stage].is_up) == (True, False)
        assert json.loads(json.dumps(asdict(plane.state())))["active"] == [fault]
        for _ in range(2):
            plane.heal(fault)
        assert (fault in plane.state().active, plane.state().stages[stage].is_up) == (False, True)


def test_a_router_that_does_not_run_cannot_be_killed(plane: LocalPlane) -> None:
    with pytest.raises(NoRouterError, match="send an alarm first"):
        plane.strike(Fault.ROUTER)
