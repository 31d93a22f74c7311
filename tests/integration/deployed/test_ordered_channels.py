"""Channels that the contract calls ordered: FIFO queues at both ends, or numbers that readers sort by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest

from eventplane.envelope import Envelope, write_event
from eventplane.resource_names import resource_name
from eventplane.sqs_binding import to_message
from eventplane_client.dynamodb import DynamoDbFilter
from eventplane_client.dynamodb_table import TABLE
from eventplane_client.inbox import Inbox
from eventplane_client.outbox_order import OutboxOrder
from eventplane_client.sqs import SqsTransport
from local.cloud import CloudEndpoint
from tests.eventually import eventually
from tests.integration.grown import ROUND, VISIT, grown_contract
from tests.integration.inboxes import Inboxes

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


@pytest.mark.source("P17", "N3")
def test_each_source_arrives_in_its_order_and_once(
    emulator: CloudEndpoint, outputs: Mapping[str, str], inboxes: Inboxes
) -> None:
    outbox = outputs["NightWatchOutboxUrl"]
    assert outbox.endswith(".fifo")
    for number in range(ROUNDS):
        for source in SOURCES:
            send(emulator, outbox, night_round(source, number))
            send(emulator, outbox, night_round(source, number))  # a sender that got no answer

    assert eventually(lambda: len(inboxes.events("night-watch")) >= ROUNDS * len(SOURCES), SECONDS)
    by_source = defaultdict(list)
    for event in inboxes.events("night-watch"):
        by_source[event.source].append(int(event.id))
    assert by_source == {source: list(range(ROUNDS)) for source in SOURCES}


@pytest.mark.source("P17", "F3")
def test_readers_of_a_standard_inbox_get_what_a_service_numbered_in_order(
    emulator: CloudEndpoint, outputs: Mapping[str, str]
) -> None:
    """Sent in reverse, as a standard queue may deliver; the second reader goes on where the first stopped."""
    order = OutboxOrder(grown_contract(), "day-watch")
    visits = [
        order.numbered(write_event({"id": str(number), "source": "/watch", "type": VISIT}))
        for number in range(ROUNDS)
    ]
    sqs, dynamodb = emulator.client("sqs"), emulator.client("dynamodb")
    for visit in reversed(visits):
        sqs.send_message(QueueUrl=outputs["DayWatchOutboxUrl"], MessageBody=visit.json)
    found: list[str] = []
    for _ in range(2):
        transport = SqsTransport.find("day-watch", "local", sqs, max_receives=5)
        table = resource_name("local", TABLE)
        filter = DynamoDbFilter(dynamodb, table, "day-watch", lease=lambda: SECONDS)
        with Inbox("day-watch", transport, filter) as inbox:
            found += [inbox.get(SECONDS).id for _ in range(ROUNDS // 2)]
    assert found == [str(number) for number in range(ROUNDS)]
