"""`python -m edge --settings FILE [--check]`: the forwarder of one device.

Exit status: 0 stopped by SIGTERM or SIGINT, 2 wrong command line, 74 the spool failed (EX_IOERR), 78 wrong
settings, or a broken contract and none that was in force before (EX_CONFIG); anything else is a bug and
leaves a traceback. On SIGHUP it reads the contract again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from edge.command_line import end, read_command_line
from edge.contract_updates import last_contract, read_contract
from edge.daemon import run
from edge.errors import SettingProblem, SettingsError, SpoolError
from edge.settings import Settings, load_settings
from edge.systemd import start_logging
from eventplane.contract import Contract

USAGE = """usage: python -m edge --settings FILE [--check]

  --settings FILE  TOML, see docs/device.md
  --check          say what is wrong with settings, contract and the files they name, and end
"""

_log = logging.getLogger("edge")


def main() -> int:
    """Run until told to stop."""
    file, flags = read_command_line(USAGE, "--check")
    environment = dict(os.environ)
    try:
        settings = load_settings(file, environment)
    except SettingsError as error:
        return _refuse(error.problems)
    contract = read_contract(settings.contract)
    if "--check" in flags:
        return _check(settings, contract)
    refused = None
    if isinstance(contract, SettingProblem):
        refused, last = contract, last_contract(settings.spool)
        if last is None:
            return _refuse([refused])
        contract = last
    start_logging(settings.log_level, environment)
    try:
        run(settings, contract, environment, refused)
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    return os.EX_OK


def _check(settings: Settings, contract: Contract | SettingProblem) -> int:
    """Say whether the device could run like this."""
    from edge.check import awaits_provisioning, expires_soon, file_problems, utc_now  # not for what runs

    now = utc_now()
    problems = file_problems(settings, now)
    if isinstance(contract, SettingProblem):
        return _refuse([contract, *problems])
    if problems:
        return _refuse(problems)
    print(f"thing {settings.thing}, contract {contract.version}: the forwarder can start")
    if awaits_provisioning(settings):
        print("warning: there is no certificate yet; provisioning has to bring it")
    elif warning := expires_soon(settings.cloud, now):
        print(f"warning: {warning}")
    return os.EX_OK


def _refuse(problems: Sequence[SettingProblem]) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    return os.EX_CONFIG


if __name__ == "__main__":
    end(main())
