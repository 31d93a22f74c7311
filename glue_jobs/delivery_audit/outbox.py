"""Telling the verdict: the event goes into the outbox of the participant that the audit is."""

from __future__ import annotations

from urllib.parse import urlsplit

from eventplane.envelope import Envelope
from eventplane.sqs_binding import DATA_TYPE, to_message
from glue_jobs.delivery_audit.errors import OutboxError


def tell(queue_url: str, event: Envelope) -> None:
    """Send `event` to the queue at `queue_url`. Raises `OutboxError`.

    At least once: a job that fails after it sends the verdict of its next attempt, a revision of this one.
    """
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
    """The region in a queue's URL (`https://sqs.eu-central-1.amazonaws.com/...`); None for another's URL.

    Glue tells its jobs no region.
    """
    service, _, rest = (urlsplit(queue_url).hostname or "").partition(".")
    return rest.split(".")[0] if service == "sqs" and ".amazonaws." in rest else None
