"""`python -m edge --settings FILE [--check]`: the forwarder of one device.

Exit status: 0 stopped by SIGTERM or SIGINT, 2 wrong command line, 74 the spool failed (EX_IOERR), 78 wrong
settings or contract (EX_CONFIG); anything else is a bug and leaves a traceback. On SIGHUP it reads the
contract again.
"""

from __future__ import annotations

import getopt  # argparse takes 200 KB more, for as long as the device runs
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from edge.contract_file import read_contract
from edge.daemon import run
from edge.errors import SettingProblem, SettingsError, SpoolError
from edge.journal import start_logging
from edge.settings import Settings, load_settings
from eventplane.contract import Contract

USAGE = """usage: python -m edge --settings FILE [--check]

  --settings FILE  TOML, see docs/device.md
  --check          say what is wrong with settings, contract and certificate, and end
"""
EX_WRONG_COMMAND_LINE = 2

_log = logging.getLogger("edge")


def main() -> int:
    """Run until told to stop."""
    try:
        given, rest = getopt.gnu_getopt(sys.argv[1:], "h", ["settings=", "check", "help"])
    except getopt.GetoptError as error:
        return _explain(str(error))
    options = dict(given)
    if "-h" in options or "--help" in options:
        print(USAGE)
        return os.EX_OK
    if rest or "--settings" not in options:
        return _explain("name the settings, and nothing else")
    environment = dict(os.environ)
    try:
        settings = load_settings(Path(options["--settings"]), environment)
    except SettingsError as error:
        return _refuse(error.problems)
    contract = read_contract(settings.contract)
    if "--check" in options:
        return _check(settings, contract)
    if isinstance(contract, SettingProblem):
        return _refuse([contract])
    start_logging(settings.log_level, environment)
    try:
        run(settings, contract, environment)
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    return os.EX_OK


def _check(settings: Settings, contract: Contract | SettingProblem) -> int:
    """Say whether the device could run like this."""
    from edge.check import expires_soon, identity_problems, utc_now  # nothing that runs needs it

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


def _explain(problem: str) -> int:
    print(f"{problem}\n\n{USAGE}", file=sys.stderr)
    return EX_WRONG_COMMAND_LINE


def _refuse(problems: Sequence[SettingProblem]) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    return os.EX_CONFIG


def end(status: int) -> NoReturn:
    """End at once: all is closed, and while the interpreter takes itself down a second SIGTERM would kill."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    end(main())
