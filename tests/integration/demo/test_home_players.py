"""Players, call-services and poison over real brokers and real forwarders; there is no cloud to reach."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contract import load_contract
from eventplane.contract import Contract
from local.input import Input, open_input
from local.mosquitto import Broker
from local.oracle import Arrived, SentLog, expected_by_service, judge
from local.players import Players
from local.process import Child, Supervisor
from local.services import CALL_SERVICE, HomeServices, arrived_on_device
from tests.eventually import eventually

SECONDS = 60.0
"""How long anything may take on a busy machine."""

SETTINGS = """
thing = "{home}"
contract = "{contract}"
spool = "{home}.db"
[local]
port = {port}
receipt_timeout_s = 1.0
[cloud]
host = "127.0.0.1"
port = 1
ca = "none.pem"
certificate = "none.pem"
key = "none.pem"
rule = "none"
[health]
port = 0
"""


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_contract()


class Homes:
    """The homes of `chosen`, each with broker, forwarder and services, and what they sent."""

    def __init__(
        self,
        chosen: Input,
        contract: Contract,
        supervisor: Supervisor,
        mosquitto: Callable[[str], Broker],
        directory: Path,
        stack: ExitStack,
    ) -> None:
        self.sent = SentLog(contract)
        self.brokers: dict[str, Broker] = {}
        self.forwarders: dict[str, Child] = {}
        self.services: dict[str, HomeServices] = {}
        compiled = directory / "contract.json"
        compiled.write_bytes(contract.canonical)
        for home in chosen.homes:
            broker = mosquitto(home.name)
            settings = directory / f"{home.name}.toml"
            settings.write_text(SETTINGS.format(home=home.name, contract=compiled, port=broker.port))
            self.brokers[home.name] = broker
            self.forwarders[home.name] = supervisor.start(
                f"{home.name}-forwarder", [sys.executable, "-m", "edge", "--settings", str(settings)]
            )
            self.services[home.name] = stack.enter_context(
                HomeServices(home.name, home.services, broker.port, contract, self.sent)
            )

    def arrived(self) -> Arrived:
        """What the call-services received, all together."""
        return arrived_on_device(list(self.services.values()))[CALL_SERVICE]

    def refused(self) -> Counter[str]:
        """How many messages the forwarders refused, by reason."""
        return Counter(reason for services in self.services.values() for reason in list(services.refused))


@pytest.fixture
def play(
    contract: Contract, supervisor: Supervisor, mosquitto: Callable[[str], Broker], tmp_path: Path
) -> Iterator[Callable[[Input], Homes]]:
    with ExitStack() as stack:
        yield lambda chosen: Homes(chosen, contract, supervisor, mosquitto, tmp_path, stack)


@pytest.mark.source("P10")
@pytest.mark.parametrize("with_faults", [False, True], ids=["calm", "faults"])
def test_every_alarm_is_answered_once_and_every_malformed_message_refused(
    play: Callable[[Input], Homes], contract: Contract, with_faults: bool
) -> None:
    chosen = open_input(homes=4, events=3_000)
    homes = play(chosen)

    def faults(done: int) -> None:
        if with_faults and done == 1_000:
            homes.forwarders["home-01"].kill()
            homes.forwarders["home-01"].start()
        if with_faults and done == 2_000:
            homes.brokers["home-04"].child.kill()
            homes.brokers["home-04"].child.start()

    players = Players(homes.services)
    players.play(chosen, chosen.total, faults)
    players.flush(SECONDS)

    expected = expected_by_service(contract, homes.sent.events, homes.sent.malformed)[CALL_SERVICE]
    assert eventually(lambda: homes.arrived().received >= expected, SECONDS)
    # Each alarm and, for each, the call.
    assert eventually(lambda: homes.sent.events_sent == 3_000 + len(expected), SECONDS)
    [verdict] = judge({CALL_SERVICE: expected}, {CALL_SERVICE: homes.arrived()})
    assert verdict.good
    assert verdict.expected >= 2
    assert eventually(lambda: homes.refused().total() >= homes.sent.malformed_sent, SECONDS)
    assert homes.refused() == Counter(each.reason for each in homes.sent.malformed)
