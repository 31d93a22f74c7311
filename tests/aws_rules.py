"""Requests that have as much as a rule of AWS allows, or more: for the emulated cloud and for models."""

import json
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import ClientError

from eventplane_aws import rules
from eventplane_aws.rules import Rule
from tests.dynamodb import create_table

QUEUE: Final = "rules"
BUCKET: Final = "rules-bucket"
TABLE: Final = "rules-table"
FUNCTION: Final = "rules-function"
DEAD_LETTERS: Final = "arn:aws:sqs:us-east-1:000000000000:letters"

Case = tuple[str, str, dict[str, Any]]
"""A service, a method of its boto3 client, and the request."""


def _to_queue(method: str, **request: Any) -> Case:
    return "sqs", method, {"QueueUrl": QUEUE, **request}


def _entries(number: int, **entry: Any) -> list[dict[str, Any]]:
    return [{"Id": str(at), **entry} for at in range(number)]


def _attributes(number: int) -> dict[str, Any]:
    return {f"a{at}": {"DataType": "String", "StringValue": "x"} for at in range(number)}


def _halves(total: int) -> list[dict[str, Any]]:
    return [{"Id": "0", "MessageBody": "x" * 1_000}, {"Id": "1", "MessageBody": "x" * (total - 1_000)}]


def _queue(**attributes: Any) -> Case:
    return "sqs", "create_queue", {"QueueName": "another", "Attributes": attributes}


def _redrive(receives: int) -> str:
    return json.dumps({"deadLetterTargetArn": DEAD_LETTERS, "maxReceiveCount": receives})


def _item(partition: str = "p", sort: str = "s", **more: Any) -> dict[str, Any]:
    return {"p": {"S": partition}, "s": {"S": sort}, **more}


def _put(item: dict[str, Any]) -> Case:
    return "dynamodb", "put_item", {"TableName": TABLE, "Item": item}


def _publish(topic: str, payload: bytes = b"x") -> Case:
    return "iot-data", "publish", {"topic": topic, "qos": 1, "payload": payload}


def _invoke(size: int, kind: str = "RequestResponse") -> Case:
    payload = json.dumps("x" * (size - 2)).encode()
    return "lambda", "invoke", {"FunctionName": FUNCTION, "InvocationType": kind, "Payload": payload}


CASES: Final[dict[Rule, Callable[[int], Case]]] = {
    # An attribute has 9 bytes: its name, its type and its value.
    rules.SQS_MESSAGE: lambda n: _to_queue(
        "send_message", MessageBody="x" * (n - 9), MessageAttributes=_attributes(1)
    ),
    rules.SQS_BATCH_BYTES: lambda n: _to_queue("send_message_batch", Entries=_halves(n)),
    rules.SQS_BATCH: lambda n: _to_queue("send_message_batch", Entries=_entries(n, MessageBody="x")),
    rules.SQS_RECEIVE: lambda n: _to_queue("receive_message", MaxNumberOfMessages=n, VisibilityTimeout=0),
    rules.SQS_ATTRIBUTES: lambda n: _to_queue(
        "send_message", MessageBody="x", MessageAttributes=_attributes(n)
    ),
    rules.SQS_DELAY: lambda n: _to_queue("send_message", MessageBody="x", DelaySeconds=n),
    rules.SQS_WAIT: lambda n: _to_queue("receive_message", WaitTimeSeconds=n, VisibilityTimeout=0),
    rules.SQS_VISIBILITY: lambda n: _to_queue("receive_message", VisibilityTimeout=n),
    rules.SQS_RETENTION: lambda n: _queue(MessageRetentionPeriod=str(n)),
    rules.SQS_RECEIVES: lambda n: _queue(RedrivePolicy=_redrive(n)),
    rules.DYNAMODB_ITEM: lambda n: _put(_item(text={"S": "x" * (n - 8)})),
    rules.DYNAMODB_PARTITION_KEY: lambda n: _put(_item("x" * n)),
    rules.DYNAMODB_SORT_KEY: lambda n: _put(_item("p", "x" * n)),
    rules.DYNAMODB_GET: lambda n: (
        "dynamodb",
        "batch_get_item",
        {"RequestItems": {TABLE: {"Keys": [_item(str(at)) for at in range(n)]}}},
    ),
    rules.DYNAMODB_WRITE: lambda n: (
        "dynamodb",
        "batch_write_item",
        {"RequestItems": {TABLE: [{"PutRequest": {"Item": _item(str(at))}} for at in range(n)]}},
    ),
    rules.DYNAMODB_TRANSACT: lambda n: (
        "dynamodb",
        "transact_write_items",
        {"TransactItems": [{"Put": {"TableName": TABLE, "Item": _item(str(at))}} for at in range(n)]},
    ),
    rules.S3_KEY: lambda n: (
        "s3",
        "put_object",
        {"Bucket": BUCKET, "Key": "x/" + "x" * (n - 2), "Body": b""},
    ),
    rules.S3_DELETE: lambda n: (
        "s3",
        "delete_objects",
        {"Bucket": BUCKET, "Delete": {"Objects": [{"Key": str(at)} for at in range(n)]}},
    ),
    rules.IOT_MESSAGE: lambda n: _publish("a", bytes(n)),
    rules.IOT_TOPIC: lambda n: _publish("x" * n),
    rules.IOT_LEVELS: lambda n: _publish("x/" * n),
    rules.LAMBDA_PAYLOAD: _invoke,
    rules.LAMBDA_ASYNCHRONOUS: lambda n: _invoke(n, "Event"),
    rules.LOG_EVENTS: lambda n: (
        "logs",
        "put_log_events",
        {
            "logGroupName": "rules",
            "logStreamName": "rules",
            "logEvents": [
                {"timestamp": 1, "message": "x" * (n - 152)},
                {"timestamp": 1, "message": "x" * 100},
            ],
        },
    ),
}
"""What has so much of what a rule bounds, by the rule."""


def answer(client: Callable[[str], Any], case: Case) -> str:
    """Return the error code with which AWS refuses a request, '' if it takes it."""
    service, method, request = case
    try:
        getattr(client(service), method)(**request)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def make_resources(client: Callable[[str], Any]) -> None:
    """Create the queue, the table and the bucket of the cases."""
    client("sqs").create_queue(QueueName=QUEUE)
    client("sqs").create_queue(QueueName=DEAD_LETTERS.rpartition(":")[2])
    client("sqs").send_message(QueueUrl=QUEUE, MessageBody="waits")
    client("s3").create_bucket(Bucket=BUCKET)
    create_table(client("dynamodb"), TABLE, "p", "s")
