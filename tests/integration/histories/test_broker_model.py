"""The simulator's broker does what Mosquitto does: the same scenarios over both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from getpass import getuser

import pytest

from lab.histories.engine import Engine
from lab.mosquitto import start_configured, start_mosquitto
from lab.ports import LOOPBACK, free_port
from lab.process import Supervisor
from parts.simulate.broker import BrokerModel, Limits
from parts.simulate.home import home_limits
from tests.integration.histories.mqtt_scenarios import (
    ACCESS,
    DENIED,
    MAX_IN_FLIGHT,
    MAX_QUEUED,
    SETTINGS,
    ModelWire,
    Scenario,
    SocketWire,
    expires,
    owners,
)

SCENARIOS = 60
"""Of each broker."""


@dataclass(frozen=True)
class Pair:
    """A real broker's port, and what makes a model of it."""

    port: int
    model: Callable[[Engine], BrokerModel]


def limited(engine: Engine) -> BrokerModel:
    limits = Limits(MAX_IN_FLIGHT, MAX_QUEUED)
    return BrokerModel(engine, limits, denies=lambda topic: topic.split("/")[1] == DENIED)


def of_a_home(engine: Engine) -> BrokerModel:
    return BrokerModel(engine, home_limits())


@pytest.fixture(scope="module", params=["limited", "home"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One Mosquitto for all scenarios: with small limits, or with the device's profile."""
    folder = tmp_path_factory.mktemp("mosquitto")
    with Supervisor(folder / "run") as supervisor:
        if request.param == "home":
            yield Pair(start_mosquitto(supervisor, "home", folder).port, of_a_home)
            return
        port, access = free_port(), folder / "access"
        access.touch(0o600)
        access.write_text(ACCESS)
        text = f"user {getuser()}\nlistener {port} {LOOPBACK}\nacl_file {access}\n{SETTINGS}"
        start_configured(supervisor, "limited", folder, text, port)
        yield Pair(port, limited)


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_clients_observe_the_same(pair: Pair, seed: int) -> None:
    engine = Engine()
    broker = pair.model(engine)
    simulated = Scenario(seed, lambda: ModelWire(engine, broker)).observed
    assert simulated == Scenario(seed, lambda: SocketWire(pair.port)).observed


def test_a_client_that_says_nothing_is_presumed_dead(pair: Pair) -> None:
    engine = Engine()
    broker = pair.model(engine)
    simulated = expires(lambda: ModelWire(engine, broker))
    assert simulated == expires(lambda: SocketWire(pair.port))
    assert "will" in simulated[-1]


def test_a_message_is_kept_with_the_owner_it_waits_for(pair: Pair) -> None:
    engine = Engine()
    broker = pair.model(engine)
    found = owners(lambda: SocketWire(pair.port))
    assert found == owners(lambda: ModelWire(engine, broker))
    assert found == [
        r"32 b'\x02\x0b\x07here'",
        r"3a b'\x02\x0b\x07here'",
        r"32 b'\x02\x0b\x07away'",
        r"32 b'\x02\x0b\x08here'",
    ]
