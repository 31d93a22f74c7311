"""Filing an audit's report and sending its verdict, once for each audit, however many run at once."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from eventplane.auditor import VERDICTS, report_name, verdict_name
from eventplane.envelope import Envelope, parse_event
from eventplane.errors import EnvelopeError
from eventplane.sqs_binding import DATA_TYPE, to_message
from glue_jobs.common.objects import Objects
from glue_jobs.delivery_audit.chain import Chain, History, inventory_name
from glue_jobs.delivery_audit.errors import OutboxError
from glue_jobs.delivery_audit.verdict import Row, trend_row

MAX_WRITES: Final = 3
"""How often it is tried to put the tables in place. Ours."""

MAX_TREND: Final = 30
"""Most days in the trend. Ours: a month."""


def file_report(
    output: Objects,
    window: str,
    chain: Chain,
    report: Callable[[Chain], dict[str, Any]],
    write_tables: Callable[[Chain], None],
) -> dict[str, Any]:
    """Write inventory, tables and report of an audit beneath `output`, and return the report.

    The report is created under its revision and replaces none. If another audit of the window has filed that
    revision meanwhile, this one is the next: it follows that one's verdict, and its tables replace those.
    """
    while True:
        document = report(chain)
        output.write(inventory_name(window, chain.digest), gzip.compress(chain.filed, mtime=0))
        # First: whoever finds the report finds the tables that it is about.
        _put(partial(write_tables, chain))
        body = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
        if output.create(report_name(window, document["revision"]["number"]), body.encode()):
            filed: dict[str, Any] = json.loads(body)
            return filed
        chain = History(output, window).follow(chain.inventory, chain.named, chain.erased)


def _put(write_tables: Callable[[], None]) -> None:
    for left in reversed(range(MAX_WRITES)):
        try:
            write_tables()
        except (PySparkException, Py4JError):
            # Another audit of the window may be replacing the same folders.
            if not left:
                raise
        else:
            return


def send_verdicts(output: Objects, window: str, outbox: str | None) -> None:
    """Send the verdicts of all reports on `window` that have not been sent. Raises `OutboxError`.

    At least once, in the order of their revisions: what an attempt could not send, the next one sends too.
    The last one sent is then the last verdict, also without an `outbox`.
    """
    for verdict in History(output, window).unsent():
        if outbox is not None:
            tell(outbox, verdict)
        output.write(verdict_name(window), f"{verdict.json}\n".encode())


def trend(output: Objects, window: str) -> list[dict[str, Any]]:
    """Return what the last verdicts say of days before `window` (of all days for `all`), oldest first."""
    prefix, suffix = verdict_name("\n").split("\n")
    days = [each.name.removeprefix(prefix).removesuffix(suffix) for each in output.beneath(VERDICTS)]
    # Digits come before letters: no day is later than `all`.
    before = sorted(day for day in days if day < window)[1 - MAX_TREND :]
    return [trend_row(data) for day in before if (data := _verdict(output, day))]


def _verdict(output: Objects, window: str) -> Row | None:
    try:
        data: Row = parse_event(output.read(verdict_name(window)) or b"").data()
    except EnvelopeError:
        return None
    return data


def tell(queue_url: str, event: Envelope) -> None:
    """Send `event` to the queue at `queue_url`. Raises `OutboxError`."""
    # Whoever audits a copy on a laptop needs no AWS SDK.
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    message = to_message(event)
    hints = {name: {"DataType": DATA_TYPE, "StringValue": value} for name, value in message.hints.items()}
    try:
        boto3.client("sqs", region_name=_region(queue_url)).send_message(
            QueueUrl=queue_url, MessageBody=message.body, MessageAttributes=hints
        )
    except (ClientError, BotoCoreError) as error:
        raise OutboxError(queue_url, str(error)) from error


def _region(queue_url: str) -> str | None:
    """Return the region in a queue's URL (https://sqs.eu-central-1.amazonaws.com/...); None for another URL.

    Glue gives its jobs no region.
    """
    service, _, rest = (urlsplit(queue_url).hostname or "").partition(".")
    return rest.split(".")[0] if service == "sqs" and ".amazonaws." in rest else None
