"""The forwarder's command line. `USAGE` lists the commands.

Exit status: 0 done, or stopped by SIGTERM or SIGINT; 1 `discovery find` found no broker, or `broker-profile`
overridden lines; 2 wrong command line; 74 another process has the spool (EX_IOERR); 78 wrong settings, or a
broken contract and none that was in force before (EX_CONFIG). Any other status is a bug and leaves a
traceback.
"""

from __future__ import annotations

import getopt  # argparse takes 200 KB more, for as long as the device runs
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from edge.errors import SettingProblem, SettingsError, SpoolError
from edge.parts import PROGRAM, build_version, manifest, require_part
from eventplane.errors import EventPlaneError

if TYPE_CHECKING:
    from edge.settings import Settings

EX_WRONG_COMMAND_LINE = 2

USAGE = f"""usage: {PROGRAM} [run] --settings FILE
       {PROGRAM} check --settings FILE
       {PROGRAM} provision --settings FILE
       {PROGRAM} discovery (--settings FILE | --profile FILE)
       {PROGRAM} discovery find --interfaces NAME[,NAME] [--seconds N]
       {PROGRAM} announce --settings FILE
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

_OPTIONS = ("added=", "database=", "settings=", "profile=", "interfaces=", "seconds=", "version", "help")

_log = logging.getLogger(__package__)


def main(arguments: Sequence[str]) -> int:
    """Run the command of `arguments` (without the program's name) and return the exit status."""
    try:
        given, words = getopt.gnu_getopt(arguments, "h", _OPTIONS)
    except getopt.GetoptError as error:
        return _wrong_command_line(str(error))
    options = {name.lstrip("-"): value for name, value in given}
    if options.keys() & {"h", "help"}:
        sys.stdout.write(USAGE)
        return os.EX_OK
    if "version" in options:
        print(f"{PROGRAM} {build_version()}")
        return os.EX_OK
    command = " ".join(words) or "run"
    if command not in _COMMANDS:
        return _wrong_command_line(f"there is no command '{command}'")
    accepted, run = _COMMANDS[command]
    if set(options) not in accepted:
        forms = " or ".join(" ".join(f"--{name}" for name in sorted(each)) for each in accepted)
        return _wrong_command_line(f"'{command}' needs {forms or 'no option'}")
    try:
        return run(options) or os.EX_OK
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    except EventPlaneError as error:  # of settings, or of what they name
        print(error, file=sys.stderr)
        return os.EX_CONFIG


def _wrong_command_line(problem: str) -> int:
    sys.stderr.write(f"{problem}\n\n{USAGE}")
    return EX_WRONG_COMMAND_LINE


def _load(options: Options) -> Settings:
    from edge.settings import load_settings

    return load_settings(Path(options["settings"]), dict(os.environ))


def _run(options: Options) -> None:
    from edge.contract_updates import last_contract, read_contract
    from edge.daemon import run
    from edge.systemd import start_logging

    settings = _load(options)
    contract = read_contract(settings.contract)
    refused = None
    if isinstance(contract, SettingProblem):
        refused, last = contract, last_contract(settings.spool)
        if last is None:
            raise SettingsError([refused])
        contract = last
    start_logging(settings.log_level, dict(os.environ))
    run(settings, contract, dict(os.environ), refused)


def _check(options: Options) -> None:
    from edge import check
    from edge.contract_updates import read_contract
    from edge.system import SYSTEM

    settings, now = _load(options), SYSTEM.now()
    contract = read_contract(settings.contract)
    problems = check.file_problems(settings, now)
    if isinstance(contract, SettingProblem):
        raise SettingsError([contract, *problems])
    if problems:
        raise SettingsError(problems)
    print(f"thing {settings.thing}, contract {contract.version}: the forwarder can start")
    if check.awaits_provisioning(settings):
        print("warning: there is no certificate yet; provisioning has to bring it")
    elif warning := check.expires_soon(settings.cloud, now):
        print(f"warning: {warning}")
    for each in filter(None, (*check.broker_warnings(settings.local), check.proxy_warning(settings.cloud))):
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
        return _wrong_command_line(f"--seconds {seconds}: it is not a number of seconds")
    return int(discovery.find(options["interfaces"].split(","), float(seconds)))


def _announce(options: Options) -> None:
    require_part("discovery").announce(_load(options))


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


_SETTINGS = frozenset({"settings"})
_FIND = frozenset({"interfaces"})

_COMMANDS: dict[str, tuple[tuple[frozenset[str], ...], Callable[[Options], int | None]]] = {
    "run": ((_SETTINGS,), _run),
    "check": ((_SETTINGS,), _check),
    "provision": ((_SETTINGS,), _provision),
    "discovery": ((_SETTINGS, frozenset({"profile"})), _discovery),
    "discovery find": ((_FIND, _FIND | {"seconds"}), _find),
    "announce": ((_SETTINGS,), _announce),
    "broker-database": ((frozenset({"database"}),), _broker_database),
    "broker-profile": ((frozenset({"profile"}), frozenset({"profile", "added"})), _broker_profile),
    "manifest": ((frozenset(),), _print_manifest),
}
"""Command -> the sets of options that it accepts, and the function that runs it. A command imports what it
needs itself, so that the forwarder does not load the other commands' modules."""


def end(status: int) -> NoReturn:
    """End the process at once: while the interpreter shuts down, a second SIGTERM would kill it."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)
