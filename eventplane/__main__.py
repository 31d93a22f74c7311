"""`python -m eventplane COMMAND`: the one name for everything that people ask the plane.

`explain` says which routes an event takes, and why not the others; it is the one place of the core that reads
files, and what it prints, pure functions have made. The other commands need more than the core has: they are
looked up by name when they are called, so that the core depends on none of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from eventplane.contract import Contract, Place, load_compiled
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EventPlaneError
from eventplane.explain import explain, explanation_table

DEFAULT_CONTRACT = Path("build/contract.json")
"""Where `make explain` compiles the project's contract to."""

ELSEWHERE = {
    "dead-letters": ("operations.dead_letters_command", "list, show or redrive what could not be delivered"),
    "desired": ("operations.desired_command", "what a device shall have, and what of it has arrived"),
    "fleet": (
        "operations.fleet.command",
        "register, show, group, replace, quarantine, decommission devices",
    ),
    "interest": (
        "operations.interest_command",
        "what the cloud wants of devices; tell them again, or withdraw it",
    ),
    "replay": ("operations.replay_command", "send again what an audit misses, or a past window to somebody"),
    "smoke": ("operations.smoke.command", "prove a deployed environment, with a throw-away device"),
    "subscriptions": ("operations.subscriptions_command", "participants' own routes, now and in the past"),
    "trace": ("operations.trace_command", "every station of one event, and what is missing"),
}
"""The commands outside of the core: their module, which has a `main`, and what they do."""


def main(arguments: list[str]) -> int:
    """Exit status 0 when the question was answered, 1 when it could not be; other commands may have more."""
    if arguments and arguments[0] in ELSEWHERE:
        return _elsewhere(ELSEWHERE[arguments[0]][0], arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        contract = load_compiled(_read(options.contract), str(options.contract))
        event = parse_event(_read(options.event))
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename}: {error.strerror}; {_remedy(error, options)}", file=sys.stderr)
        return 1
    place = Place(options.place) if options.place else None
    print(_json(contract, event, place) if options.json else _table(contract, event, place))
    return 0


def _elsewhere(module: str, arguments: list[str]) -> int:
    try:
        command = import_module(module)
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing; run this from the checkout, after `make setup`", file=sys.stderr)
        return 1
    status: int = command.main(arguments)
    return status


def _read(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()


def _remedy(error: OSError, options: argparse.Namespace) -> str:
    if error.filename == str(options.contract):
        return f"compile it: python -m contract compile --output {options.contract}"
    return "name a file with one event in JSON format, or - for standard input"


def _json(contract: Contract, event: Envelope, place: Place | None) -> str:
    document = {
        "event": {"source": event.source, "id": event.id, "type": event.type},
        "contract": {"name": contract.name, "version": contract.version},
        "routes": [each.document() for each in explain(contract, event, place)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _table(contract: Contract, event: Envelope, place: Place | None) -> str:
    head = f"{event.type}, id {event.id} of {event.source}\n{contract.name}, version {contract.version}"
    return f"{head}\n\n{explanation_table(explain(contract, event, place))}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    each = commands.add_parser("explain", help="which routes an event takes, and why not the others")
    each.add_argument("event", type=Path, help="a file with one event in JSON format; - for standard input")
    each.add_argument(
        "--contract",
        type=Path,
        default=DEFAULT_CONTRACT,
        metavar="COMPILED",
        help="a compiled contract, default: %(default)s",
    )
    each.add_argument(
        "--place", choices=[place.value for place in Place], help="the routes of one router only"
    )
    each.add_argument("--json", action="store_true", help="print JSON instead of a table")
    for name, (_, purpose) in ELSEWHERE.items():
        commands.add_parser(name, help=purpose, add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
