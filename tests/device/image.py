"""The disk and the initial ramdisk of an emulated device, made from what is in build/device."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab.process import Child, Supervisor
from lab.tools.debian_package import write_package
from lab.tools.device_image import ROOT, VERSION, build
from tests.eventually import eventually

BUILD = ROOT / "build" / "device"
KERNEL = BUILD / "kernel"

MODULES = (
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "crc32c_generic",
    "ext4",
)
"""The drivers that QEMU's machine `virt` needs; Debian's kernel has them as modules."""

MASKED = ("getty.target", "apt-daily.timer", "apt-daily-upgrade.timer")
"""Nobody logs in, and the packages stay as they are."""

DISK_MIB = 768

_MODE = 0o644
_FOLDER, _FILE, _PROGRAM = 0o040755, 0o100644, 0o100755
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


class DeviceFile(NamedTuple):
    """A file of the device: its content and its permissions."""

    content: bytes
    mode: int = _MODE


@dataclass(frozen=True, slots=True)
class Image:
    """What an emulated machine boots."""

    kernel: Path
    ramdisk: Path
    disk: Path


def make_image(
    folder: Path, packages: Sequence[Path], files: Mapping[str, DeviceFile], enabled: Sequence[str]
) -> Image:
    """Install the Debian package `packages[0]`, add `files`, enable units, and write the image to `folder`.

    The other packages are left in the device's /root.
    """
    root = copy_root("machine", folder)
    for each in packages:
        shutil.copy(each, root / "root")
    in_root(root, "dpkg", "--install", f"/root/{packages[0].name}")
    (root / "qemu-arm-static").unlink()
    (root / "etc/machine-id").touch()  # otherwise systemd asks questions at the first boot
    for path, file in files.items():
        _write(root / path.lstrip("/"), file)
    for verb, units in {"enable": enabled, "mask": MASKED}.items():
        subprocess.run(["systemctl", f"--root={root}", "--quiet", verb, *units], check=True)
    ramdisk = folder / "ramdisk"
    ramdisk.write_bytes(_ramdisk(root / "usr/bin/busybox"))
    disk = folder / "disk.ext4"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(disk), f"{DISK_MIB}M"], check=True)
    shutil.rmtree(root)
    return Image(next((KERNEL / "boot").glob("vmlinuz-*")), ramdisk, disk)


def copy_root(kind: str, folder: Path) -> Path:
    """Return a copy in `folder` of the root directory that lab/tools/device-userland.sh makes."""
    subprocess.run([str(ROOT / "lab" / "tools" / "device-userland.sh"), kind], check=True)
    root = folder / "root"
    subprocess.run(["cp", "--archive", "--reflink=auto", str(BUILD / kind), str(root)], check=True)
    return root


def in_root(root: Path, *argv: str, status: int = 0) -> str:
    """Run a command in `root` as its root user, emulated; its output. It has to end with `status`."""
    command = [str(ROOT / "lab" / "tools" / "armhf-root.sh"), str(root), *argv]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == status, f"{argv}: status {done.returncode}: {done.stdout}"
    return done.stdout


def build_package(output: Path, version: str = VERSION) -> Path:
    """Build the Debian package of this checkout as `version`."""
    program = output.with_suffix(".pyz")
    build(program, "emulated")
    write_package(output, program.read_bytes(), version)
    return output


def _write(path: Path, file: DeviceFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(file.mode)
    path.write_bytes(file.content)
    path.chmod(file.mode)


def _ramdisk(busybox: Path) -> bytes:
    """An archive (cpio, format newc) of the drivers and a script that mounts the disk and starts systemd."""
    modules = _with_dependencies(KERNEL / "lib/modules")
    start = "\n".join(
        [
            "#!/busybox sh",
            "/busybox mount -t devtmpfs dev /dev",
            *(f"/busybox insmod /{each.name}" for each in modules),
            "/busybox mount -t ext4 /dev/vda /root",
            "/busybox mount --move /dev /root/dev",
            "exec /busybox switch_root /root /lib/systemd/systemd",
            "",
        ]
    )
    members = [
        ("dev", _FOLDER, b""),
        ("root", _FOLDER, b""),
        ("busybox", _PROGRAM, busybox.read_bytes()),
        ("init", _PROGRAM, start.encode()),
        *((each.name, _FILE, each.read_bytes()) for each in modules),
        ("TRAILER!!!", 0, b""),
    ]
    archive = bytearray()
    for number, (name, mode, content) in enumerate(members):
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        archive += b"070701" + b"".join(b"%08x" % each for each in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def _with_dependencies(folder: Path) -> list[Path]:
    """The files of MODULES, each behind those that it depends on."""
    known = {each.stem.replace("-", "_"): each for each in folder.rglob("*.ko")}
    ordered: list[Path] = []

    def add(name: str) -> None:
        file = known.get(name)
        if not file or file in ordered:  # what is no file is built into the kernel
            return
        found = _DEPENDS.search(file.read_bytes())
        for each in filter(None, found[1].decode().split(",") if found else []):
            add(each.replace("-", "_"))
        ordered.append(file)

    for name in MODULES:
        add(name)
    return ordered


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
