"""`eventplane desired VERB`: the desired state of devices, how far it has come, and resets of keys."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from eventplane.downlink.desired import Desired
from eventplane.downlink.table import WORK_QUEUE, fleet_reset, one_reset
from eventplane.downlink.wire import ALL, is_key
from eventplane.records import Records
from eventplane.resource_names import queue_name
from operations import text
from operations.cloud import enter
from operations.command import DONE, add_verbs, present, present_rows
from operations.desired import desired_items, under

_LISTED: Final = ("key", "kind", "desired", "acknowledged", "state", "attempts", "due")
"""What the table of a device's keys shows; --json has all."""

_FLEET: Final = ("kind", "reset", "desired", "acknowledged", "state")
"""What devices are counted by."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_verbs(parser)
    listing = verb("list", _list, "list everything that is desired of a device")
    listing.add_argument("thing", type=_thing, metavar="THING")
    showing = verb("show", _show, "show what is desired under a key; without --device, of how many devices")
    showing.add_argument("key", type=_key, metavar="KEY", help="kind/namespace/name")
    showing.add_argument("--device", metavar="THING", help="one device, in detail")
    resetting = verb(
        "reset",
        _reset,
        "begin the versions of a key anew, although devices hold higher ones: versions from 1 on are newer "
        "then. What devices have under the key stays until the next event, and the key belongs to no sender "
        "until then",
    )
    resetting.add_argument("key", type=_key, metavar="KEY", help="kind/namespace/name")
    whom = resetting.add_mutually_exclusive_group(required=True)
    whom.add_argument("--device", type=_thing, metavar="THING", help="one device")
    whom.add_argument("--all", action="store_true", help="every device with a desired state")


def _key(text: str) -> str:
    if not is_key(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no key; write kind/namespace/name")
    return text


def _thing(text: str) -> str:
    if text == ALL:
        raise argparse.ArgumentTypeError("name one device")
    return text


def _list(options: argparse.Namespace) -> int:
    return _print(
        options,
        [_document(each) for each in _items(options).of(options.thing)],
        _LISTED,
        f"nothing was ever desired of {options.thing}; check the spelling and the environment",
    )


def _show(options: argparse.Namespace) -> int:
    items = _items(options)
    if options.device:
        documents = [_document(each) for each in items.of(options.device) if each.key == options.key]
    else:
        found = map(_document, under(items, options.key))
        counts = Counter(tuple(each[name] for name in _FLEET) for each in found)
        documents = [
            {**dict(zip(_FLEET, values, strict=True)), "devices": count}
            for values, count in counts.most_common()
        ]
    columns = [name for name in (documents[0] if documents else []) if name != "key"]
    nothing = f"nothing was ever desired under {options.key}; check the spelling and the environment"
    return _print(options, documents, columns, nothing)


def _print(
    options: argparse.Namespace, documents: list[dict[str, Any]], columns: Sequence[str], nothing: str
) -> int:
    rows = [[each[name] for name in columns] for each in documents]
    return present_rows(options, documents, [name.upper() for name in columns], rows, nothing)


def _reset(options: argparse.Namespace) -> int:
    order = one_reset(options.key, options.device) if options.device else fleet_reset(options.key)
    sqs = enter(options.env).sqs
    url = sqs.get_queue_url(QueueName=queue_name(options.env, WORK_QUEUE))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(order))
    whom = options.device or "all devices"
    done = f"the versions of {options.key} begin anew for {whom}; `desired show {options.key}` shows for whom"
    present(options, {"key": options.key, "device": options.device}, done)
    return DONE


def _items(options: argparse.Namespace) -> Records[Desired]:
    return desired_items(enter(options.env), options.env)


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
        "reset": text.moment(item.reset) if item.reset else None,
        "owner": item.owner or None,
        "sender": message.sender if message else None,
        "source": message.source if message else None,
        "id": message.id if message else None,
    }
