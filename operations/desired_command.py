"""`python -m eventplane desired THING`: what a device shall have, and how far that has come."""

from __future__ import annotations

import argparse
from typing import Any

from eventplane.downlink.addressing import ALL
from eventplane.downlink.desired import Desired
from eventplane.downlink.table import TABLE
from eventplane.resource_names import resource_name
from operations import text
from operations.cloud import enter
from operations.command import DONE, INCOMPLETE, answer, answer_json, run, say
from operations.desired import DesiredItems
from operations.options import add_environment, add_json


def main(arguments: list[str]) -> int:
    """The exit status; see `operations.command`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.thing == ALL:
        parser.error("name one device")
    return run(lambda: _desired(options))


def _desired(options: argparse.Namespace) -> int:
    items = DesiredItems(enter().dynamodb, resource_name(options.env, TABLE))
    found = list(items.of(options.thing))
    if options.json:
        answer_json([_document(each) for each in found])
    elif found:
        head = ["key", "kind", "desired", "acknowledged", "state", "attempts", "looked at again"]
        answer(text.table(head, [_row(each) for each in found]))
    else:
        say(f"nothing was ever desired of {options.thing}; see its spelling and the environment")
    return DONE if found else INCOMPLETE


def _row(item: Desired) -> list[str]:
    return ["-" if value is None else str(value) for value in _document(item).values()]


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eventplane desired", description=__doc__)
    parser.add_argument("thing")
    add_environment(parser)
    add_json(parser)
    return parser
