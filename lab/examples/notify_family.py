"""A Lambda function: tell the relatives of each alarm by Amazon SNS, `notify_family.handle`.

Its event source mapping reads the inbox of `family-app` and needs `ReportBatchItemFailures`. TOPIC is the ARN
of the topic, EVENTPLANE_ENV the environment.
"""

import os
from functools import cache
from typing import Any

import boto3

from eventplane.envelope import Envelope
from eventplane_client.functions import handles_events


@cache
def sns() -> Any:
    """Return the client, made with the first event."""
    return boto3.client("sns")


def again(alarm: Envelope) -> bool:
    """Say whether an event that was in hand when Lambda killed the function is handled again: an alarm is."""
    return alarm.type.startswith("org.eventplane.alarm.")


@handles_events("family-app", os.environ["EVENTPLANE_ENV"], on_doubt=again)
def handle(event: Envelope) -> None:
    """Handle one event; an exception brings it back."""
    if event.type.startswith("org.eventplane.alarm."):
        text = f"{event.sender.device} raised an alarm at {event.attributes.get('time', 'an unknown time')}."
        sns().publish(TopicArn=os.environ["TOPIC"], Subject="Alarm", Message=text)
