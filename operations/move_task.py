"""SQS's own way to empty a dead-letter queue into its source: it goes on whatever becomes of us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from operations.errors import MoveFailedError, MoveUnseenError

_UNAVAILABLE: Final = frozenset(
    {
        "InvalidAction",
        "UnknownOperationException",
        "UnsupportedOperation",
        "AWS.SimpleQueueService.UnsupportedOperation",
        "AccessDenied",
        "AccessDeniedException",
    }
)
_POLL_S: Final = 2.0
_PATIENCE: Final = 30
"""Looks that may find no move at all: SQS lists one that it took a little later."""


def move_all(
    sqs: Any,
    queue: str,
    arn: str,
    *,
    progress: Callable[[int, int | None], None],
    sleep: Callable[[float], None],
) -> int | None:
    """Have SQS move every message of the queue `arn` back; how many it moved, about, or None if it does not
    offer that. `progress` gets (moved, of about all). Raises `MoveFailedError`, `MoveUnseenError`."""
    try:
        handle = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _UNAVAILABLE:
            return None
        raise
    unlisted = 0
    while True:
        try:
            tasks = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10).get("Results", [])
        except (ClientError, BotoCoreError) as error:
            raise MoveUnseenError(queue, str(error)) from error
        unlisted = 0 if tasks else unlisted + 1
        if unlisted > _PATIENCE:
            raise MoveUnseenError(queue, "SQS does not list the move")
        # Only a running task is listed with its handle; the newest is listed first.
        task = next((each for each in tasks if each.get("TaskHandle") == handle), tasks[0] if tasks else {})
        moved = int(task.get("ApproximateNumberOfMessagesMoved", 0))
        status = task.get("Status")
        if status == "COMPLETED":
            return moved
        if status in ("FAILED", "CANCELLED"):
            raise MoveFailedError(queue, str(task.get("FailureReason", status)))
        progress(moved, task.get("ApproximateNumberOfMessagesToMove"))
        sleep(_POLL_S)
