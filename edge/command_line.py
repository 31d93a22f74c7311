"""The command line of the device's programs, and their end."""

from __future__ import annotations

import getopt  # argparse takes 200 KB more, for as long as the device runs
import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

EX_WRONG_COMMAND_LINE = 2


def read_command_line(usage: str, *flags: str) -> tuple[Path, frozenset[str]]:
    """The file after `--settings`, and which of the `flags` (`--check`) are there.

    Raises `SystemExit`: with 0 after `--help`, with 2 and a word about it when the command line is wrong.
    """
    known = ["settings=", "help", *(flag.removeprefix("--") for flag in flags)]
    try:
        given, rest = getopt.gnu_getopt(sys.argv[1:], "h", known)
    except getopt.GetoptError as error:
        _refuse(str(error), usage)
    options = dict(given)
    if "-h" in options or "--help" in options:
        sys.stdout.write(usage)
        raise SystemExit(os.EX_OK)
    if rest or "--settings" not in options:
        _refuse("name the settings, and nothing else", usage)
    return Path(options["--settings"]), frozenset(flags) & options.keys()


def _refuse(problem: str, usage: str) -> NoReturn:
    sys.stderr.write(f"{problem}\n\n{usage}")
    raise SystemExit(EX_WRONG_COMMAND_LINE)


def end(status: int) -> NoReturn:
    """End at once: all is closed, and while the interpreter takes itself down a second SIGTERM would kill."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)
