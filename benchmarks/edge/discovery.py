"""Measures what it costs to find the broker by its profile, and to announce it."""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.edge.events import event
from benchmarks.edge.parts import Publisher, SinkProcess, Site, start_forwarder
from benchmarks.edge.processes import rss_mib
from benchmarks.edge.runs import SIZE
from benchmarks.results import Figure
from tests.eventually import eventually
from tests.integration.edge.networks import can_make_networks, join, make_device

REPEATS = 3


def memory(site: Site) -> list[Figure]:
    """Measure the idle forwarder without and with a profile, and the program that announces."""
    without = [_idle_mib(site, f"settings-{number}", by_profile=False) for number in range(REPEATS)]
    following = [_idle_mib(site, f"profile-{number}", by_profile=True) for number in range(REPEATS)]
    return [
        Figure("rss_by_settings", median(without), "MiB", higher_is_better=False, note="local.host and port"),
        Figure("rss_by_profile", median(following), "MiB", higher_is_better=False, note="local.profile"),
        *_announcement(site),
    ]


def _announcement(site: Site) -> list[Figure]:
    """Measure nothing where the machine does not allow network namespaces."""
    if not can_make_networks():
        return []
    note = "a process of its own, off by default; in the development environment"
    return [Figure("rss_announcement", _announcement_mib(site), "MiB", higher_is_better=False, note=note)]


def _idle_mib(site: Site, name: str, *, by_profile: bool) -> float:
    with SinkProcess(site, 2) as sink:
        contender = start_forwarder(site, name, by_profile=by_profile)
        with Publisher(contender.port) as publisher:
            publisher.send(event(0, SIZE))
            publisher.send(event(1, SIZE))
        sink.report()
        resting = rss_mib(contender.pid)
    contender.child.stop()
    return resting


def _announcement_mib(site: Site) -> float:
    device = make_device(site.supervisor, "device")
    join(
        device,
        "home0",
        "10.77.0.1/24",
        make_device(site.supervisor, "second", device),
        "home0",
        "10.77.0.2/24",
    )
    profile, settings = site.directory / "announced.conf", site.directory / "announced.toml"
    profile.write_text("listener 1883\n")
    settings.write_text(
        'thing = "home-1"\ncontract = "c"\nspool = "s"\n[cloud]\nhost = "127.0.0.1"\n'
        'rule = "r"\ntls = false\n'
        f'[local]\nprofile = "{profile}"\n[announcement]\ninterfaces = "home0"\n'
    )
    command = [sys.executable, "-m", "edge", "announce", "--settings", str(settings)]
    child = site.supervisor.start("announcement", device.argv(*command))
    if not eventually(lambda: "announced _mqtt._tcp" in child.log.read_text(), 60):
        sys.exit(f"nothing was announced:\n{child.log.read_text()}")
    resident = rss_mib(child.pid or 0)
    child.stop()
    return resident
