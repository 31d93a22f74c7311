"""A channel that the contract calls ordered: a FIFO queue at both ends, and the router between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest

from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.sqs_binding import to_message
from local.cloud import CloudEndpoint
from tests.eventually import eventually
from tests.integration.deployed.grown import ROUND

SECONDS = 60.0
SOURCES = ("/watch/east", "/watch/west")
ROUNDS = 12


def send(cloud: CloudEndpoint, url: str, event: Envelope) -> None:
    message = to_message(event)
    cloud.client("sqs").send_message(
        QueueUrl=url,
        MessageBody=message.body,
        MessageGroupId=message.group,
        MessageDeduplicationId=message.deduplication,
    )


def night_round(source: str, number: int, **attributes: str) -> Envelope:
    return write_event({"id": str(number), "source": source, "type": ROUND, **attributes})


def read(cloud: CloudEndpoint, url: str, into: list[Envelope]) -> None:
    """Read and delete what is there."""
    sqs = cloud.client("sqs")
    for each in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        into.append(parse_event(each["Body"]))
        sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


@pytest.mark.source("P17", "N3")
def test_each_source_arrives_in_its_order_and_once(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    outbox, inbox = outputs["NightWatchOutboxUrl"], outputs["NightWatchInboxUrl"]
    assert outbox.endswith(".fifo")
    for number in range(ROUNDS):
        for source in SOURCES:
            send(emulator, outbox, night_round(source, number))
            send(emulator, outbox, night_round(source, number))  # a sender that got no answer

    arrived: list[Envelope] = []

    def is_complete() -> bool:
        read(emulator, inbox, arrived)
        return len(arrived) >= ROUNDS * len(SOURCES)

    assert eventually(is_complete, SECONDS)
    by_source = defaultdict(list)
    for event in arrived:
        by_source[event.source].append(int(event.id))
    assert by_source == {source: list(range(ROUNDS)) for source in SOURCES}
    read(emulator, inbox, arrived)
    assert len(arrived) == ROUNDS * len(SOURCES)
