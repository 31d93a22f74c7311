"""What a run is billed for."""

from __future__ import annotations

import json

import pytest

from benchmarks.cost.meter import Meter


@pytest.mark.source("B8")
def test_every_call_that_routers_make_has_its_unit() -> None:
    with Meter("http://127.0.0.1:1") as meter:
        read = json.dumps({"TableName": "subscriptions", "ConsistentRead": True}).encode()
        meter._count("DynamoDB_20120810.Scan", read, b'{"Items": []}')
        meter._count("DynamoDB_20120810.GetItem", read, b"{}")
        meter._count("AmazonSQS.SendMessageBatch", b"x" * 65_537, b"{}")
        meter._count("AmazonSQS.ReceiveMessage", b"{}", b"{}")  # found nothing
        meter._count("PUT", b"x", b"")
        assert meter.take() == {"dynamodb_read": 2, "sqs_request": 2, "s3_put": 1}
        with pytest.raises(ValueError, match="DELETE has no price here"):
            meter._count("DELETE", b"", b"")
