"""The malformed messages: each is refused for the reason that the demo expects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from edge.decision import Decider, SequenceNumber
from edge.interest import Interest
from edge.numbering import RecentKeys
from eventplane.batch import unpack
from eventplane.contract import Contract
from eventplane.envelope import Envelope
from eventplane.errors import EnvelopeError
from eventplane.limits import MAX_PAYLOAD_BYTES
from lambdas.router.payload import PayloadCheck
from local.poison import SCHEMAS, CloudPayload, Poison, cloud_payloads, poison
from local.poison import TYPE as READING

SOURCE = "/homes/home-01/health-service"
KINDS = 11


@pytest.mark.parametrize(
    "message", [poison(number, SOURCE) for number in range(KINDS)], ids=lambda message: message.kind
)
def test_the_device_refuses_each_kind_for_its_reason(message: Poison, contract: Contract) -> None:
    intake = Decider(contract, "home-01", "epoch", lambda: datetime.now(UTC), RecentKeys(1), Interest())

    verdict = intake.accept(message.payload, contract.channel("health-service.outbox"), SequenceNumber(1, 0))

    assert verdict.refused == message.reason
    assert verdict.arrival is not None


def test_no_two_messages_are_alike() -> None:
    messages = [poison(number, source) for source in (SOURCE, "/homes/h/s") for number in range(5 * KINDS)]

    assert len({each.payload for each in messages}) == len(messages)
    assert len({each.kind for each in messages}) == KINDS


@pytest.mark.parametrize("sent", cloud_payloads(SOURCE), ids=lambda sent: sent.kind)
def test_a_payload_for_the_cloud_holds_what_it_says(sent: CloudPayload, contract: Contract) -> None:
    good: list[Envelope] = []
    check = PayloadCheck(contract).of_message()
    bad: list[tuple[str, bytes]] = []
    try:
        for item in unpack(sent.payload):
            if isinstance(item, Envelope):
                if refusal := check(item):
                    bad.append((refusal.reason, item.json.encode()))
                else:
                    good.append(item)
            else:
                bad.append((item[1].reason, item[0]))
    except EnvelopeError as error:
        bad.append((error.reason, sent.payload))

    assert tuple(good) == sent.good
    assert bad == [(each.reason, each.payload) for each in sent.poison]
    assert len(sent.payload) <= MAX_PAYLOAD_BYTES


@pytest.mark.source("P11")
def test_both_versions_and_a_payload_that_fits_neither_are_sent(contract: Contract) -> None:
    payloads = cloud_payloads(SOURCE)
    versions = {each.attributes.get("dataschema") for sent in payloads for each in sent.good}
    assert versions == {None, *SCHEMAS} == {None, *contract.event_types[READING].schemas}
    assert [each.reason for sent in payloads for each in sent.poison].count("payload_invalid") == 1
