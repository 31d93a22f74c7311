"""Shared by the operator's commands: exit statuses, output, verbs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

from contract.loader import CONTRACT_FILE, chosen_contract, load_contract
from eventplane.contract import Contract
from eventplane.errors import EventPlaneError
from eventplane.values import whole_number
from operations.command_line import environment
from operations.text import safe, table

DONE: Final = 0
FAILED: Final = 1
"""It could not be done, or not all of it, or nothing was found; the output says which."""

END_UNKNOWN: Final = 3
"""Nothing went wrong as far as is known, and how an event ended is not known everywhere."""

_MOST: Final = 1_000_000_000

Run = Callable[[argparse.Namespace], int]
"""Carries out a command line; returns the exit status."""


class ChoiceError(EventPlaneError):
    """The words of a command do not say, or say twice, what is meant; `problem` says what to write."""

    problem: str
    message = "{problem}"


def add_verbs(parser: argparse.ArgumentParser) -> Callable[[str, Run, str], argparse.ArgumentParser]:
    """Return what adds a verb to `parser`: its name, what carries it out, and its purpose."""
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Run, purpose: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}."
        )
        made.set_defaults(run=run)
        return made

    return add


def add_contract(parser: argparse.ArgumentParser) -> None:
    """Add `--contract`."""
    parser.add_argument(
        "--contract",
        type=Path,
        metavar="FILE",
        help="the contract, YAML or compiled (.json); default: EVENTPLANE_CONTRACT, this project's, or the "
        "plane's own",
    )


def contract_file(options: argparse.Namespace) -> Path:
    """Return the file of the contract that is named, or `chosen_contract`, or the plane's own."""
    return options.contract or chosen_contract() or CONTRACT_FILE


def contract_of(options: argparse.Namespace) -> Contract:
    """Return the contract of `contract_file`. Raises `ContractError`."""
    return load_contract(contract_file(options))


def day(text: str) -> date:
    """Read a day of the command line."""
    try:
        found = date.fromisoformat(text)
        found + timedelta(days=1)  # the archive has some of a day's records in the next day's folder
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no day; write YYYY-MM-DD") from None
    return found


def positive(text: str) -> float:
    """Read a number above 0 of the command line."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def count(text: str) -> int:
    """Read a whole number above 0 of the command line."""
    try:
        return whole_number(text, _MOST, 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0") from None


def present(options: argparse.Namespace, document: Any, text: str, *, is_line: bool = False) -> None:
    """Print a result: `document` with --json, otherwise `text`. `is_line`: one of many, so in one line."""
    as_json = partial(json.dumps, document, indent=None if is_line else 2)
    if options.json:
        text = as_json(ensure_ascii=False)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding, sys.stdout.errors or "strict")
    except UnicodeEncodeError:
        # A locale without these characters, or a file's name that is no text.
        text = as_json() if options.json else text.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def present_rows(
    options: argparse.Namespace,
    documents: Sequence[Any],
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    nothing: str,
) -> int:
    """Print `documents` with --json, otherwise a table, or `nothing` to the person; return the status."""
    if documents or options.json:
        present(options, documents, table(head, rows))
    else:
        say(nothing)
    return DONE if documents else FAILED


def shell_line(options: argparse.Namespace, *words: str) -> str:
    """Return a command for the shell of this one, with the options of this one that its variables lack."""
    line = ["eventplane", *words]
    for name in ("env", "region", "profile", "endpoint_url", "contract"):
        value = getattr(options, name, None)
        if value and (name != "env" or value != environment()):
            line += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(line)


def say(text: str) -> None:
    """Tell the person, not the program that reads the output."""
    sys.stderr.write(safe(text) + "\n")
    sys.stderr.flush()
