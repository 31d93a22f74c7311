"""`eventplane restore TABLE --at TIME`: bring back what a table lost, from how it was at a moment.

DynamoDB restores into a new table; the plane's tables have fixed names. So what a table lacks is copied back
item by item, and the functions go on meanwhile. Nothing is deleted. Of a device that the registry has, only
its groups are brought back: quarantines and keys are as AWS IoT has them now.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from eventplane.contract.publication import CONTRACTS_TABLE
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.device_record import FLEET_TABLE, REGISTRY
from eventplane.downlink.table import TABLE as DESIRED_TABLE
from eventplane.errors import EventPlaneError
from eventplane.interest.table import INTEREST_TABLE
from eventplane.records import ATTEMPTS, NEW, REVISION, UNCOUNTED, Condition, Item, RecordError, Selection
from eventplane.resource_names import resource_name
from eventplane.values import is_timestamp, timestamp, timestamp_ms
from eventplane_aws.tables import WRITER, DynamoDbTables
from operations import system
from operations.cloud import enter, if_deployed
from operations.command import DONE, FAILED, present, say
from parts import PARTS

_TABLES: Final = (
    CONTRACTS_TABLE,
    DESIRED_TABLE,
    FLEET_TABLE,
    INTEREST_TABLE,
    SUBSCRIPTIONS_TABLE,
    *(table for part in PARTS.values() for table in part.tables),
)

_POLL_S: Final = 10.0
"""Seconds between two looks at a table that DynamoDB restores, which takes it minutes to hours."""

CHANGING: Final = "kept changing"
"""What is told of an item that others wrote each time."""


class RestoreTimeError(EventPlaneError):
    """DynamoDB has no state of `table` at the moment `at`."""

    table: str
    at: str
    message = (
        "{table} cannot be restored as it was at {at}; name a moment of the last 35 days, five minutes ago "
        "at the latest: aws dynamodb describe-continuous-backups --table-name {table}"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's words."""
    parser.add_argument("table", choices=_TABLES, metavar="TABLE", help=", ".join(_TABLES))
    parser.add_argument(
        "--at",
        type=_moment,
        required=True,
        metavar="TIME",
        help="the time of the state to restore, such as 2026-03-01T08:30:00Z",
    )
    parser.add_argument(
        "--over",
        action="store_true",
        help="also overwrite items that have changed since; default: only missing and unreadable ones",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be written")
    parser.set_defaults(run=_restore)


def _moment(text: str) -> datetime:
    if not is_timestamp(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-03-01T08:30:00Z")
    return datetime.fromtimestamp(timestamp_ms(text) // 1_000, UTC)


def _restore(options: argparse.Namespace) -> int:
    cloud = enter(options.env)
    source = resource_name(options.env, options.table)
    copy = f"{source}-at-{options.at:%Y%m%dT%H%M%SZ}"
    _make_copy(cloud.dynamodb, source, copy, options.at)
    described = cloud.dynamodb.describe_table(TableName=source)["Table"]
    key = [each["AttributeName"] for each in described["KeySchema"]]
    counts = Counter(_write_each(cloud.tables, options, source, copy, key))
    with if_deployed():  # or the answer to a first request was lost
        cloud.dynamodb.delete_table(TableName=copy)
    done = ", ".join(f"{counts[word]} {word}" for word in sorted(counts)) or "it had no items"
    present(options, {"table": options.table, **counts}, f"{options.table}: {done}")
    return FAILED if CHANGING in counts else DONE


def _make_copy(client: Any, source: str, copy: str, at: datetime) -> None:
    """Have DynamoDB make the table `copy`, unless an earlier run did. Raises `RestoreTimeError`."""
    said = False
    while (status := _status(client, copy)) != "ACTIVE":
        if not status:  # or no longer: an earlier run has had it deleted
            _begin_copy(client, source, copy, at)
            continue
        if not said:
            say(f"DynamoDB makes {copy}: minutes to hours; repeat the command if it is ended meanwhile")
            said = True
        system.sleep(_POLL_S)


def _begin_copy(client: Any, source: str, copy: str, at: datetime) -> None:
    is_there = client.exceptions.TableAlreadyExistsException, client.exceptions.TableInUseException
    try:
        with suppress(*is_there):
            client.restore_table_to_point_in_time(
                SourceTableName=source, TargetTableName=copy, RestoreDateTime=at
            )
    except client.exceptions.InvalidRestoreTimeException as error:
        raise RestoreTimeError(source, timestamp(at)) from error


def _status(client: Any, table: str) -> str:
    """Return the state of a table, '' where there is none."""
    described = {"TableStatus": ""}
    with if_deployed():
        described = client.describe_table(TableName=table)["Table"]
    return str(described["TableStatus"])


def _write_each(
    tables: DynamoDbTables, options: argparse.Namespace, source: str, copy: str, key: Sequence[str]
) -> Iterator[str]:
    """Write what `source` lacks of `copy`; yield what became of each item."""
    after: Item | None = None
    while True:
        page = tables.page(copy, Selection(after=after))
        for then in page.items:
            yield _write(tables, options, source, {name: then[name] for name in key}, then)
        if (after := page.after) is None:
            return


def _write(tables: DynamoDbTables, options: argparse.Namespace, table: str, key: Item, then: Item) -> str:
    for _ in range(ATTEMPTS):
        now = tables.get(table, key)
        wanted = _wanted(then, now, is_fleet=options.table == FLEET_TABLE, is_over=options.over)
        if now is not None and _content(wanted) == _content(now):
            return "as it is"
        if options.dry_run:
            return "to be written"
        before = NEW if now is None else int(now.get(REVISION, {}).get("N", UNCOUNTED))
        revision = {REVISION: {"N": str(tables.first() if now is None else max(before, 0) + 1)}}
        if tables.put(table, key, wanted | revision, Condition(before, next(iter(key)))):
            return "written"
    return CHANGING


def _wanted(then: Item, now: Item | None, *, is_fleet: bool, is_over: bool) -> Item:
    """Return what is to be where `now` is."""
    if now is None:
        return then
    if not is_fleet:
        return then if is_over else now
    try:
        device = REGISTRY.from_item(now)
    except RecordError:
        return then
    return REGISTRY.to_item(replace(device, groups=REGISTRY.from_item(then).groups)) if is_over else now


def _content(item: Item) -> Item:
    return {name: value for name, value in item.items() if name not in (REVISION, WRITER)}
