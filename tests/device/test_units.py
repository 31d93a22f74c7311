"""The Debian package and its units under a real systemd, on an emulated processor of the device's kind.

Kernel, systemd, Python, OpenSSL and Mosquitto are Debian 12's for armv7l. The tests share one device and
leave it as they found it, up to those at the end, which remove the package.
"""

import re
from itertools import count

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.topics import local_topic
from lab.tools.device_image import ROOT
from tests.device.conftest import IDENTITY, NEXT_VERSION, Plane
from tests.device.image import PATIENCE_S, EmulatedDevice
from tests.eventually import eventually
from tests.integration.edge.conftest import THING

pytestmark = pytest.mark.source("P7")

FORWARDER = "eventplane-forwarder.service"
PROVISIONING = "eventplane-provisioning.service"
PACKAGE = "eventplane-forwarder"
SERVICE = "health-service"
STORED = "eventplane_stored_total"
MEMORY_HIGH = 64 * 1024**2
"""What the forwarder's unit allows before the kernel slows it down, bytes."""

_numbers = count()


def reading() -> Envelope:
    return write_event(
        {"id": f"r{next(_numbers)}", "source": "/check", "type": "org.eventplane.health.reading.v1"},
        {"patient": "1", "kind": "heart_rate", "value": 60, "unit": "1/min"},
    )


def publish(device: EmulatedDevice, event: Envelope) -> None:
    """As a service on the device does."""
    topic = local_topic(SERVICE, "outbox")
    device.run("mosquitto_pub", "-h", "127.0.0.1", "-q", "1", "-t", topic, "-m", event.json)


def arrives(plane: Plane) -> bool:
    """Whether an event that a service publishes now comes to the cloud."""
    event = reading()
    publish(plane.device, event)
    return eventually(lambda: plane.cloud.has({event.id}), PATIENCE_S)


def metric(device: EmulatedDevice, name: str) -> float:
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
    lines = device.run("python3", "-c", script).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0] == name)


def restarts(device: EmulatedDevice) -> int:
    return int(device.show(FORWARDER, "NRestarts")["NRestarts"])


def wait_for_restart(device: EmulatedDevice, before: int) -> None:
    """Wait until systemd has started the forwarder again by itself, and it is ready."""
    assert eventually(lambda: restarts(device) > before, PATIENCE_S, every_s=0.5), device.journal(FORWARDER)
    device.wait(FORWARDER, ActiveState="active", SubState="running")


def process_of(device: EmulatedDevice) -> str:
    return device.show(FORWARDER, "MainPID")["MainPID"]


def status_of(device: EmulatedDevice, process: str) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = device.run("cat", f"/proc/{process}/status").splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


def test_the_device_boots_with_every_unit_running(plane: Plane) -> None:
    device = plane.device
    assert device.run("uname", "-m") == "armv7l"
    assert device.try_run("systemctl", "is-system-running", "--wait").output.strip() == "running", device.run(
        "systemctl", "--failed"
    )
    device.wait(FORWARDER, ActiveState="active", SubState="running", Type="notify")
    device.wait("eventplane-provisioning.timer", ActiveState="active")
    device.wait("mosquitto.service", ActiveState="active")


def test_the_claim_is_handed_over_as_a_credential_and_buys_a_certificate(plane: Plane) -> None:
    device = plane.device
    # Before its first start, at a random moment, the unit has the same state as after a success.
    done = "a new certificate is in use"
    assert eventually(lambda: done in device.journal(PROVISIONING), PATIENCE_S, every_s=0.5)
    device.wait(PROVISIONING, ActiveState="inactive", Result="success", ExecMainStatus="0")
    assert [each["parameters"] for each in plane.aws.registered] == [{"SerialNumber": THING}]
    assert device.run("stat", "--format=%U %a", "/etc/eventplane/claim.key") == "root 600"
    assert device.run("stat", "--format=%U %a", IDENTITY) == "eventplane 600"


