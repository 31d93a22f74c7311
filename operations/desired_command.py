"""`python -m eventplane desired`: what devices shall have, how far that has come, and resets of keys."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any, Final

from eventplane.downlink.desired import Desired
from eventplane.downlink.table import TABLE, WORK_QUEUE, fleet_reset, one_reset
from eventplane.downlink.wire import ALL, is_key
from eventplane.resource_names import queue_name, resource_name
from operations import text
from operations.cloud import enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run, say
from operations.desired import DesiredItems
from operations.options import add_environment, add_json

_FLEET: Final = ("kind", "reset", "desired", "acknowledged", "state")
"""What devices are counted by."""


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status, see `operations.command`."""
    commands = {"show": _show_arguments, "reset": _reset_arguments}
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    parser = _parser(epilog="See also: desired show KEY, desired reset KEY (each has --help).")
    parser.add_argument("thing", metavar="THING")
    options = parser.parse_args(arguments)
    if options.thing == ALL:
        parser.error("name one device")
    return run(lambda: _device(options))


def _device(options: argparse.Namespace) -> int:
    found = list(_items(options).of(options.thing))
    if options.json:
        answer_json([_document(each) for each in found])
    elif found:
        head = ["key", "kind", "desired", "acknowledged", "state", "attempts", "looked at again"]
        answer(text.table(head, [_row(each) for each in found]))
    else:
        say(f"nothing was ever desired of {options.thing}; see its spelling and the environment")
    return DONE if found else INCOMPLETE


def _show_arguments(arguments: list[str]) -> int:
    parser = _parser("show", "Print what devices shall have under a key; without --device, how many of them.")
    _add_key(parser)
    parser.add_argument("--device", metavar="THING", help="one device and all that is known of the key there")
    options = _parsed(parser, arguments)
    return run(lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    items = _items(options)
    if options.device:
        documents = [_whole(each) for each in items.of(options.device) if each.key == options.key]
    else:
        wholes = (_whole(each) for each in items.under(options.key))
        counts = Counter(tuple(each[name] for name in _FLEET) for each in wholes)
        documents = [
            {**dict(zip(_FLEET, values, strict=True)), "devices": count}
            for values, count in counts.most_common()
        ]
    if options.json:
        answer_json(documents)
    elif documents:
        head = list(documents[0])
        answer(text.table(head, [[_cell(each[name]) for name in head] for each in documents]))
    else:
        say(f"nothing was ever desired under {options.key}; see its spelling and the environment")
    return DONE if documents else INCOMPLETE


def _reset_arguments(arguments: list[str]) -> int:
    parser = _parser(
        "reset",
        "Begin the versions of a state's key anew, although devices hold higher ones: versions from 1 on are "
        "newer then. What devices have under the key stays until the next event, and the key belongs to no "
        "sender until then.",
    )
    _add_key(parser)
    whom = parser.add_mutually_exclusive_group(required=True)
    whom.add_argument("--device", metavar="THING", help="one device")
    whom.add_argument("--all", action="store_true", help="every device that something was desired of")
    options = _parsed(parser, arguments)
    if options.device == ALL:
        parser.error("name one device, or say --all")
    return run(lambda: _reset(options))


def _reset(options: argparse.Namespace) -> int:
    order = one_reset(options.key, options.device) if options.device else fleet_reset(options.key)
    sqs = enter().sqs
    url = sqs.get_queue_url(QueueName=queue_name(options.env, WORK_QUEUE))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(order))
    whom = options.device or "all devices"
    if options.json:
        answer_json({"key": options.key, "device": options.device})
    else:
        answer(
            f"the versions of {options.key} begin anew for {whom}; `desired show {options.key}` says for whom"
        )
    return DONE


def _items(options: argparse.Namespace) -> DesiredItems:
    return DesiredItems(enter().dynamodb, resource_name(options.env, TABLE))


def _row(item: Desired) -> list[str]:
    return [_cell(value) for value in _document(item).values()]


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _document(item: Desired) -> dict[str, Any]:
    message = item.message
    desired = None if message is None else f"{message.version}{' (deleted)' if message.is_deleted else ''}"
    return {
        "key": item.key,
        "kind": item.kind.value,
        # Of commands the one whose turn it is, and how many wait behind it.
        "desired": f"{desired} +{len(item.waiting)}" if item.waiting else desired,
        "acknowledged": item.acknowledged_version,
        "state": item.state.value,
        "attempts": item.attempts,
        "due": None if item.due_at_ms is None else text.moment(item.due_at_ms),
    }


def _whole(item: Desired) -> dict[str, Any]:
    """With the key's owner and reset, and who sent what is desired."""
    document = _document(item)
    del document["key"]
    return {
        **document,
        "reset": text.moment(item.reset) if item.reset else None,
        "owner": item.owner or None,
        "sender": item.message.sender if item.message else None,
        "source": item.message.source if item.message else None,
        "id": item.message.id if item.message else None,
    }


def _parser(
    name: str = "", description: str | None = __doc__, epilog: str | None = None
) -> argparse.ArgumentParser:
    prog = f"python -m eventplane desired {name}".rstrip()
    parser = argparse.ArgumentParser(prog=prog, description=description, epilog=epilog)
    add_environment(parser)
    add_json(parser)
    return parser


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="kind/namespace/name")


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if not is_key(options.key):
        parser.error(f"{options.key!r} is no key: kind/namespace/name")
    return options
