"""`eventplane new participant NAME` and `new event-type TYPE`: add entries to the contract's file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from contract.loader import PROJECT_CONTRACTS, chosen_contract
from contract.scaffold import (
    Scaffold,
    ScaffoldError,
    copy_contract,
    new_event_type,
    new_participant,
    receivers_of,
)
from eventplane.contract import ParticipantKind, Priority
from operations.command import DONE, add_verbs, present, shell_line
from operations.send_command import BROKER

LOCAL: Final = "local"
"""The environment of the plane of `make up`."""

_KINDS = {
    each.value.replace("_", "-"): each
    for each in (ParticipantKind.CLOUD_SERVICE, ParticipantKind.DEVICE_SERVICE)
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two commands to `parser`."""
    add = add_verbs(parser)
    participant = add("participant", _participant, "add a service that sends or receives events")
    participant.add_argument("name", metavar="NAME", help="for example laundry-service")
    participant.add_argument(
        "--kind", choices=list(_KINDS), required=True, help="a service in the cloud, or one on each device"
    )
    participant.add_argument(
        "--receives", action="append", default=[], metavar="TYPE",
        help="an event type, or a family such as org.example.alarm.*; may be repeated",
    )  # fmt: skip
    participant.add_argument(
        "--webhook", action="store_true", help="its events are posted to its URL instead of into a queue"
    )
    event_type = add("event-type", _event_type, "add an event type, its schema and its routes")
    event_type.add_argument("type", metavar="TYPE", help="for example com.example.laundry.done.v1")
    event_type.add_argument("--sender", required=True, metavar="NAME", help="the participant that sends it")
    event_type.add_argument(
        "--receiver",
        action="append",
        default=[],
        metavar="NAME",
        help="a participant that receives it; may be repeated",
    )
    event_type.add_argument(
        "--priority", choices=[each.value for each in Priority], default="", help="default: normal"
    )
    event_type.add_argument(
        "--schema-id",
        default="",
        metavar="URI",
        help="the schema's $id; default: made from the type's domain",
    )
    contract = add("contract", _contract, "write a copy of the plane's contract, to start from")
    contract.add_argument(
        "folder", type=Path, nargs="?", default=Path("contract"), metavar="FOLDER",
        help="a folder that does not exist yet; default: %(default)s",
    )  # fmt: skip
    for each in (participant, event_type):
        each.add_argument("--description", default="", metavar="TEXT", help="one sentence for the catalogue")
        each.add_argument("--dry-run", action="store_true", help="check it and show it; write nothing")
        each.add_argument(
            "--contract", type=Path, default=None, metavar="FILE",
            help="the contract in YAML; default: EVENTPLANE_CONTRACT, or contract/event_plane.yaml in this "
            "folder or above it",
        )  # fmt: skip


def _own_contract() -> Path:
    """Return `chosen_contract`, as nobody edits the installed one. Raises `ScaffoldError`."""
    if found := chosen_contract():
        return found
    problem = f"there is no {PROJECT_CONTRACTS[0]} in this folder or above it"
    raise ScaffoldError(problem, "name one by --contract FILE, or start with `eventplane new contract`")


def _contract(options: argparse.Namespace) -> int:
    copied = copy_contract(options.folder)
    scaffold = Scaffold.of(copied)
    scaffold.added += ["the plane's own participants, event types and routes, with their schemas"]
    found = chosen_contract()
    # Without it commands in this folder take another one.
    options.contract = None if found and found.samefile(copied) else copied
    line = shell_line(options, "new", "participant", "NAME", "--kind", "cloud-service")
    return _finish(options, scaffold, [f"add a service: {line}"])


def _participant(options: argparse.Namespace) -> int:
    path = options.contract or _own_contract()
    kind = _KINDS[options.kind]
    scaffold = new_participant(
        path, options.name, kind,
        description=options.description, receives=options.receives, webhook=options.webhook,
    )  # fmt: skip
    return _finish(options, scaffold, list(_steps_of_participant(options, path, kind)))


def _steps_of_participant(options: argparse.Namespace, path: Path, kind: ParticipantKind) -> Iterator[str]:
    name = options.name
    new_type = partial(shell_line, options, "new", "event-type", "TYPE", "--sender")
    if not options.description:
        yield f"describe it in one sentence: participants.{name}.description in {path}"
    yield f"declare what it sends: {new_type(name, '--receiver', 'NAME')}"
    if not options.receives:
        yield f"lead events to it: a route to {name}.inbox, or {new_type('NAME', '--receiver', name)}"
    if options.webhook:
        yield f'give it its URL: webhook_urls.{name} = "https://..." in stacks/environments.toml'
    if kind is ParticipantKind.CLOUD_SERVICE:
        yield f"deploy it: {_deployment(options)}"
        address, use, package = f"sqs:{options.env}", "receive", "eventplane-client[aws]"
    else:
        yield f"publish the contract to the devices: {_publication(options)}"
        address = os.environ.get(BROKER) or "mqtt://127.0.0.1:1883"
        use, package = "send", "eventplane-client"
    if not options.webhook:
        yield f'{use}: connect("{address}", "{name}"), of {package}'


def _deployment(options: argparse.Namespace) -> str:
    """Return the command that deploys to the environment; the plane of `make up` has one of its own."""
    return "make publish" if options.env == LOCAL else f"make deploy ENV={options.env}"


def _publication(options: argparse.Namespace) -> str:
    return _deployment(options) if options.env == LOCAL else shell_line(options, "contract", "publish")


def _event_type(options: argparse.Namespace) -> int:
    path = options.contract or _own_contract()
    scaffold = new_event_type(
        path, options.type, options.sender,
        description=options.description, priority=options.priority,
        receivers=options.receiver, schema_id=options.schema_id,
    )  # fmt: skip
    steps = [
        f"describe the payload, with an example, in {path.parent / 'schemas' / each}"
        for each in scaffold.schemas
    ]
    if not options.description:
        steps.append(f"describe it in one sentence: event_types.{options.type}.description in {path}")
    received = receivers_of(scaffold.contract, options.type)
    if not received:
        steps.append("nobody receives it yet: add a route, for example by --receiver NAME")
    steps.append(f"check it: {shell_line(options, 'contract', 'check')}")
    steps.append(f"see who receives an event: {shell_line(options, 'contract', 'explain', 'EVENT.json')}")
    published = dict.fromkeys((_publication(options), _deployment(options)))
    steps.append(f"put it into force: {', or '.join(published)}")
    return _finish(options, scaffold, steps, received)


def _finish(
    options: argparse.Namespace, scaffold: Scaffold, steps: list[str], received: list[str] | None = None
) -> int:
    is_dry = getattr(options, "dry_run", False)
    if not is_dry:
        scaffold.write()
    files = [str(scaffold.path.parent / "schemas" / each) for each in scaffold.schemas]
    document = {
        "contract": str(scaffold.path),
        "version": scaffold.contract.version,
        "written": not is_dry,
        "added": scaffold.added,
        "files": files,
        **({} if received is None else {"receivers": received}),
        "warnings": list(scaffold.warnings),
        "next": steps,
    }
    lines = [f"{scaffold.path}, version {scaffold.contract.version}" + (" (not written)" if is_dry else "")]
    lines += [f"  added {each}" for each in scaffold.added]
    lines += [f"  added {each}" for each in files]
    if received:
        lines.append(f"  received by {', '.join(received)}")
    lines += [f"warning: {each}" for each in scaffold.warnings]
    lines += ["next:", *(f"  {number}. {each}" for number, each in enumerate(steps, 1))]
    present(options, document, "\n".join(lines))
    return DONE
