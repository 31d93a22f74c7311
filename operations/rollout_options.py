"""The options of `eventplane contract rollout`, which need no AWS."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from contract.rollout import WHOLE
from operations.archive import add_archive
from operations.command import count, positive
from operations.command_line import WRONG_WORDS

STATUS: Final = "status"
GO_BACK: Final = "go-back"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "what",
        metavar=f"NEW|{STATUS}|{GO_BACK}",
        help="the new contract, YAML or compiled: begin with it, or go on; or show the roll-out; or end it",
    )
    parser.add_argument(
        "--groups", type=_words, default=[], metavar="NAME,...", help="first these groups of devices"
    )
    parser.add_argument(
        "--shares",
        type=_shares,
        default=[1.0, 5.0, 25.0, WHOLE],
        metavar="PERCENT,...",
        help="then these shares of the fleet; default: 1,5,25,100",
    )
    parser.add_argument("--watch", action="store_true", help="stay until it is over, with a look every 15 s")
    for name, kind, default, meaning in (
        ("minutes", positive, 60.0, "each stage is watched for so long at least"),
        ("events", count, 100, "a stage passes with so many events under the new contract"),
        ("alarms", count, 3, "and so many alarms"),
        ("hours", positive, 24.0, "a stage that lacks something after so long waits for --proceed"),
        ("silent", positive, 15.0, "a device is silent after so many minutes without an event"),
    ):
        parser.add_argument(
            f"--{name}", type=kind, default=default, metavar="N", help=f"{meaning}; default: %(default)g"
        )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="KEY",
        help="what was found under this key, in which * is any text, is wanted; alarms cannot be accepted; "
        "may be repeated",
    )
    parser.add_argument("--proceed", action="store_true", help="let the stage pass that is unproven")
    parser.add_argument("--final", action="store_true", help=f"with {GO_BACK}: wait for no device")
    parser.add_argument("--no-audit", action="store_true", help="leave out today's audit before each stage")
    parser.add_argument(
        "--image",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="refuse what takes alarms away from devices with this contract in their image; may be repeated",
    )
    parser.add_argument(
        "--old", type=Path, metavar="FILE", help="the contract in force, if no archive has it"
    )
    add_archive(parser)
    parser.set_defaults(failed=WRONG_WORDS)  # 1 is a result
    parser.epilog = (
        "Exit status: 0 all devices have it, 1 it went back or goes back, 2 wrong usage, or nothing was "
        "begun, 3 it is under way, or waits for a person."
    )


def _words(value: str) -> list[str]:
    return [each for each in value.split(",") if each]


def _shares(value: str) -> list[float]:
    return [positive(each) for each in _words(value)]
