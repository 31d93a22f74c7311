"""A home with two devices: one announces its broker, the other finds it, the uplink hears nothing of it."""

import getpass
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from contract.loader import load_contract
from eventplane.contract import Contract
from eventplane.envelope import Envelope, write_event
from lab.mosquitto import find_mosquitto
from lab.process import Child, Supervisor
from tests.eventually import eventually
from tests.integration.edge.conftest import SECONDS, Home, wait_for
from tests.small_contract import with_changes


def can_make_networks() -> bool:
    """Whether this machine lets us; some forbid it to all but root."""
    made = subprocess.run(["unshare", "-Urn", "ip", "link"], capture_output=True, check=False)
    return made.returncode == 0


pytestmark = pytest.mark.skipif(not can_make_networks(), reason="this machine lets nobody make networks")

HOME, UPLINK = "10.77.0.1", "10.88.0.1"
PORT = 1884

PUT = """
from pathlib import Path
from eventplane.envelope import write_event
from eventplane_client import connect, connection
connection.DEFAULT_PROFILE = Path("/nowhere/mosquitto.conf")  # a device without a broker of its own
with connect() as client, client.subscribe():
    client.put(write_event({"id": "1", "source": "/l", "type": "t"}, "from the second device"), 100)
"""
"""A service of the second device; its put returns when the forwarder has the event."""

CONFIRM = """
import sys
from eventplane.receipts import Receipt, digest, write_receipts
from eventplane.topics import local_topic, receipt_topic
from tests.eventually import eventually
from tests.integration.mqtt import TestClient
with TestClient("forwarder", "127.0.0.1", int(sys.argv[1])) as line:
    line.subscribe(local_topic("lamp", "outbox"))
    assert eventually(lambda: line.messages, 100)
    (_, payload), *_ = line.messages
    print(payload.decode(), flush=True)
    assert line.publish(receipt_topic("lamp", "outbox"), write_receipts([Receipt(digest(payload))]))
"""
"""What the first device's forwarder does with it."""


ASK = """
import socket, struct, sys
labels = b"".join(bytes([len(each)]) + each for each in (b"_mqtt", b"_tcp", b"local"))
question = struct.pack(">6H", 7, 0, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">2H", 12, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.settimeout(float(sys.argv[2]))
    line.sendto(question, (sys.argv[1], 5353))
    try:
        print(struct.unpack_from(">6H", line.recv(9000))[3])
    except (TimeoutError, ConnectionError):
        print(0)
"""
"""Asks an address for brokers by one plain DNS-SD question, and prints the number of answers."""

LIFE_S = 600
"""What holds a namespace ends by itself after this, whatever becomes of the test."""


# Network namespaces that play devices, joined by cables. The kernel removes them with their processes.


