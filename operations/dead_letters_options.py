"""The arguments of `python -m eventplane dead-letters`."""

from __future__ import annotations

import argparse

from operations.options import add_common, add_days


def dead_letters_parser() -> argparse.ArgumentParser:
    """Has `command`, `id`, `queue`, `filter`, `letters`, `archived`, `all`, `dry_run` and what is shared."""
    parser = argparse.ArgumentParser(
        prog="python -m eventplane dead-letters",
        description="What could not be delivered: dead-letter queues, dead-letter events, and the archive's.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong arguments, 3 nothing found or not all done.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    each = commands.add_parser("list", help="how many wait where, since when, and why")
    _add_places(each)
    each = commands.add_parser("show", help="each with its reason, what to do, and its original bytes")
    each.add_argument("id", nargs="?", metavar="ID", help="of a message, or of an event in it; default: all")
    _add_places(each)
    each = commands.add_parser("redrive", help="send them back to where they came from")
    each.add_argument("id", nargs="?", metavar="ID", help="of a message, or of an event in it")
    each.add_argument("--all", action="store_true", help="everything at the named places")
    each.add_argument("--dry-run", action="store_true", help="only say what would move")
    _add_places(each)
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        metavar="NAME",
        help="the dead-letter queue of this queue or channel (care-analytics.inbox, ingest), may be repeated",
    )
    parser.add_argument(
        "--filter", metavar="CESQL", help="only what passes: \"deadletterreason = 'payload_invalid'\""
    )
    parser.add_argument(
        "--letters",
        action="store_true",
        help="the dead-letter events in the inbox that the contract leads them to; a look costs each message "
        "there one of its receives",
    )
    parser.add_argument("--archived", action="store_true", help="the dead letters of the archive")
    add_days(parser)
