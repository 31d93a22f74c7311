"""Real homes at a cloud that cannot be reached: players, faults, and the buttons of the control room."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from local.certificates import Authority
from local.cloud import CloudEndpoint
from local.control_room.plane import Fault, Stage
from local.home import BROKER_CONNECTED, Home, start_home
from local.input import open_input
from local.machine import ThisMachine
from local.network import Network
from local.oracle import Arrived, SentLog, expected_by_service, judge
from local.players import Players
from local.ports import LOOPBACK, free_port
from local.process import Supervisor
from local.services import CALL_SERVICE, HomeServices, arrived_on_device
from local.things import Thing
from local.up.observer import ObservingProxy
from local.up.plane import LocalPlane, NoRouterError, NothingToHealError
from tests.eventually import eventually
from tests.plane import shipped_contract

SECONDS = 60.0
"""How long anything may take on a busy machine."""


def home_without_cloud(supervisor: Supervisor, network: Network, folder: Path, name: str) -> Home:
    """A home whose forwarder is connected to its broker, and to nothing else."""
    authority = Authority(folder / f"authority-{name}")
    identity = authority.issue(name)
    thing = Thing(name, identity.certificate, identity.key, authority.ca, LOOPBACK, free_port())
    directory = ThisMachine().folder(folder, name)
    return start_home(
        supervisor, network, thing, shipped_contract(), "rule", directory, ready=BROKER_CONNECTED
    )


@pytest.mark.source("P10")
def test_every_alarm_is_answered_once_and_every_malformed_message_refused_while_processes_are_killed(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    chosen, contract = open_input(homes=4, events=3_000), shipped_contract()
    sent = SentLog(contract)
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        homes, services = dict[str, Home](), dict[str, HomeServices]()
        for each in chosen.homes:
            home = homes[each.name] = home_without_cloud(supervisor, network, tmp_path, each.name)
            served = HomeServices(each.name, each.services, home.broker.port, contract, sent)
            services[each.name] = stack.enter_context(served)

        def kill_and_restart(done: int) -> None:
            victims = {1_000: homes["home-01"].forwarder, 2_000: homes["home-04"].broker.child}
            if child := victims.get(done):
                child.kill()
                child.start()

        players = Players(services)
        players.play(chosen, chosen.total, kill_and_restart)
        players.flush(SECONDS)

        def arrived() -> Arrived:
            """What the call-services received, all together."""
            return arrived_on_device(list(services.values()))[CALL_SERVICE]

        def refused() -> Counter[str]:
            return Counter(reason for each in services.values() for reason in list(each.refused))

        expected = expected_by_service(contract, sent.events, sent.malformed)[CALL_SERVICE]
        assert eventually(lambda: arrived().received >= expected, SECONDS)
        # Each alarm and, for each, the call.
        assert eventually(lambda: sent.events_sent == 3_000 + len(expected), SECONDS)
        [verdict] = judge({CALL_SERVICE: expected}, {CALL_SERVICE: arrived()})
        assert verdict.good
        assert verdict.expected >= 2
        assert eventually(lambda: refused().total() >= sent.malformed_sent, SECONDS)
        assert refused() == Counter(each.reason for each in sent.malformed)


@pytest.fixture
def plane(supervisor: Supervisor, tmp_path: Path) -> Iterator[LocalPlane]:
    """The plane of `make up` with a home, and without its cloud."""
    url = f"http://{LOOPBACK}:{free_port()}"
    cloud = CloudEndpoint(url, "us-east-1", "0" * 12, LOOPBACK, free_port(), "", "test", "test")
    with Network() as network, ObservingProxy(cloud.url) as proxy:
        home = home_without_cloud(supervisor, network, tmp_path, "home-1")
        with LocalPlane(cloud, proxy, home, shipped_contract(), {}, {"end it": "make down"}) as plane:
            yield plane


def test_faults_last_until_they_are_healed_and_are_in_the_state_that_the_page_gets(plane: LocalPlane) -> None:
    for fault, stage in ((Fault.NETWORK, Stage.RULE), (Fault.S3, Stage.ARCHIVE)):
        for _ in range(2):  # a second strike changes nothing
            plane.strike(fault)
        assert (fault in plane.state().active, plane.state().stages[stage].is_up) == (True, False)
        assert json.loads(json.dumps(asdict(plane.state())))["active"] == [fault]
        for _ in range(2):
            plane.heal(fault)
        assert (fault in plane.state().active, plane.state().stages[stage].is_up) == (False, True)
    with pytest.raises(NothingToHealError, match="starts again by itself"):
        plane.heal(Fault.FORWARDER)
    with pytest.raises(NoRouterError, match="send an alarm first"):
        plane.strike(Fault.ROUTER)
