"""`eventplane fleet VERB`: the devices of an environment, and what becomes of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from eventplane.device_record import Device, LifecycleState
from operations import text
from operations.archive import add_archive, archive_of
from operations.cloud import enter
from operations.command import DONE, Run, add_verbs, count, present, say
from operations.errors import ArchiveMissingError
from operations.reported import presence_of, report_of
from operations.reported_text import document, lines
from parts.fleet.access import Action
from parts.fleet.service import FleetRegistry, fleet_of

_MOST: Final = 1_000
"""Devices that `list` shows by default: the registry of a large fleet is read as a whole."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    listing = verb("list", _with(_list), "list devices: state, groups, last change")
    listing.add_argument("--state", choices=[each.value for each in LifecycleState], help="only these")
    listing.add_argument("--group", metavar="NAME", help="only those in this group")
    listing.add_argument(
        "--most", type=count, default=_MOST, metavar="N", help="show at most N devices; default: %(default)s"
    )
    registering = verb("register", _with(_register), "register manufactured devices")
    registering.add_argument("serial", nargs="+", metavar="SERIAL")
    showing = verb("show", _show, "show a device: registry, connection, and what it reported of itself")
    showing.add_argument(
        "--hours",
        type=count,
        default=1,
        metavar="N",
        help="hours of the archive that are read, up to its last heartbeat; default: %(default)s",
    )
    add_archive(showing)
    replacing = verb(
        "allow-replacement",
        _with(_allow_replacement),
        "let the claim register a device that lost its certificate",
    )
    grouping = verb("groups", _with(_groups), "put a device into groups, and out of all others")
    ending = verb(
        "decommission", _with(_decommission), "take a device out of service permanently (idempotent)"
    )
    quarantining = verb(
        "quarantine", _with(_quarantine), "take a device off at once, until its release (idempotent)"
    )
    releasing = verb("release", _with(_release), "let a quarantined device connect again (idempotent)")
    condemning = verb("condemn", _with(_condemn), "end one certificate of a device permanently (idempotent)")
    recovering = verb(
        "recover", _with(_recover), "after a theft: condemn its certificates, and let the device back in"
    )
    recovering.add_argument(
        "--keep", metavar="CERTIFICATE", help="id of the certificate to keep, which only the device holds"
    )
    for each in (replacing, recovering):
        each.add_argument(
            "--days",
            type=int,
            choices=range(1, 31),
            default=7,
            metavar="1-30",
            help="days that the claim may be used; default: 7",
        )
    for each in (ending, quarantining):
        each.add_argument("--why", "--reason", dest="reason", default="", help="kept in the registry")
    ending.add_argument("--dry-run", action="store_true", help="only print what would be done")
    for each in (showing, replacing, grouping, quarantining, releasing, condemning, recovering, ending):
        each.add_argument("thing", metavar="THING")
    condemning.add_argument("certificate", metavar="CERTIFICATE", help="its id, as `show` prints it")
    grouping.add_argument("group", nargs="*", metavar="GROUP", help="the groups; none: no group")


def _with(command: Callable[[FleetRegistry, argparse.Namespace], int]) -> Run:
    return lambda options: command(fleet_of(enter(options.env), options.env), options)


def _list(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    chosen = (
        each
        for each in fleet.store.all()
        if options.group in (None, *each.groups) and options.state in (None, each.state)
    )
    found = sorted(chosen, key=lambda each: each.thing)
    shown = found[: options.most]
    head = ["DEVICE", "STATE", "CHANGED", "GROUPS"]
    rows = [
        [each.thing, each.state.value, text.moment(each.changed_at_ms), " ".join(sorted(each.groups)) or "-"]
        for each in shown
    ]
    present(options, [_facts(each) for each in shown], text.table(head, rows))
    if len(found) > len(shown):
        say(f"{len(found) - len(shown)} more devices; show more with --most")
    elif not found:
        say("no device is registered like that; see --env, --state and --group")
    return DONE


def _register(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    done = []
    for serial in options.serial:
        # One by one: what was registered before one that is refused is registered.
        is_new = fleet.register(serial)
        done.append({"thing": serial, "is_new": is_new})
        if not options.json:
            word = "registered" if is_new else "was registered before"
            present(options, None, f"{serial}: {word}")
    if options.json:
        present(options, done, "")
    return DONE


def _show(options: argparse.Namespace) -> int:
    cloud = enter(options.env)
    device = fleet_of(cloud, options.env).find(options.thing)
    facts = _facts(device) if device else {"thing": options.thing, "state": None}
    # What there is none of is left out; that there were no registrations is shown.
    words = [(name, _words(value)) for name, value in facts.items() if value not in (None, [])]
    if device is None:
        words.append(("state", "not registered, but known to AWS IoT"))
    try:
        archive = archive_of(options, cloud)
    except ArchiveMissingError as error:
        say(str(error))
        archive = None
    report = report_of(options.thing, presence_of(cloud, options.env), archive, options.hours)
    present(options, facts | document(report), text.pairs([*words, *lines(report)]))
    return DONE


def _allow_replacement(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    device = fleet.allow_replacement(options.thing, options.days)
    until = text.moment(device.replacement_until_ms)
    present(options, _facts(device), f"{device.thing}: the claim may register it until {until}")
    return DONE


def _groups(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    device = fleet.set_groups(options.thing, frozenset(options.group))
    where = "in " + " ".join(sorted(device.groups)) if device.groups else "in no group"
    present(options, _facts(device), f"{device.thing}: {where}")
    return DONE


def _quarantine(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    return _done(options, "is quarantined", fleet.quarantine(options.thing, options.reason))


def _release(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    return _done(options, "is released", fleet.release(options.thing))


def _condemn(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    steps = fleet.condemn(options.thing, options.certificate)
    return _done(options, f"certificate {options.certificate} is condemned", steps)


def _recover(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    way = f"keeps certificate {options.keep}" if options.keep else "may be registered with the claim"
    return _done(options, f"is recovered and {way}", fleet.recover(options.thing, options.keep, options.days))


def _decommission(fleet: FleetRegistry, options: argparse.Namespace) -> int:
    # Printed when all is done: what failed in between is an error, and the next run starts over.
    steps = fleet.decommission(options.thing, options.reason, dry_run=options.dry_run)
    return _done(options, f"{'would be' if options.dry_run else 'is'} decommissioned", steps)


def _done(options: argparse.Namespace, outcome: str, steps: list[Action]) -> int:
    words = [each.words for each in steps]
    lines = [f"{options.thing}: {outcome}", *(f"  {text.word(each)}" for each in words)]
    present(options, {"thing": options.thing, "outcome": outcome, "steps": words}, "\n".join(lines))
    return DONE


def _facts(device: Device) -> dict[str, Any]:
    until_ms = device.replacement_until_ms
    return {
        "thing": device.thing,
        "state": device.state.value,
        "changed": text.moment(device.changed_at_ms),
        "registrations": device.registrations,
        "certificate": device.certificate,
        "pending": list(device.pending),
        "replaced": sorted(device.replaced),
        "former": list(device.former),
        "condemned": sorted(device.condemned),
        "suspended": sorted(device.suspended),
        "replaceable_until": text.moment(until_ms) if until_ms else None,
        "groups": sorted(device.groups),
        "reason": device.reason or None,
    }


def _words(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
