"""The disk and the initial ramdisk of an emulated device, made from build/device/machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tools.device_image import PACKAGING, build

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

DISK_MIB = 512

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


def make_image(machine: Path, folder: Path, files: Mapping[str, DeviceFile], enabled: Sequence[str]) -> Image:
    """Install the forwarder as the Yocto recipe does, add `files`, enable units; write the image to `folder`.

    `machine` is the root directory that tools/device-userland.sh makes; it does not change.
    """
    root = folder / "root"
    subprocess.run(["cp", "--archive", str(machine), str(root)], check=True)
    kernel = next((root / "boot").glob("vmlinuz-*")).rename(folder / "vmlinuz")
    ramdisk = folder / "ramdisk"
    ramdisk.write_bytes(_ramdisk(root))
    for removed in ("boot", "usr/lib/modules", "etc/init.d"):
        shutil.rmtree(root / removed)
    _install(root)
    for path, file in files.items():
        _write(root / path.lstrip("/"), file)
    subprocess.run(["systemctl", f"--root={root}", "--quiet", "enable", *enabled], check=True)
    subprocess.run(["systemctl", f"--root={root}", "--quiet", "mask", "getty.target"], check=True)
    disk = folder / "disk.ext4"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(disk), f"{DISK_MIB}M"], check=True)
    shutil.rmtree(root)
    return Image(kernel, ramdisk, disk)


def _install(root: Path) -> None:
    """What Debian's installation scripts and the recipe do."""
    for name in ("passwd", "group"):
        shutil.copy(root / "usr/share/base-passwd" / f"{name}.master", root / "etc" / name)
    (root / "etc/machine-id").touch()  # otherwise systemd asks questions at the first boot
    build(root / "usr/lib/eventplane/eventplane-forwarder.pyz", "emulated")
    for unit in PACKAGING.glob("eventplane-*"):
        shutil.copy(unit, root / "usr/lib/systemd/system")
    shutil.copy(PACKAGING / "eventplane.sysusers", root / "usr/lib/sysusers.d/eventplane.conf")
    shutil.copy(PACKAGING / "mosquitto.conf", root / "etc/mosquitto/mosquitto.conf")
    _write(root / "usr/lib/sysusers.d/mosquitto.conf", DeviceFile(b"u mosquitto - - /var/lib/mosquitto\n"))
    _write(root / "usr/lib/tmpfiles.d/mosquitto.conf", DeviceFile(b"d /var/lib/mosquitto 0700 mosquitto\n"))


def _write(path: Path, file: DeviceFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(file.mode)
    path.write_bytes(file.content)
    path.chmod(file.mode)


def _ramdisk(root: Path) -> bytes:
    """An archive (cpio, format newc) of the drivers and a script that mounts the disk and starts systemd."""
    modules = _with_dependencies(root / "usr/lib/modules")
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
        ("busybox", _PROGRAM, (root / "usr/bin/busybox").read_bytes()),
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
