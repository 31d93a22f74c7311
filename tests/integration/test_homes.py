"""Real homes at a cloud that cannot be reached, and the real data sets that homes play."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import jsonschema
import pytest

from contract import load_contract
from lab.certificates import Authority
from lab.home import BROKER_CONNECTED, Home, start_home
from lab.input import open_input
from lab.input.model import InputEvent
from lab.machine import ThisMachine
from lab.network import Network
from lab.oracle import Arrived, SentLog, expected_by_service, judge
from lab.players import Players
from lab.ports import LOOPBACK, free_port
from lab.process import Supervisor
from lab.services import CALL_SERVICE, HomeServices, arrived_on_device
from lab.things import Thing
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
def test_kills_cost_no_alarm(supervisor: Supervisor, tmp_path: Path) -> None:
    chosen, contract = open_input(homes=4, events=3_000), shipped_contract()
    sent = SentLog(contract)
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        homes, services = dict[str, Home](), dict[str, HomeServices]()
        for each in chosen.homes:
            home = homes[each.name] = home_without_cloud(supervisor, network, tmp_path, each.name)
            served = HomeServices(each.name, each.services, home.broker.port, contract, sent)
            services[each.name] = stack.enter_context(served)

        def kill_and_restart(done: int, _home: str) -> None:
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


def test_all_homes_and_events_are_there_each_once_and_in_time_order(shared_data: Path) -> None:
    everything = open_input(shared_data, homes=None, events=None)
    names = [home.name for home in everything.homes]
    assert len(names) == len(set(names)) == 62  # 55 patients with readings, 1 with alerts only, 6 rooms
    assert sum(name.startswith("flat-") for name in names) == 6
    assert everything.total == 285_691
    assert sum(home.urgent for home in everything.homes) == 608

    keys = set()
    before: InputEvent | None = None
    for each in everything:
        keys.add(each.event.key)
        assert before is None or before.at <= each.at
        before = each
    assert len(keys) == everything.total


@pytest.mark.parametrize("is_real", [False, True], ids=["simulated", "real"])
def test_payloads_are_what_the_contract_says(request: pytest.FixtureRequest, is_real: bool) -> None:
    contract = load_contract()
    folder = request.getfixturevalue("shared_data") if is_real else None
    validators = {
        name: jsonschema.Draft202012Validator(dict(next(iter(each.schemas.values()))))
        for name, each in contract.event_types.items()
    }
    for each in open_input(folder, homes=20, events=4_000):
        validators[each.event.type].validate(each.event.data())
        assert contract.participants[each.service].may_send(each.event.type)
