"""The emulated cloud answers any request, and never fails at one that is malformed."""

import asyncio
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from lab.aws_requests import MEASURES, within_rules

NAMES = """Entries MessageBody MessageAttributes StringValue DelaySeconds VisibilityTimeout WaitTimeSeconds
    Attributes MaxNumberOfMessages RedrivePolicy MessageRetentionPeriod RequestItems Keys TransactItems Item
    logEvents message"""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("[]"),
    lambda each: (
        st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(NAMES.split()), each, max_size=3)
    ),
)


async def taken(*_: Any) -> str:
    return "taken"


@given(
    st.sampled_from([each.split() for each in MEASURES if each.split()[0] in ("sqs", "dynamodb", "logs")]),
    values.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=4),
)
@example(["sqs", "SendMessage"], b"{")
@example(["sqs", "SendMessage"], b"[" * 100_000)
@example(["sqs", "SendMessage"], b'{"MessageBody": 5}')
@example(["sqs", "ReceiveMessage"], b'{"VisibilityTimeout": Infinity}')
@example(["sqs", "DeleteMessageBatch"], b'{"Entries": "ab"}')
@example(["sqs", "SetQueueAttributes"], b'{"Attributes": {"RedrivePolicy": "{"}}')
@example(["dynamodb", "PutItem"], b'{"Item": {"p": {}}}')
@example(["dynamodb", "PutItem"], b"{}")
def test_a_malformed_request_is_answered_as_aws_does(named: list[str], body: bytes) -> None:
    service, operation = named
    headers = {"x-amz-target": f"Service.{operation}"}
    answer = asyncio.run(within_rules(service, taken)("POST", "/", headers, body, {}))
    if answer == "taken":
        assert isinstance(json.loads(body or b"{}"), dict)
    else:
        status, sent, text = answer
        code = json.loads(text)["__type"]
        assert (status, sent["x-amzn-errortype"]) == (400, code)
