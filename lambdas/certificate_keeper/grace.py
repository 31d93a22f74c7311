"""The time between a connection with a new certificate and the end of the one before."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any


class Grace:
    """A message to the keeper's own queue that comes after `seconds`, through a boto3 SQS client."""

    def __init__(self, client: Any, queue_url: str, seconds: int) -> None:
        self._client = client
        self._queue_url = queue_url
        self._seconds = seconds

    def begin(self, thing: str, certificates: Collection[str]) -> None:
        """Have `certificates` of `thing` retired later. Raises botocore's errors."""
        body = json.dumps({"thing": thing, "retire": sorted(certificates)})
        self._client.send_message(QueueUrl=self._queue_url, MessageBody=body, DelaySeconds=self._seconds)