def test_an_event_of_a_service_comes_to_the_cloud(plane: Plane) -> None:
    assert eventually(lambda: "cloud broker connected" in plane.device.journal(FORWARDER), 120, every_s=1)
    assert arrives(plane)


def test_the_forwarder_is_shut_in(plane: Plane) -> None:
    device = plane.device
    process = process_of(device)
    status = status_of(device, process)
    user = device.run("id", "--user", "eventplane")
    assert set(status["Uid"].split()) == {user} != {"0"}
    assert (status["CapEff"], status["CapBnd"]) == ("0" * 16, "0" * 16)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    mounts = [line.split() for line in device.run("cat", f"/proc/{process}/mountinfo").splitlines()]
    options = {each[4]: each[5].split(",")[0] for each in mounts}
    assert options["/"] == "ro"
    assert [
        path for path in ("/var/lib/eventplane", "/var/lib/private/eventplane") if options.get(path) == "rw"
    ]


def test_systemd_finds_little_that_the_running_services_could_do(plane: Plane) -> None:
    for unit in (FORWARDER, PROVISIONING):
        verdict = plane.device.try_run("systemd-analyze", "--no-pager", "security", "--threshold=15", unit)
        assert verdict.status == 0, verdict.output[-300:]


def test_a_killed_forwarder_is_started_again_and_goes_on(plane: Plane) -> None:
    device = plane.device
    before, process = restarts(device), process_of(device)
    device.run("systemctl", "kill", "--signal=SIGKILL", FORWARDER)
    wait_for_restart(device, before)
    assert process_of(device) != process
    assert arrives(plane)


def test_a_forwarder_that_hangs_is_killed_by_the_watchdog_and_started_again(plane: Plane) -> None:
    device = plane.device
    before = restarts(device)
    device.run("kill", "-STOP", process_of(device))
    wait_for_restart(device, before)
    assert "Watchdog timeout" in device.journal(FORWARDER)
    assert arrives(plane)


def test_a_reload_keeps_the_process_and_its_connection(plane: Plane) -> None:
    device = plane.device
    process, reloads = process_of(device), metric(device, "eventplane_reloads_total")
    device.run("systemctl", "reload", FORWARDER)
    assert eventually(
        lambda: metric(device, "eventplane_reloads_total") == reloads + 1, PATIENCE_S, every_s=0.5
    )
    assert process_of(device) == process


def test_settings_that_are_wrong_end_the_restarts_until_somebody_repairs_them(plane: Plane) -> None:
    device = plane.device
    device.run("systemctl", "set-environment", "EVENTPLANE_THING=home/1")
    device.try_run("systemctl", "restart", FORWARDER)
    device.wait(FORWARDER, ActiveState="failed", ExecMainStatus="78", NRestarts="0")
    assert "'home/1' does not fit" in device.journal(FORWARDER)
    device.run("systemctl", "unset-environment", "EVENTPLANE_THING")
    device.run("systemctl", "restart", FORWARDER)
    assert arrives(plane)


def test_it_stays_within_the_memory_of_its_unit(plane: Plane) -> None:
    peak = int(plane.device.run("cat", f"/sys/fs/cgroup/system.slice/{FORWARDER}/memory.peak"))
    assert 0 < peak < MEMORY_HIGH


@pytest.mark.source("P8")
def test_what_was_stored_offline_survives_a_power_cut_and_is_sent_after_it(plane: Plane) -> None:
    device, cloud = plane.device, plane.cloud
    cloud.stop()
    stored = metric(device, "eventplane_stored_total")
    events = [reading() for _ in range(20)]
    for event in events:
        publish(device, event)
    assert eventually(lambda: metric(device, "eventplane_stored_total") >= stored + len(events), PATIENCE_S)
    device.cut_power()
    cloud.start()
    device.boot()
    assert eventually(lambda: cloud.has({each.id for each in events}), PATIENCE_S)
    assert device.show(FORWARDER, "ActiveState") == {"ActiveState": "active"}


