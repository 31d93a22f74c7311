"""`python -m edge --settings FILE [--check]`: the forwarder of one device.

Exit status: 0 stopped by SIGTERM or SIGINT, 2 wrong command line, 74 the spool failed (EX_IOERR), 78 wrong
settings or contract (EX_CONFIG); anything else is a bug and leaves a traceback. On SIGHUP it reads the
contract again.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.check import expires_soon, identity_problems, read_contract, utc_now
from edge.daemon import run
from edge.errors import SettingProblem, SettingsError, SpoolError
from edge.journal import start_logging
from edge.settings import Settings, load_settings
from eventplane.contract import Contract

_log = logging.getLogger("edge")


def main() -> int:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(
        prog="python -m edge", description="The Event Plane's forwarder on a device."
    )
    parser.add_argument("--settings", type=Path, required=True, help="TOML file, see edge/settings.py")
    parser.add_argument("--check", action="store_true", help="say what is wrong with the settings and end")
    arguments = parser.parse_args()
    environment = dict(os.environ)
    try:
        settings = load_settings(arguments.settings, environment)
    except SettingsError as error:
        return _refuse(error.problems)
    contract = read_contract(settings.contract)
    if arguments.check:
        return _check(settings, contract)
    if isinstance(contract, SettingProblem):
        return _refuse([contract])
    start_logging(settings.log_level, environment)
    # Not a reason to stay away: at home the device works without the cloud.
    for problem in identity_problems(settings.cloud, utc_now()):
        _log.error("%s", problem)
    try:
        run(settings, contract, environment)
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    return os.EX_OK


def _check(settings: Settings, contract: Contract | SettingProblem) -> int:
    """Say whether the device could run like this."""
    now = utc_now()
    problems = identity_problems(settings.cloud, now)
    if isinstance(contract, SettingProblem):
        return _refuse([contract, *problems])
    if problems:
        return _refuse(problems)
    print(f"thing {settings.thing}, contract {contract.version}: the forwarder can start")
    if warning := expires_soon(settings.cloud, now):
        print(f"warning: {warning}")
    return os.EX_OK


def _refuse(problems: Sequence[SettingProblem]) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    return os.EX_CONFIG


if __name__ == "__main__":
    sys.exit(main())
