"""The commands `discovery` and `announce`: find the broker by its profile, and announce it.

Each raises `DiscoveryError` for a profile, an interface or a library that it cannot use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from edge.errors import missing_table
from edge.settings import Settings
from edge.systemd import start_logging, stop_event
from eventplane_mqtt.endpoint import DiscoveryError, place
from eventplane_mqtt.profile import load_profile
from parts.discovery.announcement import AnnouncementUpdater, read_interface, services
from parts.discovery.broker import choose, evaluate

CHECK_EVERY_S = 10.0
"""Between two checks of profile and interfaces, seconds."""


def show_settings(settings: Settings) -> None:
    """Print where `settings` lead to, and what would be announced."""
    local = settings.local
    if local.profile is None:
        print(f"local.profile is not set: the broker is at {place(local.host, local.port)}")
        return
    names = settings.announcement.interfaces.split(",") if settings.announcement else ()
    show(local.profile, has_login=local.login is not None, names=names)


def show(profile: Path, *, has_login: bool = False, names: Iterable[str] = ()) -> None:
    """Print the listeners of `profile`, the one that is used, and what interfaces `names` would announce."""
    listeners = load_profile(profile)
    for listener, found in evaluate(listeners, has_login=has_login):
        print(f"{listener}: {found}")
    for name in names:
        try:
            announced = services(listeners, read_interface(name), str(profile))
            print(f"{name}: " + ", ".join(f"{each.kind} at port {each.port}" for each in announced))
        except DiscoveryError as error:
            print(f"{name}: nothing is announced: {error}")
    print(f"the broker is at {choose(listeners, has_login=has_login, name=str(profile))}")


def find(names: Sequence[str], seconds: float) -> int:
    """Print the brokers that are announced on the interfaces `names` within `seconds`; 1 if none is."""
    interfaces = [read_interface(each) for each in names]
    from parts.discovery import dns_sd  # it needs a package

    found = dns_sd.find(interfaces, seconds)
    for each in found:
        addresses = ", ".join(place(host, each.port) for host in each.hosts)
        secure = " with TLS" if each.with_tls else ""
        print(f"{each.name}: {addresses}{secure}, of thing {each.thing or 'unknown'}")
    if not found:
        print(f"no broker is announced on {', '.join(names)}", file=sys.stderr)
    return 0 if found else 1


def announce(settings: Settings) -> None:
    """Announce the broker until SIGTERM or SIGINT. Raises `DeviceSettingsError` without `[announcement]`."""
    if settings.announcement is None or settings.local.profile is None:
        raise missing_table("announcement")
    from parts.discovery import dns_sd  # it needs a package

    start_logging(settings.log_level, dict(os.environ))
    stopped = stop_event()

    names = settings.announcement.interfaces.split(",")
    on_interface = partial(dns_sd.announce, settings.thing)
    updater = AnnouncementUpdater(settings.local.profile, names, read_interface, on_interface)
    try:
        while not stopped.is_set():
            updater.update()
            stopped.wait(CHECK_EVERY_S)
    finally:
        updater.close()