def test_an_upgrade_of_the_package_goes_on_with_what_was_stored(plane: Plane) -> None:
    device, cloud = plane.device, plane.cloud
    process = process_of(device)
    cloud.stop()
    stored, event = metric(device, STORED), reading()
    publish(device, event)
    assert eventually(lambda: metric(device, STORED) > stored, PATIENCE_S)
    device.run("dpkg", "--force-confold", "--install", "/root/next.deb")
    device.wait(FORWARDER, ActiveState="active", SubState="running")
    assert process_of(device) != process
    assert device.run("dpkg-query", "--show", "--showformat=${Version}", PACKAGE) == NEXT_VERSION
    cloud.start()
    assert eventually(lambda: cloud.has({event.id}), PATIENCE_S)
    device.wait("mosquitto.service", ActiveState="active")


def test_the_commands_of_the_tutorial_run_as_printed(plane: Plane) -> None:
    page = (ROOT / "docs" / "tutorials" / "raspberry-pi.md").read_text()
    lines = re.findall(r"^pi\$ (?!sudo apt)(.*)$", page, re.MULTILINE)  # apt needs a network
    put = "cd /root; cp /etc/eventplane/contract.json /etc/eventplane/claim.* ."
    plane.device.run("sh", "-euc", "\n".join(['sudo() { "$@"; }', put, *lines]))
    plane.device.wait(FORWARDER, ActiveState="active", SubState="running")
    assert eventually(lambda: plane.cloud.has({"first-1"}), PATIENCE_S)


def test_a_mosquitto_that_does_not_start_again_fails_the_upgrade_with_the_remedy(plane: Plane) -> None:
    device, broken = plane.device, "/etc/mosquitto/conf.d/broken.conf"
    device.run("sh", "-euc", f"echo password_file /absent >{broken}; touch /etc/mosquitto/eventplane.conf")
    upgrade = device.try_run("dpkg", "--install", "/root/next.deb")
    assert upgrade.status != 0
    remedy = re.search(
        r"then: (systemctl restart mosquitto && dpkg --configure --pending)$", upgrade.errors, re.MULTILINE
    )
    assert remedy is not None, upgrade.errors
    device.run("rm", broken)
    device.run("sh", "-euc", remedy[1])
    device.wait("mosquitto.service", ActiveState="active")
    assert arrives(plane)


def test_removing_the_package_stops_it_and_keeps_what_was_stored(plane: Plane) -> None:
    device = plane.device
    device.run("dpkg", "--remove", PACKAGE)
    device.wait(FORWARDER, ActiveState="inactive", LoadState="masked")
    assert device.run("ls", "/var/lib/eventplane/spool.db", "/etc/eventplane/forwarder.toml")
    device.run("dpkg", "--install", "/root/forwarder.deb")
    device.wait(FORWARDER, ActiveState="active", SubState="running")
    assert arrives(plane)


def test_purging_the_package_leaves_nothing_of_it(plane: Plane) -> None:
    device = plane.device
    device.run("dpkg", "--purge", PACKAGE)
    assert device.show(FORWARDER, "LoadState") == {"LoadState": "not-found"}
    assert device.try_run("ls", "/var/lib/eventplane").status != 0
    assert device.try_run("ls", "/etc/eventplane/forwarder.toml").status != 0
    device.wait("mosquitto.service", ActiveState="active")


def test_a_first_installation_waits(plane: Plane) -> None:
    device = plane.device
    before = device.show("mosquitto.service", "MainPID")
    installed = device.try_run("dpkg", "--install", "/root/forwarder.deb")
    assert installed.status == 0, installed.errors
    assert "setting 'thing': it is missing" in installed.errors
    assert "Complete /etc/eventplane/forwarder.toml" in installed.errors
    device.wait(FORWARDER, ActiveState="inactive", UnitFileState="enabled")
    device.wait("mosquitto.service", ActiveState="active")
    assert device.show("mosquitto.service", "MainPID") != before
