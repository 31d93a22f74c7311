"""`python -m eventplane COMMAND`: one name for the commands of the plane.

Commands need more than the core has. They are looked up by name when they are called, so that the core
depends on none of them.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

COMMANDS = {
    "dead-letters": ("operations.dead_letters_command", "list, show or redrive what could not be delivered"),
    "desired": ("operations.desired_command", "show the desired state of a device, and what it has stored"),
    "explain": ("contract.explain_command", "show who receives an event, by which routes, and why"),
    "fleet": (
        "operations.fleet.command",
        "register, show, group, replace, quarantine, decommission devices",
    ),
    "interest": (
        "operations.interest_command",
        "show what the cloud wants of devices; publish it again, or withdraw it",
    ),
    "replay": (
        "operations.replay_command",
        "send again the events that an audit reports lost, or a past window",
    ),
    "smoke": ("operations.smoke.command", "prove a deployed environment, with a throw-away device"),
    "subscriptions": (
        "operations.subscriptions_command",
        "show participants' own routes, now and in the past",
    ),
    "trace": ("operations.trace_command", "show every step of one event, and what is missing"),
}
"""The module of each command, which has a `main`, and what it does."""


def main(arguments: list[str]) -> int:
    """Run the command that `arguments` name, and return its exit status."""
    if not arguments or arguments[0] not in COMMANDS:
        _parser().parse_args(arguments)
        return 2
    try:
        command = import_module(COMMANDS[arguments[0]][0])
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing; run this from the checkout, after `make setup`", file=sys.stderr)
        return 1
    status: int = command.main(arguments[1:])
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
