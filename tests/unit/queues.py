"""Queues in moto."""

from __future__ import annotations


def create_queue(name: str, **attributes: str) -> str:
    """Create a queue in moto itself, twenty times as fast as through a client of boto3; its URL."""
    from moto.core import DEFAULT_ACCOUNT_ID  # slow to load, and most unit tests need no AWS
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[DEFAULT_ACCOUNT_ID]["us-east-1"].create_queue(name, **attributes)
    return f"https://sqs.us-east-1.amazonaws.com/{DEFAULT_ACCOUNT_ID}/{queue.name}"
