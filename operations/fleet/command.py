"""`python -m eventplane fleet COMMAND`: who is in the fleet, and who no longer is."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from eventplane.downlink.table import TABLE as DESIRED
from eventplane.errors import EventPlaneError
from eventplane.fleet import Device
from eventplane.fleet_registry import TABLE, Registry
from eventplane.resource_names import resource_name
from operations.desired import DesiredItems
from operations.fleet.disposal import Disposal
from operations.fleet.service import Fleet


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 done, 1 refused or failed; 2 wrong command line."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        for line in options.run(_fleet(options.env), options):
            print(line)  # noqa: T201 - it speaks to a person
    except (EventPlaneError, ClientError, BotoCoreError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - it speaks to a person
        return 1
    return 0


def _fleet(environment: str) -> Fleet:
    """With the credentials, the region and the endpoint that the AWS tools find, too."""
    dynamodb = boto3.client("dynamodb")
    registry = Registry(dynamodb, resource_name(environment, TABLE))
    desired = DesiredItems(dynamodb, resource_name(environment, DESIRED))
    disposal = Disposal(boto3.client("iot"), boto3.client("iot-data"), desired)
    return Fleet(registry, disposal, lambda: time.time_ns() // 1_000_000)


def _register(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    for serial in options.serial:
        yield f"{serial}: {'registered' if fleet.register(serial) else 'was registered before'}"


def _show(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    yield from _description(fleet.show(options.thing))


def _allow_replacement(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    device = fleet.allow_replacement(options.thing, options.days)
    yield f"{device.thing}: the claim may register it until {_moment(device.replacement_until_ms)}"


def _groups(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    device = fleet.set_groups(options.thing, frozenset(options.group))
    yield f"{device.thing}: {'in ' + ' '.join(sorted(device.groups)) if device.groups else 'in no group'}"


def _decommission(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    # Printed when all is done: what failed in between is an error, and the next run starts over.
    steps = fleet.decommission(options.thing, options.reason, dry_run=options.dry_run)
    yield f"{options.thing}: {'would be' if options.dry_run else 'is'} decommissioned"
    yield from (f"  {step.words}" for step in steps)


def _description(device: Device) -> Iterator[str]:
    yield f"thing         {device.thing}"
    yield f"state         {device.state}, changed {_moment(device.changed_at_ms)}"
    yield f"registrations {device.registrations}"
    facts = {
        "certificate": device.certificate,
        "pending": device.pending,
        "replaced": " ".join(sorted(device.replaced)),
        "replacement": device.replacement_until_ms
        and f"allowed until {_moment(device.replacement_until_ms)}",
        "groups": " ".join(sorted(device.groups)),
        "reason": device.reason,
    }
    yield from (f"{name:13} {value}" for name, value in facts.items() if value)


def _moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane fleet", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument("--env", default="dev", metavar="NAME", help="the environment (dev)")

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=purpose, description=purpose, parents=[everywhere])

    registering = command("register", "put devices that were made on the list")
    registering.add_argument("serial", nargs="+")
    registering.set_defaults(run=_register)
    showing = command("show", "tell what the registry knows of a device")
    showing.set_defaults(run=_show)
    replacing = command("allow-replacement", "let the claim register a device that lost its certificate")
    replacing.add_argument("--days", type=int, choices=range(1, 31), default=7, metavar="1-30")
    replacing.set_defaults(run=_allow_replacement)
    grouping = command("groups", "put a device into groups, and out of all others")
    grouping.set_defaults(run=_groups)
    ending = command("decommission", "take a device out of service, for good; may be repeated")
    ending.add_argument("--reason", default="", help="kept in the registry")
    ending.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    ending.set_defaults(run=_decommission)
    for each in (showing, replacing, grouping, ending):
        each.add_argument("thing")
    grouping.add_argument("group", nargs="*", help="none: it belongs to no group")
    return parser
