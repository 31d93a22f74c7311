"""Orders to end certificates of a device later, for `rotation`, whose queue they wait in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

EndLater = Callable[[str, Iterable[str]], object]
"""Ends certificates of a device that are among its `replaced` by then."""


def ender(sqs: Any, queue: str, delay_s: int) -> EndLater:
    """Return what has the rotation, whose `queue` it is, end certificates in `delay_s` seconds.

    It raises botocore's errors. `sqs` is a boto3 client.
    """

    def end_later(thing: str, certificates: Iterable[str]) -> None:
        body = json.dumps({"thing": thing, "retire": sorted(certificates)})
        sqs.send_message(QueueUrl=queue, MessageBody=body, DelaySeconds=delay_s)

    return end_later
