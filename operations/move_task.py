"""SQS's own way to empty a dead-letter queue into its source: it goes on whatever becomes of us."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from operations.cloud import was_repeated
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
_REPEATED_MS: Final = 60_000
"""Longest time between a start whose answer was lost and its repeat, milliseconds. Ours: several attempts of
`operations.cloud`."""

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
        started = sqs.start_message_move_task(SourceArn=arn)
    except ClientError as error:
        started, code = error.response, str(error.response.get("Error", {}).get("Code"))
        if code not in _UNAVAILABLE:
            raise
        # SQS refuses a second task: the one that runs does the same, or is ours and its answer was lost.
        refuses = code.endswith("UnsupportedOperation")
        if not (refuses and (was_repeated(started) or _is_running(sqs, arn))):
            return None
    handle = started.get("TaskHandle")
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
        at = next((at for at, each in enumerate(tasks) if handle and each.get("TaskHandle") == handle), 0)
        task, *before = tasks[at : at + 2] or [{}]
        # The first of two starts may have ended before the second.
        ours = [task, *(each for each in before if was_repeated(started) and _is_recent(each, task))]
        moved = sum(int(each.get("ApproximateNumberOfMessagesMoved", 0)) for each in ours)
        status = task.get("Status")
        if status == "COMPLETED":
            return moved
        if status in ("FAILED", "CANCELLED"):
            raise MoveFailedError(queue, str(task.get("FailureReason", status)))
        progress(moved, task.get("ApproximateNumberOfMessagesToMove"))
        sleep(_POLL_S)


def _is_running(sqs: Any, arn: str) -> bool:
    try:
        tasks = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=1).get("Results", [])
    except (ClientError, BotoCoreError):
        return False
    return any(each.get("Status") == "RUNNING" for each in tasks)


def _is_recent(before: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    return int(task.get("StartedTimestamp", 0)) - int(before.get("StartedTimestamp", 0)) < _REPEATED_MS
