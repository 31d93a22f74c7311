"""Network namespaces that play devices, joined by cables. The kernel removes them with their processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local.process import Supervisor
from tests.eventually import eventually

LIFE_S = 600
"""What holds a namespace ends by itself after this, whatever becomes of the test."""


def can_make_networks() -> bool:
    """Whether this machine lets us; some forbid it to all but root."""
    made = subprocess.run(["unshare", "-Urn", "ip", "link"], capture_output=True, check=False)
    return made.returncode == 0


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
