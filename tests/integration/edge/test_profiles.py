"""The reader of profiles against Mosquitto itself: where it leads, Mosquitto answers."""

import getpass
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from eventplane_mqtt.endpoint import BrokerAddress
from eventplane_mqtt.mailbox import Connected
from eventplane_mqtt.profile import load_profile
from lab.certificates import Authority
from lab.mosquitto import find_mosquitto
from lab.ports import free_port
from lab.process import Supervisor
from parts.discovery.broker import choose
from tests.listeners import BY_DESIGN
from tests.odd_profiles import ODD_PROFILES, Odd
from tests.unit.eventplane_mqtt.probe import Probe

IS_2_0 = (
    "version 2.0"
    in subprocess.run([find_mosquitto(), "-h"], capture_output=True, text=True, check=False).stdout
)
TAKEN = [each for each in ODD_PROFILES if IS_2_0 or not each.only_2_0]
READ = [each for each in TAKEN if each.address and each.runs]
REFUSED = [each for each in TAKEN if not each.address and each.mosquitto_refuses]


def write_profile(odd: Odd, folder: Path) -> tuple[Path, Callable[[str], str]]:
    """The file, and how what stands in a text for a port or folder is filled in."""
    port, other = free_port(), free_port()
    BY_DESIGN.update((port, other))

    def filled(text: str) -> str:
        return text.replace("PORT", str(port)).replace("OTHER", str(other)).replace("FOLDER", str(folder))

    server = Authority(folder / "certificates").issue("broker.home")
    shutil.copy(server.certificate, folder / "server.pem")
    shutil.copy(server.key, folder / "server.key")
    (folder / "conf.d").mkdir()
    (folder / "empty").touch()
    for name, text in odd.included.items():
        (folder / "conf.d" / name).write_text(filled(text))
    # Strangers are let in where the profile is not about that. As root it would become another user.
    strangers = "" if "per_listener_settings" in odd.text else "allow_anonymous true\n"
    file = folder / "profile"
    file.write_bytes(f"{strangers}user {getpass.getuser()}\n{filled(odd.text)}".encode())
    return file, filled


def is_answered(address: BrokerAddress) -> bool:
    """Whether a broker takes the connection and a subscription, within the test's patience."""
    probe = Probe(address.port, host=address.host, tls=address.tls)
    report = probe.reports.get(timeout=60)
    probe.connection.close(10)
    return isinstance(report, Connected)


@pytest.mark.source("C9")
@pytest.mark.parametrize("odd", READ, ids=lambda odd: odd.name)
def test_mosquitto_answers_where_the_profile_leads(odd: Odd, tmp_path: Path, supervisor: Supervisor) -> None:
    file, filled = write_profile(odd, tmp_path)
    address = choose(load_profile(file), has_login=odd.has_login)
    assert str(address) == filled(odd.address or "")
    supervisor.start("mosquitto", [find_mosquitto(), "-c", str(file)], ready=lambda: is_answered(address))


@pytest.mark.parametrize("odd", REFUSED, ids=lambda odd: odd.name)
def test_mosquitto_refuses_what_is_refused_here(odd: Odd, tmp_path: Path) -> None:
    file, _ = write_profile(odd, tmp_path)
    ended = subprocess.run(
        [find_mosquitto(), "-c", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert "Error" in ended.stderr
