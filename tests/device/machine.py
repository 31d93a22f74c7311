"""A device of the sources' kind in an emulator: a Cortex-A7 (armv7l), one core, 500 MB of memory."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.process import Child, Supervisor
from tests.device.image import DeviceFile, Image
from tests.eventually import eventually

HOST = "10.0.2.2"
"""What this machine's loopback interface is called on the emulated network (QEMU's user mode)."""

PATIENCE_S = 600.0
"""For any one step, seconds: the emulator is slow, and the machine may be busy."""

AGENT_FILES: Mapping[str, DeviceFile] = {
    "/usr/lib/check/agent.py": DeviceFile(Path(__file__).with_name("agent.py").read_bytes()),
    "/etc/systemd/system/check-agent.service": DeviceFile(
        b"[Unit]\nStartLimitIntervalSec=0\n"
        b"[Service]\nExecStart=/usr/bin/python3 -I /usr/lib/check/agent.py\nRestart=always\nRestartSec=1\n"
        b"[Install]\nWantedBy=multi-user.target\n"
    ),
    "/etc/hosts": DeviceFile(b"127.0.0.1 localhost\n"),  # as Debian's installer leaves it
    "/etc/systemd/network/wired.network": DeviceFile(
        b"[Match]\nType=ether\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\nLinkLocalAddressing=no\n"
    ),
}
"""What the tests need on the device beside its own programs."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command on the device ended, and what it wrote."""

    status: int
    output: str
    errors: str


class CommandFailedError(Exception):
    """A command on the device ended with an error."""

    def __init__(self, argv: tuple[str, ...], completed: Completed) -> None:
        self.argv, self.completed = argv, completed
        super().__init__(f"{' '.join(argv)}: status {completed.status}: {completed.errors}{completed.output}")


class EmulatedDevice:
    """A machine that boots `image`; `run` runs commands on it as root."""

    def __init__(self, supervisor: Supervisor, folder: Path, image: Image) -> None:
        self._supervisor = supervisor
        self._image = image
        self._socket = folder / "agent.sock"
        self._child: Child | None = None
        self.boot()

    def boot(self) -> None:
        """Switch it on, and return when it runs commands."""
        options = {
            "machine": "virt", "cpu": "cortex-a7", "smp": "1", "m": "500M",
            "kernel": str(self._image.kernel), "initrd": str(self._image.ramdisk),
            "append": "console=ttyAMA0 systemd.show_status=1",
            "drive": f"if=none,id=disk,format=raw,file={self._image.disk}",
            "netdev": "user,id=network", "chardev": f"socket,id=agent,path={self._socket},server=on,wait=on",
            "display": "none", "monitor": "none", "serial": "stdio",
        }  # fmt: skip
        devices = [
            "virtio-blk-device,drive=disk", "virtio-net-device,netdev=network", "virtio-rng-device",
            "virtio-serial-device", "virtserialport,chardev=agent,name=agent",
        ]  # fmt: skip
        argv = ["qemu-system-arm", "-no-reboot"]
        argv += [word for name, value in options.items() for word in (f"-{name}", value)]
        argv += [word for each in devices for word in ("-device", each)]
        self._socket.unlink(missing_ok=True)
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(PATIENCE_S)

        def takes_the_line() -> bool:
            # The socket is there a moment before anything listens at it.
            return line.connect_ex(str(self._socket)) == 0

        self._child = self._supervisor.start("device", argv, ready=takes_the_line)
        self._line, self._answers = line, line.makefile("rb")
        assert self._answers.readline() == b'{"ready": true}\n', self.console()

    def cut_power(self) -> None:
        """Switch it off at once: nothing is written any more, nothing stops in good order."""
        assert self._child is not None
        self._answers.close()
        self._line.close()
        self._child.kill()

    def try_run(self, *argv: str) -> Completed:
        """Run a command on the device, whatever its exit status is."""
        self._line.sendall(json.dumps(argv).encode() + b"\n")
        return Completed(**json.loads(self._answers.readline()))

    def run(self, *argv: str) -> str:
        """Run a command on the device; its output. Raises `CommandFailedError`."""
        completed = self.try_run(*argv)
        if completed.status:
            raise CommandFailedError(argv, completed)
        return completed.output.strip()

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """What systemd says of `unit`."""
        lines = self.run("systemctl", "show", "--property", ",".join(properties), unit).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def wait(self, unit: str, **properties: str) -> None:
        """Wait until systemd says all of `properties` of `unit`."""
        reached = eventually(lambda: self.show(unit, *properties) == properties, PATIENCE_S, every_s=0.5)
        assert reached, f"{self.show(unit, *properties)}\n{self.journal(unit)}"

    def journal(self, unit: str) -> str:
        """What `unit` and systemd about it have logged since the boot."""
        return self.run("journalctl", "--boot", "--no-pager", "--output=cat", "--unit", unit)

    def console(self) -> str:
        """What the device has written to its serial line."""
        return self._child.log.read_text(errors="replace") if self._child else ""
