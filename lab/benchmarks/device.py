"""The Debian package on an emulated armv7l processor: `make device-image-check`, build/bench/device.json.

dpkg installs it in a clean Debian for armv7l (lab/tools/device-userland.sh). The forwarder runs there as its
user, with Debian's Python alone, between a real Mosquitto with our profile and a second one in the place of
IoT Core, over mutual TLS. Every event must arrive character for character as it was sent. Times are the
emulator's, many times slower than a device's processor; sizes and memory are the device's.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from contract.loader import load_contract
from eventplane.envelope import Envelope, write_event
from eventplane_client.mqtt import MqttTransport
from lab.benchmarks.results import Benchmark, Figure, none
from lab.mosquitto import start_mosquitto
from lab.process import Child, Supervisor
from lab.things import Authority
from lab.tools.debian_package import NAME
from lab.tools.device_image import OUTPUT, VERSION
from tests.device.image import copy_root, in_root
from tests.eventually import eventually
from tests.integration.edge.conftest import RULE, THING, RecordingCloud

PACKAGE = OUTPUT.with_name(f"{NAME}_{VERSION}_all.deb")
EVENTS = 1_000
SERVICE = "health-service"
SOURCE = "/check"
PATIENCE_S = 300.0
"""Limit of any one step, seconds: the emulator is slow, and the machine may be busy."""

_STAMPS = re.compile(r'^\{(?:"(?:deviceepoch|devicesequence|senderservice)":"[^"]*",)+')
"""What the forwarder adds to an event."""

_EMULATED = "wall clock under qemu-arm"

_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)")


def package(_: Namespace) -> list[Figure]:
    """Check, and measure."""
    if os.geteuid() != 0:
        sys.exit("device-image-check needs chroot: repeat it as root")
    with tempfile.TemporaryDirectory() as folder, Supervisor(Path(folder)) as supervisor:
        return _check(supervisor, Path(folder))


def _check(supervisor: Supervisor, folder: Path) -> list[Figure]:
    root = copy_root("userland", folder)
    shutil.copy(PACKAGE, root / "root/forwarder.deb")
    in_root(root, "dpkg", "--install", "/root/forwarder.deb")
    bare_mib = _bare_python(supervisor, root)
    cloud, port = _brokers(supervisor, folder, root)
    sent = {each.json for each in map(_event, range(EVENTS))}
    began = time.monotonic()
    program = f"/{(root / 'usr/bin' / NAME).resolve().relative_to(root)}"
    device = supervisor.start(
        "device", _emulated(root, program, "--settings", "/etc/eventplane/forwarder.toml")
    )
    # Mosquitto drops what is published before the forwarder's first subscription: resend often.
    with closing(MqttTransport(SERVICE, port=port, receipt_timeout_s=0.1)) as service:
        service.put(_event(EVENTS), PATIENCE_S)
    start_s = time.monotonic() - began
    with closing(MqttTransport(SERVICE, port=port, window=EVENTS)) as service:
        began = time.monotonic()
        for number in range(EVENTS):
            service.send(_event(number))
        service.flush(PATIENCE_S)
        stored_s = time.monotonic() - began
        _wait(device, lambda: cloud.has({str(number) for number in range(EVENTS + 1)}))
        forwarded_s = time.monotonic() - began
    own_mib = guest_rss_mib(device.pid or 0, "python3")
    received = {_as_sent(each) for each in cloud.events if each.source == SOURCE} - {_event(EVENTS).json}
    device.stop()
    cloud.close()
    return [
        Figure("artifact", (root / program[1:]).stat().st_size / 1024, "KiB"),
        Figure("Debian package", PACKAGE.stat().st_size / 1024, "KiB"),
        Figure("events as sent", len(sent & received), "events", EVENTS, required=True),
        none("events not as sent", len(received - sent), "events"),
        Figure("start to first receipt", start_s, "s", note=_EMULATED),
        Figure("events stored", EVENTS / stored_s, "events/s", note=f"receipts are back; {_EMULATED}"),
        Figure("events forwarded", EVENTS / forwarded_s, "events/s", note=f"in the cloud; {_EMULATED}"),
        Figure("resident memory", own_mib, "MiB", note="the armv7l process alone, libraries included"),
        Figure("resident memory, bare Python", bare_mib, "MiB", note="python3 -c, the same way"),
    ]


def _brokers(supervisor: Supervisor, folder: Path, root: Path) -> tuple[RecordingCloud, int]:
    """Start both brokers; write what the device needs to `root`. Return the cloud's and the home's port."""
    authority = Authority(folder / "certificates")
    cloud = RecordingCloud(supervisor, folder / "cloud", authority)
    port = start_mosquitto(supervisor, "home", folder / "home").port
    identity = authority.issue(THING)
    state, settings = root / "var/lib/eventplane", root / "etc/eventplane"
    state.mkdir(0o700)
    (state / "identity.pem").touch(0o600)
    (state / "identity.pem").write_bytes(identity.certificate.read_bytes() + identity.key.read_bytes())
    shutil.copy(authority.ca, settings / "ca.pem")
    (settings / "contract.json").write_bytes(load_contract().canonical)
    (settings / "forwarder.toml").write_text(
        f'thing = "{THING}"\ncontract = "contract.json"\nspool = "/var/lib/eventplane/spool.db"\n'
        f"[local]\nport = {port}\n"
        f'[cloud]\nhost = "127.0.0.1"\nport = {cloud.port}\nrule = "{RULE}"\nca = "ca.pem"\n'
        "longest_delay_ms = 250\n"
        'certificate = "/var/lib/eventplane/identity.pem"\nkey = "/var/lib/eventplane/identity.pem"\n'
    )
    # systemd does it on a device (StateDirectory=).
    in_root(root, "chown", "--recursive", "eventplane:eventplane", "/var/lib/eventplane")
    return cloud, port


def _bare_python(supervisor: Supervisor, root: Path) -> float:
    """Memory of a Python that has done nothing but create a file, MiB."""
    program = f"import time; open('/tmp/up', 'w').close(); time.sleep({PATIENCE_S})"
    child = supervisor.start("bare", _emulated(root, "-c", program), ready=(root / "tmp/up").exists)
    memory = guest_rss_mib(child.pid or 0, "python3")
    child.stop()
    return memory


def _emulated(root: Path, *arguments: str) -> list[str]:
    """Run Python as the forwarder's user in `root`; unshare and the shell become the emulator."""
    uid, gid = next(
        line.split(":")[2:4]
        for line in (root / "etc/passwd").read_text().splitlines()
        if line.startswith("eventplane:")
    )
    enter = (
        'mount --rbind /proc "$0/proc" && '
        f'exec chroot --userspec={uid}:{gid} "$0" /qemu-arm-static /usr/bin/python3 -I -S "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", enter, str(root), *arguments]


def _event(number: int) -> Envelope:
    return write_event(
        {
            "id": str(number),
            "source": SOURCE,
            "type": "org.eventplane.health.reading.v1",
            "time": "2026-01-01T00:00:00Z",
        },
        {"patient": f"Zoë {number % 7}", "kind": "heart_rate", "value": 60 + number / 10, "unit": "1/min"},
    )


def _as_sent(event: Envelope) -> str:
    return _STAMPS.sub("{", event.json)


def _wait(device: Child, condition: Callable[[], bool]) -> None:
    if not eventually(lambda: condition() or not device.running, PATIENCE_S) or not device.running:
        sys.exit(f"the forwarder ended, or a step took more than {PATIENCE_S:g} s:\n{device.log.read_text()}")


def guest_rss_mib(pid: int, program: str) -> float:
    """Resident memory of the emulated program alone, MiB: what a device would show, libraries included.

    A 32-bit program lives in one range of 4 GiB that qemu reserves for it, so everything between the gaps
    around the file `program` (a part of its path) is its own; the emulator and its translations are outside.
    """
    spans: list[tuple[bool, float]] = []
    end_before = None
    for start, end, name, kib in _mappings(pid):
        is_program, used = spans.pop() if spans and start == end_before else (False, 0.0)
        spans.append((is_program or program in name, used + kib))
        end_before = end
    return sum(used for is_program, used in spans if is_program) / 1024


def _mappings(pid: int) -> Iterator[tuple[int, int, str, int]]:
    """Start, end, file and resident KiB of each mapping, in order of addresses."""
    start, end, name = 0, 0, ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if found := _MAPPING.fullmatch(line):
            start, end, name = int(found[1], 16), int(found[2], 16), found[3]
        elif line.startswith("Rss:"):
            yield start, end, name, int(line.split()[1])


if __name__ == "__main__":
    sys.exit(Benchmark("device", {"package": package}, _EMULATED).main())
