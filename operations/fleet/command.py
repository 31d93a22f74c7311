"""`python -m eventplane fleet COMMAND`: who is in the fleet, and who no longer is."""

from __future__ import annotations

import argparse
import time
from typing import Any

from eventplane.downlink.table import TABLE as DESIRED
from eventplane.fleet import FLEET_TABLE, PRESENCE_TABLE, QUARANTINE_POLICY, Device, FleetTable, gone_request
from eventplane.resource_names import resource_name
from operations import text
from operations.cloud import enter
from operations.command import DONE, answer, answer_json, run
from operations.desired import DesiredItems
from operations.fleet.access import DeviceAccess, Step
from operations.fleet.disposal import Disposal
from operations.fleet.service import Fleet
from operations.options import add_environment, add_json


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    options = _parser().parse_args(arguments)
    return run(lambda: int(options.command(_fleet(options.env), options)))


def _fleet(environment: str) -> Fleet:
    cloud = enter()
    registry = FleetTable(cloud.dynamodb, resource_name(environment, FLEET_TABLE))
    desired = DesiredItems(cloud.dynamodb, resource_name(environment, DESIRED))
    presence = resource_name(environment, PRESENCE_TABLE)
    iot, data = cloud.client("iot"), cloud.client("iot-data")
    access = DeviceAccess(iot, data, resource_name(environment, QUARANTINE_POLICY))
    disposal = Disposal(
        iot,
        data,
        access,
        desired,
        unwatch=lambda thing: cloud.dynamodb.update_item(**gone_request(presence, thing)),
    )
    return Fleet(registry, access, disposal, lambda: time.time_ns() // 1_000_000)


def _register(fleet: Fleet, options: argparse.Namespace) -> int:
    for serial in options.serial:
        # One by one: what was registered before one that is refused is registered.
        answer(f"{serial}: {'registered' if fleet.register(serial) else 'was registered before'}")
    return DONE


def _show(fleet: Fleet, options: argparse.Namespace) -> int:
    facts = _facts(fleet.show(options.thing))
    if options.json:
        answer_json(facts)
    else:
        # What there is none of is left out; that there were no registrations is told.
        answer(
            text.pairs([(name, _words(value)) for name, value in facts.items() if value not in (None, [])])
        )
    return DONE


def _allow_replacement(fleet: Fleet, options: argparse.Namespace) -> int:
    device = fleet.allow_replacement(options.thing, options.days)
    answer(f"{device.thing}: the claim may register it until {text.moment(device.replacement_until_ms)}")
    return DONE


def _groups(fleet: Fleet, options: argparse.Namespace) -> int:
    device = fleet.set_groups(options.thing, frozenset(options.group))
    answer(f"{device.thing}: {'in ' + ' '.join(sorted(device.groups)) if device.groups else 'in no group'}")
    return DONE


def _quarantine(fleet: Fleet, options: argparse.Namespace) -> int:
    return _done(options.thing, "quarantined", fleet.quarantine(options.thing, options.reason))


def _release(fleet: Fleet, options: argparse.Namespace) -> int:
    return _done(options.thing, "released", fleet.release(options.thing))


def _decommission(fleet: Fleet, options: argparse.Namespace) -> int:
    # Printed when all is done: what failed in between is an error, and the next run starts over.
    steps = fleet.decommission(options.thing, options.reason, dry_run=options.dry_run)
    return _done(options.thing, "decommissioned", steps, is_done=not options.dry_run)


def _done(thing: str, state: str, steps: list[Step], *, is_done: bool = True) -> int:
    answer(f"{thing}: {'is' if is_done else 'would be'} {state}")
    for step in steps:
        answer(f"  {text.word(step.words)}")
    return DONE


def _facts(device: Device) -> dict[str, Any]:
    until_ms = device.replacement_until_ms
    return {
        "thing": device.thing,
        "state": device.state.value,
        "changed": text.moment(device.changed_at_ms),
        "registrations": device.registrations,
        "certificate": device.certificate,
        "pending": device.pending,
        "replaced": sorted(device.replaced),
        "suspended": sorted(device.suspended),
        "replaceable_until": text.moment(until_ms) if until_ms else None,
        "groups": sorted(device.groups),
        "reason": device.reason or None,
    }


def _words(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane fleet", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, purpose: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=purpose, description=purpose)
        add_environment(made)
        return made

    registering = command("register", "put devices that were made on the list")
    registering.add_argument("serial", nargs="+")
    registering.set_defaults(command=_register)
    showing = command("show", "tell what the registry knows of a device")
    add_json(showing)
    showing.set_defaults(command=_show)
    replacing = command("allow-replacement", "let the claim register a device that lost its certificate")
    replacing.add_argument("--days", type=int, choices=range(1, 31), default=7, metavar="1-30")
    replacing.set_defaults(command=_allow_replacement)
    grouping = command("groups", "put a device into groups, and out of all others")
    grouping.set_defaults(command=_groups)
    ending = command("decommission", "take a device out of service, for good; may be repeated")
    taking_off = command("quarantine", "take a device off at once, until its release; may be repeated")
    taking_off.set_defaults(command=_quarantine)
    releasing = command("release", "let a quarantined device connect again; may be repeated")
    releasing.set_defaults(command=_release)
    for each in (ending, taking_off):
        each.add_argument("--why", "--reason", dest="reason", default="", help="kept in the registry")
    ending.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    ending.set_defaults(command=_decommission)
    for each in (showing, replacing, grouping, taking_off, releasing, ending):
        each.add_argument("thing")
    grouping.add_argument("group", nargs="*", help="none: it belongs to no group")
    return parser
