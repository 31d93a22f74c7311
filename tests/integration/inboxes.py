"""Inboxes of the shared plane: each test looks for its own events, whatever others left there."""

from __future__ import annotations

from eventplane.sqs_binding import split
from local.cloud import CloudEndpoint
from tests.eventually import eventually


def arrives(cloud: CloudEndpoint, url: str, body: str, within_s: float) -> bool:
    """Whether a message with `body` comes to the queue at `url`; what is read on the way is taken away."""
    sqs = cloud.client("sqs")

    def found() -> bool:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        bodies = []
        for message in messages.get("Messages", []):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            bodies += split(message["Body"])
        return body in bodies

    return eventually(found, within_s)
