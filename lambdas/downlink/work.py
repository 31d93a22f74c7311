"""Work for later: messages to the downlink's own queue."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from eventplane.downlink.resets import fleet_reset
from lambdas.common.log import logger

MAX_DELAY_S: Final = 900
"""Longest that SQS holds back a message (Amazon SQS quotas)."""

PACE_S: Final = 1
"""Between two pages of what goes out to one device, seconds."""

PAGE: Final = 25
"""Events of one such page. Ours: a quarter of what IoT Core gives a connection in a second; the device has to
commit each."""


class WorkQueue:
    """The queue at `url`, through a boto3 SQS client."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def check(self, thing: str, sk: str, delay_ms: int) -> None:
        """Have one item looked at. Never raises: what nobody checks, the reconciler finds by its time."""
        delay_s = min(math.ceil(max(delay_ms, 0) / 1_000), MAX_DELAY_S)
        try:
            self._send({"check": {"thing": thing, "sk": sk}}, delay_s)
        except (ClientError, BotoCoreError) as error:
            logger.warning("no check; the reconciler will look", device=thing, sk=sk, error=str(error))

    def resend(self, thing: str, since_ms: int, position: dict[str, Any]) -> None:
        """Go on with what waits for a device that subscribed. Raises botocore's errors."""
        self._send({"resend": {"thing": thing, "since_ms": since_ms, "position": position}}, PACE_S)

    def forget(self, thing: str, epoch: str, after: str | None) -> None:
        """Go on with a device that began a new life. Raises botocore's errors."""
        self._send({"forget": {"thing": thing, "epoch": epoch, "after": after}}, PACE_S if after else 0)

    def reset(self, key: str, number: int, after: str | None) -> None:
        """Go on with a reset of a key's versions for all devices. Raises botocore's errors."""
        self._send(fleet_reset(key, number=number, after=after), PACE_S)

    def _send(self, work: dict[str, Any], delay_s: int) -> None:
        body = json.dumps(work, ensure_ascii=False, separators=(",", ":"))
        self._client.send_message(QueueUrl=self._url, MessageBody=body, DelaySeconds=delay_s)
