"""When a message that failed comes again: without it, after the whole visibility timeout of its queue."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.common.log import logger
from lambdas.common.queue import QueueMessage

MAX_SECONDS: Final = 43_200
"""Longest that SQS hides a message, counted from its reception (Amazon SQS quotas)."""


class Visibility:
    """Hides messages of the queue at `queue_url` through a boto3 SQS client."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def hide(self, message: QueueMessage, seconds: int) -> None:
        """Let `message` come again in `seconds`. Never raises: if it fails, the message comes later."""
        try:
            self._client.change_message_visibility(
                QueueUrl=self._queue_url,
                ReceiptHandle=message.receipt,
                VisibilityTimeout=min(seconds, MAX_SECONDS),
            )
        except (ClientError, BotoCoreError) as error:
            logger.warning("visibility could not be changed", message_id=message.id, error=str(error))
