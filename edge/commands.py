"""The commands that run once and end. Each imports what it needs itself."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from getopt import GetoptError
from pathlib import Path

from edge.errors import DeviceSettingsError, SettingProblem
from edge.parts import PROGRAM, build_version, manifest, require_part
from edge.settings import Settings, load_settings

USAGE = f"""usage: {PROGRAM} [run] --settings FILE
       {PROGRAM} check --settings FILE
       {PROGRAM} provision --settings FILE
       {PROGRAM} discovery (--settings FILE | --profile FILE)
       {PROGRAM} discovery find --interfaces NAME[,NAME] [--seconds N]
       {PROGRAM} announce --settings FILE
       {PROGRAM} telemetry --settings FILE
       {PROGRAM} broker-database --database FILE
       {PROGRAM} broker-profile --profile FILE [--added FILE]
       {PROGRAM} manifest

Store the events of this device's services, and deliver them on the device and to the cloud.

commands:
  run               forward events until SIGTERM; SIGHUP reloads the contract (the default)
  check             report all that is wrong with settings, contract, password and certificate files
  provision         get a certificate for this device or renew it, and end
  discovery         list the listeners of Mosquitto's profile, and show which one is used
  discovery find    list the brokers that are announced in the home
  announce          announce the broker in the home by DNS-SD until SIGTERM
  telemetry         send the forwarder's metrics to an OpenTelemetry collector until SIGTERM
  broker-database   set Mosquitto's database aside if it is torn; the broker must not run
  broker-profile    report what Mosquitto refuses, and what an included file overrides in the other ones
  manifest          print version, revision, contract format and Python of this build as JSON

options:
  --settings FILE   the settings, TOML; docs/reference/settings.md lists them
  --profile FILE    Mosquitto's profile, mosquitto.conf
  --added FILE      a file that the profile includes
  --database FILE   Mosquitto's database, mosquitto.db
  --interfaces ...  names of network interfaces
  --seconds N       how long to listen for announcements (3)
  --version         print the version
  -h, --help        print this text
"""

Options = dict[str, str]
"""Name without dashes -> value."""


def run_command(command: str, options: Options) -> int:
    """Run `command` and return the exit status. Raises `GetoptError`."""
    if options.keys() & {"h", "help"}:
        sys.stdout.write(USAGE)
        return os.EX_OK
    if "version" in options:
        print(f"{PROGRAM} {build_version()}")
        return os.EX_OK
    if command not in _COMMANDS:
        raise GetoptError(f"there is no command '{command}'")
    run, *forms = _COMMANDS[command]
    accepted = [form.split() for form in forms]
    if run is None or sorted(options) not in accepted:
        needed = " or ".join(" ".join(f"--{name}" for name in form) for form in accepted)
        raise GetoptError(f"'{command}' needs {needed or 'no option'}")
    return run(options) or os.EX_OK


def _load(options: Options) -> Settings:
    return load_settings(Path(options["settings"]), dict(os.environ))


def _check(options: Options) -> None:
    from edge import check
    from edge.contract_updates import read_contract
    from edge.system import SYSTEM

    settings, now = _load(options), SYSTEM.now()
    contract = read_contract(settings.contract, is_new=True)
    problems = check.file_problems(settings, now)
    if isinstance(contract, SettingProblem):
        raise DeviceSettingsError([contract, *problems])
    if problems:
        raise DeviceSettingsError(problems)
    print(f"thing {settings.thing}, contract {contract.version}: the forwarder can start")
    if check.awaits_provisioning(settings):
        print("warning: there is no certificate yet; provisioning has to bring it")
    elif warning := check.expires_soon(settings.cloud, now):
        print(f"warning: {warning}")
    reached = check.version_warning(settings.local), check.proxy_warning(settings.cloud)
    for each in filter(None, (*check.broker_warnings(settings.local), *reached)):
        print(f"warning: {each}")


def _provision(options: Options) -> None:
    require_part("provisioning").provision(_load(options))


def _discovery(options: Options) -> None:
    discovery = require_part("discovery")
    if "profile" in options:
        discovery.show(Path(options["profile"]))
    else:
        discovery.show_settings(_load(options))


def _find(options: Options) -> int:
    discovery = require_part("discovery")
    seconds = options.get("seconds", "3")
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", seconds):
        raise GetoptError(f"--seconds {seconds}: it is not a number of seconds")
    return int(discovery.find(options["interfaces"].split(","), float(seconds)))


def _announce(options: Options) -> None:
    require_part("discovery").announce(_load(options))


def _telemetry(options: Options) -> None:
    require_part("telemetry").export(_load(options))


def _broker_database(options: Options) -> int:
    from edge.broker_database import set_aside_if_torn

    try:
        if said := set_aside_if_torn(Path(options["database"])):
            print(said, file=sys.stderr)
    except OSError as error:
        print(f"{error}; run this as root, and see that its disk works", file=sys.stderr)
        return os.EX_IOERR
    return os.EX_OK


def _broker_profile(options: Options) -> int:
    from eventplane_mqtt.profile import load_profile, overridden

    profile = Path(options["profile"])
    found = overridden(profile, Path(options["added"])) if "added" in options else []
    print("\n".join(found) or f"{profile}: {len(load_profile(profile))} listeners")
    return 1 if found else os.EX_OK


def _print_manifest(_: Options) -> None:
    print(json.dumps(manifest(), indent=2))


_COMMANDS: dict[str, tuple[Callable[[Options], int | None] | None, *tuple[str, ...]]] = {
    "run": (None, "settings"),  # see edge.command_line
    "check": (_check, "settings"),
    "provision": (_provision, "settings"),
    "discovery": (_discovery, "settings", "profile"),
    "discovery find": (_find, "interfaces", "interfaces seconds"),
    "announce": (_announce, "settings"),
    "telemetry": (_telemetry, "settings"),
    "broker-database": (_broker_database, "database"),
    "broker-profile": (_broker_profile, "profile", "added profile"),
    "manifest": (_print_manifest, ""),
}
"""Command -> what runs it, and the options that it accepts, by their names in order; one of several forms."""