@dataclass(frozen=True)
class Device:
    """A network stack of its own, in the process `pid`."""

    pid: int

    def argv(self, *command: str) -> list[str]:
        """What runs `command` on this device."""
        return ["nsenter", "-t", str(self.pid), "-U", "-n", "--preserve-credentials", "--", *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run `command` to its end."""
        return subprocess.run(self.argv(*command), capture_output=True, text=True, timeout=120, check=False)


def make_device(supervisor: Supervisor, name: str, beside: Device | None = None) -> Device:
    """A device without cables; `beside` another one, which owns them all."""
    hold = [shutil.which("sleep") or "sleep", str(LIFE_S)]
    argv = ["unshare", "-Urn", *hold] if beside is None else beside.argv("unshare", "-n", *hold)
    others = {_network("self"), _network(beside.pid if beside else "self")}
    device = Device(supervisor.start(name, argv).pid or 0)
    assert eventually(lambda: _network(device.pid) not in others)
    # Its user has no rights there until `unshare` has mapped the user's id, after it made the network.
    assert eventually(lambda: device.run("ip", "link", "set", "lo", "up").returncode == 0)
    return device


def join(one: Device, end: str, address: str, other: Device, other_end: str, other_address: str) -> None:
    """A cable from the interface `end` of `one` to `other_end` of `other`; addresses with their length."""
    set_up(
        one, ["ip", "link", "add", end, "type", "veth", "peer", "name", other_end, "netns", str(other.pid)]
    )
    for device, name, at in ((one, end, address), (other, other_end, other_address)):
        set_up(device, ["ip", "address", "add", at, "dev", name])
        set_up(device, ["ip", "link", "set", name, "up"])


def _network(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def set_up(device: Device, command: Sequence[str]) -> None:
    done = device.run(*command)
    assert done.returncode == 0, done.stderr


@dataclass
class House:
    """The device with the broker, a second one in the home, and what stands at the uplink's other end."""

    supervisor: Supervisor
    folder: Path
    device: Device
    second: Device
    provider: Device

    def write_profile(self) -> None:
        (self.folder / "mosquitto.conf").write_text(
            f"user {getpass.getuser()}\nlistener {PORT}\nallow_anonymous true\n"
        )

    def start(self, name: str, *command: str) -> Child:
        return self.supervisor.start(name, self.device.argv(*command))

    def start_broker(self) -> None:
        child = self.start("broker", find_mosquitto(), "-c", str(self.folder / "mosquitto.conf"))
        wait_for(lambda: " running" in child.log.read_text())

    def start_announcement(self) -> Child:
        settings = self.folder / "forwarder.toml"
        settings.write_text(
            'thing = "home-1"\ncontract = "c"\nspool = "s"\n[cloud]\nhost = "127.0.0.1"\nrule = "r"\n'
            f'tls = false\n[local]\nprofile = "{self.folder}/mosquitto.conf"\n'
            '[announcement]\ninterfaces = "home0"\n'
        )
        return self.start(
            "announcement", sys.executable, "-m", "edge", "announce", "--settings", str(settings)
        )

    def found(self) -> str:
        """What the second device finds."""
        return self.second.run(
            sys.executable, "-m", "edge", "discovery", "find", "--interfaces", "home0", "--seconds", "1"
        ).stdout

    def answers(self, asking: Device, address: str, seconds: float) -> int:
        """How many answers a plain question to `address` gets within `seconds`."""
        return int(asking.run(sys.executable, "-c", ASK, address, str(seconds)).stdout)


@pytest.fixture
def house(supervisor: Supervisor, tmp_path: Path) -> House:
    device = make_device(supervisor, "device")
    second, provider = make_device(supervisor, "second", device), make_device(supervisor, "provider", device)
    join(device, "home0", f"{HOME}/24", second, "home0", "10.77.0.2/24")
    join(device, "up0", f"{UPLINK}/24", provider, "up0", "10.88.0.2/24")
    return House(supervisor, tmp_path, device, second, provider)


@pytest.mark.source("C9")
def test_a_second_device_finds_the_broker_also_for_a_service_with_nothing_configured(house: House) -> None:
    house.write_profile()
    house.start_broker()
    announcement = house.start_announcement()
    wait_for(lambda: f"home-1 {PORT}: {HOME}:{PORT}, of thing home-1" in house.found())
    forwarder = house.start("forwarder", sys.executable, "-c", CONFIRM, str(PORT))
    sent = house.second.run(
        *("env", "EVENTPLANE_CLIENT_PARTICIPANT=lamp", f"XDG_STATE_HOME={house.folder}"),
        *(sys.executable, "-c", PUT),
    )
    assert (sent.returncode, sent.stderr) == (0, "")
    wait_for(lambda: not forwarder.running)
    assert "from the second device" in forwarder.log.read_text()
    assert (house.folder / "eventplane" / "lamp.db").is_file()
    announcement.stop()
    wait_for(lambda: house.found() == "")


def test_nothing_is_announced_at_the_uplink(house: House) -> None:
    house.write_profile()
    house.start_announcement()
    wait_for(lambda: house.answers(house.second, HOME, 1) > 0)
    # The device's address at the home and the one at the uplink: neither answers who asks over the uplink.
    assert house.answers(house.provider, UPLINK, 1) == 0
    assert house.provider.run("ip", "route", "add", HOME, "via", UPLINK).returncode == 0
    assert house.answers(house.provider, HOME, 1) == 0
    assert house.answers(house.second, HOME, 60) > 0


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
        wait_for(lambda: home.logged(ANNOUNCED) > known)  # noqa: B023 - asked at once
        wait_for(lambda: home.logged("local broker connected") > connected)  # noqa: B023 - asked at once
        sensor.put(event(f"motion-{number}", MOTION), SECONDS)
        sensor.put(event(f"door-{number}", DOOR), SECONDS)
        wait_for(lambda: f"door-{number}" in came)  # noqa: B023 - asked at once
    assert not [each for each in came if each.startswith("motion")]
    voice.withdraw()
    wait_for(lambda: home.logged(ENDED) == 1)
    sensor.put(event("last", MOTION), SECONDS)
    wait_for(lambda: came[-1] == "last")
