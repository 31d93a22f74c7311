"""One emulated device for all tests of this folder; a broker on this machine plays AWS IoT."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from contract.loader import load_contract
from lab.process import Supervisor
from lab.things import Authority
from tests.device.image import AGENT_FILES, HOST, DeviceFile, EmulatedDevice, build_package, make_image
from tests.integration.edge.conftest import RULE, THING, RecordingCloud
from tests.integration.edge.provisioning_service import CREATE, REGISTER, TEMPLATE, FakeAws

NEXT_VERSION = "999.0"
IDENTITY = "/var/lib/eventplane/identity.pem"
SHORT_WAITS = "/etc/systemd/system/eventplane-forwarder.service.d/short-waits.conf"
_SHORT_WAITS = DeviceFile(b"[Service]\nWatchdogSec=20\nRestartSec=1\n")
"""Instead of the unit's own minute, which tests/unit/packaging checks, and five seconds."""
UNITS = (
    "eventplane-provisioning.timer",
    "systemd-networkd.service",
    "systemd-networkd-wait-online.service",
    "check-agent.service",
)


class Plane(NamedTuple):
    """A device that was switched on for the first time, and the cloud that it finds."""

    device: EmulatedDevice
    cloud: RecordingCloud
    aws: FakeAws


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A device that has nothing but the fleet's claim when it starts."""
    require_root_folders()
    require(
        {
            "qemu-system-arm is not installed (make setup installs it)": shutil.which("qemu-system-arm"),
            "mke2fs is not installed (package e2fsprogs)": shutil.which("mke2fs"),
        }
    )
    folder = tmp_path_factory.mktemp("device")
    packages = [build_package(folder / "forwarder.deb"), build_package(folder / "next.deb", NEXT_VERSION)]
    authority = Authority(folder / "certificates", ("127.0.0.1", HOST))
    with Supervisor(folder / "run") as supervisor:
        cloud = RecordingCloud(supervisor, folder / "cloud", authority)
        with FakeAws(cloud, authority) as aws:
            for topic in (CREATE, REGISTER):
                aws.subscribe(topic)
            files = {**AGENT_FILES, **_settings(authority, cloud.port), SHORT_WAITS: _SHORT_WAITS}
            image = make_image(folder, packages, files, UNITS)
            device = EmulatedDevice(supervisor, folder, image)
            yield Plane(device, cloud, aws)
            device.cut_power()
            cloud.close()


def require_root_folders() -> None:
    """Require root and emulation for lab/tools/armhf-root.sh, which enters another root folder."""
    root = os.geteuid() == 0
    emulated = Path("/proc/sys/fs/binfmt_misc/qemu-arm").exists()
    namespace = emulated or subprocess.run(["unshare", "--user", "true"], check=False).returncode == 0
    require(
        {
            "only root can make and enter another root folder": root,
            "a chroot or a container forbids user namespaces": namespace,
        }
    )


def require(problems: Mapping[str, object]) -> None:
    """Skip where the machine lacks something, a key of `problems`; in continuous integration fail."""
    missing = [problem for problem, found in problems.items() if not found]
    if missing:
        report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        report("no emulated device: " + "; ".join(missing))


def _settings(authority: Authority, port: int) -> Mapping[str, DeviceFile]:
    """What a product puts into /etc/eventplane."""
    claim = authority.issue("claim")
    settings = (
        f'thing = "{THING}"\ncontract = "contract.json"\nspool = "/var/lib/eventplane/spool.db"\n'
        f'[cloud]\nhost = "{HOST}"\nport = {port}\nrule = "{RULE}"\nca = "ca.pem"\n'
        f'certificate = "{IDENTITY}"\nkey = "{IDENTITY}"\nreconnect_max_s = 5.0\nlongest_delay_ms = 250\n'
        f'[provisioning]\ntemplate = "{TEMPLATE}"\nclaim_certificate = "claim.crt"\nclaim_key = "claim.key"\n'
    )
    content = {
        "forwarder.toml": DeviceFile(settings.encode()),
        "contract.json": DeviceFile(load_contract().canonical),
        "ca.pem": _copy(authority.ca),
        "claim.crt": _copy(claim.certificate),
        "claim.key": _copy(claim.key, 0o600),
    }
    return {f"/etc/eventplane/{name}": file for name, file in content.items()}


def _copy(file: Path, mode: int = 0o644) -> DeviceFile:
    return DeviceFile(file.read_bytes(), mode)
