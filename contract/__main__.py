"""`python -m contract [compile | diagram | catalogue | diff OTHER | floor IMAGE | acl | publish]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from contract.acl import acl
from contract.checks import check
from contract.diagram import diagram
from contract.diff import diff_text
from contract.loader import CONTRACT_FILE, load_any
from contract.summary import summary, warnings_text
from eventplane.contract import Contract
from eventplane.errors import EventPlaneError


def main(arguments: list[str]) -> int:
    """Exit status 0 for a good contract, warnings or not, 1 for one with problems."""
    # No command means the one that is wanted most.
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["compile", *arguments]
    options = _parser().parse_args(arguments)
    try:
        text = options.run(load_any(options.contract), options)
    except EventPlaneError as error:
        print(error, file=sys.stderr)
        return 1
    print(text)
    return 0


def _compile(contract: Contract, options: argparse.Namespace) -> str:
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_bytes(contract.canonical)
    return "\n".join(filter(None, [summary(contract), warnings_text(check(contract))]))


def _diagram(contract: Contract, _: argparse.Namespace) -> str:
    return diagram(contract)


def _catalogue(contract: Contract, options: argparse.Namespace) -> str:
    # Only here: the other commands need no templates.
    from contract.catalogue import catalogue

    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(catalogue(contract), encoding="utf-8")
    return str(options.output)


def _diff(contract: Contract, options: argparse.Namespace) -> str:
    return diff_text(load_any(options.other), contract)


def _acl(contract: Contract, _: argparse.Namespace) -> str:
    return acl(contract)


def _floor(contract: Contract, options: argparse.Namespace) -> str:
    from contract.publish import check_floor

    image = load_any(options.image)
    check_floor(image, contract)
    return f"devices with the contract {image.version} take {contract.version}: it keeps all their alarms"


def _publish(contract: Contract, options: argparse.Namespace) -> str:
    # Only here: the other commands need no AWS.
    import boto3

    from contract.publish import Publisher, check_floor, find_deployment

    for each in options.image:
        check_floor(load_any(each), contract)
    publisher = Publisher(find_deployment(options.env, boto3.client), boto3.client("dynamodb"))
    if options.withdraw:
        publisher.withdraw()
        return f"{options.env}: the deployed contract is in force again"
    if options.dry_run:
        publisher.check(contract)
        return f"{options.env}: {contract.version} can be published"
    publisher.publish(contract)
    done = f"{options.env}: {contract.version} is in force; the routers follow within their refresh interval"
    return done if options.image else f"{done}\n{_NO_IMAGE}"


_NO_IMAGE: Final = (
    "it was not compared with the contract of any device's image (--image FILE); "
    "devices refuse one that takes their alarms away"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m contract", description="Without a command: compile.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    compiling = commands.add_parser("compile", help="check it, print a summary and the warnings")
    compiling.add_argument("--output", type=Path, help="write the compiled contract to this file")
    compiling.set_defaults(run=_compile)
    drawing = commands.add_parser("diagram", help="draw the plane as a mermaid flowchart")
    drawing.set_defaults(run=_diagram)
    listing = commands.add_parser("catalogue", help="write the event catalogue, a page for people")
    listing.add_argument("--output", type=Path, default=Path("build/catalogue.html"), help="the page's file")
    listing.set_defaults(run=_catalogue)
    comparing = commands.add_parser("diff", help="show what changed against another version")
    comparing.add_argument("other", type=Path, help="the earlier version: YAML, or compiled (.json)")
    comparing.set_defaults(run=_diff)
    comparing_image = commands.add_parser("floor", help="check that devices with an image would take it")
    comparing_image.add_argument(
        "image", type=Path, help="the contract in the image: YAML, or compiled (.json)"
    )
    comparing_image.set_defaults(run=_floor)
    allowing = commands.add_parser("acl", help="write an access file for the home's Mosquitto")
    allowing.set_defaults(run=_acl)
    publishing = commands.add_parser("publish", help="put it into force without a deployment")
    publishing.add_argument("--env", required=True, metavar="NAME", help="the environment that is deployed")
    publishing.add_argument(
        "--image",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="refuse what takes alarms away from devices with this contract in their image; may be repeated",
    )
    publishing.add_argument("--dry-run", action="store_true", help="only check it against what is deployed")
    publishing.add_argument("--withdraw", action="store_true", help="go back to the deployed contract")
    publishing.set_defaults(run=_publish)
    for each in (compiling, drawing, listing, comparing, comparing_image, allowing, publishing):
        each.add_argument(
            "--contract", type=Path, default=CONTRACT_FILE, metavar="FILE", help="instead of the plane's own"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
