"""The forwarder's command line. `edge.commands.USAGE` lists the commands.

Exit status: 0 done, or stopped by SIGTERM or SIGINT; 1 `discovery find` found no broker, or `broker-profile`
overridden lines; 2 wrong command line; 74 another process has the spool (EX_IOERR); 78 wrong settings, or a
broken contract and none that was in force before (EX_CONFIG). Any other status is a bug and leaves a
traceback.
"""

from __future__ import annotations

import getopt  # argparse takes 200 KB more, for as long as the device runs
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from edge.errors import DeviceSettingsError, SettingProblem, SpoolError
from eventplane.errors import EventPlaneError

EX_WRONG_COMMAND_LINE = 2

_OPTIONS = ("added=", "database=", "settings=", "profile=", "interfaces=", "seconds=", "version", "help")

_log = logging.getLogger(__package__)


def main(arguments: Sequence[str]) -> int:
    """Run the command of `arguments` (without the program's name) and return the exit status."""
    try:
        given, words = getopt.gnu_getopt(arguments, "h", _OPTIONS)
        options = {name.lstrip("-"): value for name, value in given}
        if words in ([], ["run"]) and [*options] == ["settings"]:
            return _run(Path(options["settings"]))
        from edge.commands import run_command  # the others' modules, which a forwarder need not hold

        return run_command(" ".join(words) or "run", options)
    except getopt.GetoptError as error:
        from edge.commands import USAGE

        sys.stderr.write(f"{error}\n\n{USAGE}")
        return EX_WRONG_COMMAND_LINE
    except SpoolError as error:
        _log.critical("%s", error)
        return os.EX_IOERR
    except EventPlaneError as error:  # of settings, or of what they name
        print(error, file=sys.stderr)
        return os.EX_CONFIG


def _run(file: Path) -> int:
    from edge.contract_updates import last_contract, read_contract
    from edge.daemon import run
    from edge.settings import load_settings
    from edge.systemd import start_logging

    settings = load_settings(file, dict(os.environ))
    contract = read_contract(settings.contract)
    refused = None
    if isinstance(contract, SettingProblem):
        refused, last = contract, last_contract(settings.spool)
        if last is None:
            raise DeviceSettingsError([refused])
        contract = last
    start_logging(settings.log_level, dict(os.environ))
    run(settings, contract, dict(os.environ), refused)
    return os.EX_OK


def end(status: int) -> NoReturn:
    """End the process at once: while the interpreter shuts down, a second SIGTERM would kill it."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)
