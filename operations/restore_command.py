"""`eventplane restore TABLE --at TIME`: bring back what a table lost, from how it was at a moment.

DynamoDB restores into a new table; the plane's tables have fixed names. So what a table lacks is copied back
item by item, and the functions go on meanwhile. Nothing is deleted. Of a device that the registry has, only
its groups are brought back: quarantines and keys are as AWS IoT has them now.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from eventplane.contract.publication import CONTRACTS_TABLE
from eventplane.contract.subscription_table import SUBSCRIPTIONS_TABLE
from eventplane.downlink.table import TABLE as DESIRED_TABLE
from eventplane.endpoints import ENDPOINTS_TABLE
from eventplane.errors import EventPlaneError
from eventplane.fleet import FLEET_TABLE, REGISTRY
from eventplane.interest.table import INTEREST_TABLE
from eventplane.presence import PRESENCE_TABLE
from eventplane.records import ATTEMPTS, NEW, REVISION, UNCOUNTED, Condition, Item, RecordError, Selection
from eventplane.resource_names import resource_name
from eventplane.values import is_timestamp, timestamp, timestamp_ms
from eventplane_aws.tables import WRITER
from operations import system
from operations.cloud import Cloud, enter, if_deployed
from operations.command import DONE, FAILED, present, say

_TABLES: Final = (
    CONTRACTS_TABLE,
    DESIRED_TABLE,
    ENDPOINTS_TABLE,
    FLEET_TABLE,
    INTEREST_TABLE,
    PRESENCE_TABLE,
    SUBSCRIPTIONS_TABLE,
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
    parser.add_argument("--at", type=_moment, required=True, metavar="TIME", help="2026-03-01T08:30:00Z")
    parser.add_argument(
        "--over",
        action="store_true",
        help="also write what has changed since; without it only what is gone or cannot be read",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    parser.set_defaults(run=_restore)


def _moment(text: str) -> datetime:
    if not is_timestamp(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 2026-03-01T08:30:00Z")
    return datetime.fromtimestamp(timestamp_ms(text) // 1_000, UTC)


def _restore(options: argparse.Namespace) -> int:
    restore = Restore(enter(options.env), options.env, options.table, options.at)
    counts = restore.run(is_over=options.over, is_dry=options.dry_run)
    done = ", ".join(f"{counts[word]} {word}" for word in sorted(counts)) or "it had no items"
    present(options, {"table": options.table, **counts}, f"{options.table}: {done}")
    return FAILED if CHANGING in counts else DONE


class Restore:
    """Brings back what `table` of `environment` lacks of how it was `at` a moment, from a `copy` of then."""

    def __init__(self, cloud: Cloud, environment: str, table: str, at: datetime) -> None:
        self._cloud = cloud
        self._is_fleet = table == FLEET_TABLE
        self._table = resource_name(environment, table)
        self._at = at
        self.copy = f"{self._table}-at-{at:%Y%m%dT%H%M%SZ}"

    def run(self, *, is_over: bool = False, is_dry: bool = False) -> Counter[str]:
        """Return how many items had each end. Raises `RestoreTimeError`, botocore's errors."""
        self._make_copy()
        described = self._cloud.dynamodb.describe_table(TableName=self._table)["Table"]
        key = [each["AttributeName"] for each in described["KeySchema"]]
        counts = Counter(
            self._write({name: then[name] for name in key}, then, is_over=is_over, is_dry=is_dry)
            for then in self._then()
        )
        self.remove_copy()
        return counts

    def remove_copy(self) -> None:
        """Delete the copy, if it is there."""
        with if_deployed():  # or the answer to a first request was lost
            self._cloud.dynamodb.delete_table(TableName=self.copy)

    def _make_copy(self) -> None:
        """Have DynamoDB make the copy, unless an earlier run did. Raises `RestoreTimeError`."""
        client = self._cloud.dynamodb
        is_there = client.exceptions.TableAlreadyExistsException, client.exceptions.TableInUseException
        try:
            with suppress(*is_there):
                client.restore_table_to_point_in_time(
                    SourceTableName=self._table, TargetTableName=self.copy, RestoreDateTime=self._at
                )
        except client.exceptions.InvalidRestoreTimeException as error:
            raise RestoreTimeError(self._table, timestamp(self._at)) from error
        said = False
        while client.describe_table(TableName=self.copy)["Table"]["TableStatus"] != "ACTIVE":
            if not said:
                say(
                    f"DynamoDB makes {self.copy}: minutes to hours; "
                    "repeat the command if it is ended meanwhile"
                )
                said = True
            system.sleep(_POLL_S)

    def _then(self) -> Iterator[Item]:
        after: Item | None = None
        while True:
            page = self._cloud.tables.page(self.copy, Selection(after=after))
            yield from page.items
            if (after := page.after) is None:
                return

    def _write(self, key: Item, then: Item, *, is_over: bool, is_dry: bool) -> str:
        """Write what is lacking of an item of `then`; return what became of it."""
        tables = self._cloud.tables
        for _ in range(ATTEMPTS):
            now = tables.get(self._table, key)
            wanted = _wanted(then, now, is_fleet=self._is_fleet, is_over=is_over)
            if now is not None and _content(wanted) == _content(now):
                return "as it is"
            if is_dry:
                return "to be written"
            before = NEW if now is None else int(now.get(REVISION, {}).get("N", UNCOUNTED))
            revision = {REVISION: {"N": str(tables.first() if now is None else max(before, 0) + 1)}}
            if tables.put(self._table, key, wanted | revision, Condition(before, next(iter(key)))):
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
