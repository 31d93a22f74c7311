"""`python -m edge.discovery`: show, announce and find the home's broker.

Exit status: 0 found, or `announce` was stopped by SIGTERM or SIGINT; 1 nothing found; 2 wrong command line;
78 wrong settings, no usable profile, or a missing library (EX_CONFIG).
"""

from __future__ import annotations

import getopt
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from edge.command_line import EX_WRONG_COMMAND_LINE, end
from edge.discovery import DiscoveryError
from edge.discovery.announcement import AnnouncementUpdater, Interface, read_interface, services
from edge.discovery.broker import Candidate, choose, evaluate
from edge.discovery.profile import load_profile
from edge.errors import SettingsError
from edge.mqtt.endpoint import place
from edge.settings import Settings, load_settings
from edge.systemd import start_logging

USAGE = """usage: python -m edge.discovery [show] (--settings FILE | --profile FILE)
       python -m edge.discovery announce --settings FILE
       python -m edge.discovery find --interfaces NAME[,NAME] [--seconds N]

  show             print the listeners of Mosquitto's profile, and which one the forwarder uses
  announce         announce the broker in the home's network, by DNS-SD, until stopped
  find             print the brokers that are announced in the home
  --settings FILE  the forwarder's, see docs/device.md
  --profile FILE   mosquitto.conf
"""

CHECK_EVERY_S = 10.0
"""Between two checks of profile and interfaces, seconds."""

_FIND_S = 3.0
_OPTIONS = {
    "show": ({"--settings"}, {"--profile"}),
    "announce": ({"--settings"},),
    "find": ({"--interfaces"},),
}
"""The options that each command requires."""


def main() -> int:
    """Run the command and return the exit status."""
    request = _read_command_line()
    if isinstance(request, int):
        return request
    command, options = request
    try:
        if command == "find":
            return _find(options["--interfaces"].split(","), float(options.get("--seconds", _FIND_S)))
        if "--profile" in options:
            return _show(Path(options["--profile"]), has_login=False)
        settings = load_settings(Path(options["--settings"]), dict(os.environ))
        return _announce(settings) if command == "announce" else _show_settings(settings)
    except (SettingsError, DiscoveryError) as error:
        print(error, file=sys.stderr)
        return os.EX_CONFIG


def _read_command_line() -> tuple[str, dict[str, str]] | int:
    """Return the command and its options, or the exit status if there is nothing to run."""
    problem = "the command or its options are wrong"
    try:
        given, words = getopt.gnu_getopt(
            sys.argv[1:], "h", ["settings=", "profile=", "interfaces=", "seconds=", "help"]
        )
    except getopt.GetoptError as error:
        given, words, problem = [], ["?"], str(error)
    options, command = dict(given), " ".join(words) or "show"
    if options.keys() & {"--help", "-h"}:
        sys.stdout.write(USAGE)
        return os.EX_OK
    if options.keys() - {"--seconds"} in _OPTIONS.get(command, ()) and _is_number(options):
        return command, options
    sys.stderr.write(f"{problem}\n\n{USAGE}")
    return EX_WRONG_COMMAND_LINE


def _is_number(options: dict[str, str]) -> bool:
    return re.fullmatch(r"\d{1,4}(\.\d+)?", options.get("--seconds", "0")) is not None


def _show_settings(settings: Settings) -> int:
    local = settings.local
    if local.profile is None:
        print(f"local.profile is not set: the broker is at {place(local.host, local.port)}")
        return os.EX_OK
    names = settings.announcement.names if settings.announcement else ()
    return _show(local.profile, has_login=local.login is not None, names=names)


def _show(profile: Path, *, has_login: bool, names: Iterable[str] = ()) -> int:
    listeners = load_profile(profile)
    for each in evaluate(listeners, has_login=has_login):
        print(f"{each.listener}: {each.address if isinstance(each, Candidate) else each.reason}")
    for name in names:
        try:
            found = services(listeners, read_interface(name), str(profile))
            print(f"{name}: " + ", ".join(f"{each.kind} at port {each.port}" for each in found))
        except DiscoveryError as error:
            print(f"{name}: nothing is announced: {error}")
    print(f"the broker is at {choose(listeners, has_login=has_login, name=str(profile))}")
    return os.EX_OK


def _find(names: Sequence[str], seconds: float) -> int:
    interfaces = [read_interface(each) for each in names]
    from edge.discovery.dns_sd import find  # it needs a package

    found = find(interfaces, seconds)
    for each in found:
        addresses = ", ".join(place(host, each.port) for host in each.hosts)
        secure = " with TLS" if each.with_tls else ""
        print(f"{each.name}: {addresses}{secure}, of thing {each.thing or 'unknown'}")
    if not found:
        print(f"no broker is announced on {', '.join(names)}", file=sys.stderr)
    return 0 if found else 1


def _announce(settings: Settings) -> int:
    if settings.announcement is None or settings.local.profile is None:
        print("the settings have no [announcement]: nothing is announced; add the table", file=sys.stderr)
        return os.EX_CONFIG
    from edge.discovery.dns_sd import DnsSdAnnouncer  # it needs a package

    start_logging(settings.log_level, dict(os.environ))
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def open_announcer(interface: Interface) -> DnsSdAnnouncer:
        return DnsSdAnnouncer(interface, settings.thing)

    updater = AnnouncementUpdater(
        settings.local.profile, settings.announcement.names, read_interface, open_announcer
    )
    try:
        while not stopped.is_set():
            updater.update()
            stopped.wait(CHECK_EVERY_S)
    finally:
        updater.close()
        logging.shutdown()
    return os.EX_OK


if __name__ == "__main__":
    end(main())
