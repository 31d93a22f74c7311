"""The commands `discovery` and `announce`: where the broker is by its profile, and who announces one.

Each returns the exit status. It raises `DiscoveryError` for a profile, an interface or a library that it
cannot use.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge.discovery.announcement import services
from edge.discovery.announcing import Announcing
from edge.discovery.choice import Candidate, choose, judge
from edge.discovery.errors import DiscoveryError, LibraryMissingError
from edge.discovery.interfaces import Interface, read_interface
from edge.discovery.profile_files import load_profile
from edge.errors import SettingProblem, SettingsError
from edge.journal import start_logging
from edge.mqtt.endpoint import place
from edge.settings import Settings

LOOK_EVERY_S = 10.0
"""Between two looks at profile and interfaces, seconds."""


def show_settings(settings: Settings) -> int:
    """Print where `settings` lead to, and what would be announced."""
    local = settings.local
    if local.profile is None:
        print(f"local.profile is not set: the broker is at {place(local.host, local.port)}")
        return os.EX_OK
    names = settings.announcement.names if settings.announcement else ()
    return show(local.profile, has_login=local.login is not None, names=names)


def show(profile: Path, *, has_login: bool = False, names: Iterable[str] = ()) -> int:
    """Print the listeners of `profile`, the one that is used, and what interfaces `names` would announce."""
    listeners = load_profile(profile)
    for each in judge(listeners, has_login=has_login):
        print(f"{each.listener}: {each.address if isinstance(each, Candidate) else each.reason}")
    for name in names:
        try:
            told = services(listeners, read_interface(name), str(profile))
            print(f"{name}: " + ", ".join(f"{each.kind} at port {each.port}" for each in told))
        except DiscoveryError as error:
            print(f"{name}: nothing is announced: {error}")
    print(f"the broker is at {choose(listeners, has_login=has_login, name=str(profile))}")
    return os.EX_OK


def find(names: Sequence[str], seconds: float) -> int:
    """Print the brokers that are announced on the interfaces `names` within `seconds`; 1 if none is."""
    interfaces = [read_interface(each) for each in names]
    try:
        from edge.discovery import dns_sd
    except ImportError as error:
        raise LibraryMissingError from error
    found = dns_sd.find(interfaces, seconds)
    for each in found:
        addresses = ", ".join(place(host, each.port) for host in each.hosts)
        secure = " with TLS" if each.with_tls else ""
        print(f"{each.name}: {addresses}{secure}, of thing {each.thing or 'unknown'}")
    if not found:
        print(f"no broker is announced on {', '.join(names)}", file=sys.stderr)
    return 0 if found else 1


def announce(settings: Settings) -> int:
    """Announce the broker until SIGTERM or SIGINT. Raises `SettingsError` without an `[announcement]`."""
    if settings.announcement is None or settings.local.profile is None:
        problem = SettingProblem("announcement", "the table is missing", "add it, see docs/device.md")
        raise SettingsError([problem])
    try:
        from edge.discovery.dns_sd import Announcer
    except ImportError as error:
        raise LibraryMissingError from error
    start_logging(settings.log_level, dict(os.environ))
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def speak(interface: Interface) -> Announcer:
        return Announcer(interface, settings.thing)

    announcing = Announcing(settings.local.profile, settings.announcement.names, read_interface, speak)
    try:
        while not stopped.is_set():
            announcing.look()
            stopped.wait(LOOK_EVERY_S)
    finally:
        announcing.close()
    return os.EX_OK
