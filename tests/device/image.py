"""The disk and the initial ramdisk of an emulated device, made from what is in build/device."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab.tools.debian_package import write_package
from lab.tools.device_image import ROOT, VERSION, build

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
