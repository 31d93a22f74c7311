"""Find the rule of AWS that a request breaks, for the emulated cloud's front and for models of AWS.

It needs the core only: the emulator's own Python imports it.
"""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

from eventplane.errors import EventPlaneError
from eventplane_aws import rules
from eventplane_aws.rules import Rule

Request = Mapping[str, Any]
"""The members of a request, as boto3 takes them."""


SERIALIZATION: Final = "SerializationException"
"""AWS's code for a request whose JSON has members of other types than the operation's."""


class MalformedRequestError(EventPlaneError):
    """AWS answers a request for `operation` with `code` because of `problem`."""

    code: str
    operation: str
    problem: str
    message = "{operation}: {problem}; correct the request"


def message_bytes(message: Request) -> int:
    """Count the bytes of an SQS message: its body, and each attribute's name, type and value."""
    attributes = message.get("MessageAttributes") or {}
    texts = [message.get("MessageBody", ""), *attributes]
    for each in attributes.values():
        texts += [each.get("DataType", ""), each.get("StringValue", "")]
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts)


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the bytes of an item of DynamoDB: its names and values."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Mapping[str, Any]) -> int:
    """Count the bytes of one value of DynamoDB, about as AWS does."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return (len(content) + 1) // 2 + 1
        case "M":
            return 3 + item_bytes(content) + len(content)
        case "L":
            return 3 + sum(1 + value_bytes(each) for each in content)
        case "SS" | "NS" | "BS":
            return sum(value_bytes({kind[0]: each}) for each in content)
    return len(content) if kind == "B" else 1


def _own_topic(request: Request) -> str:
    """The topic without what Basic Ingest puts in front, which does not count."""
    topic: str = request["topic"]
    return topic.split("/", 3)[3] if topic.startswith("$aws/rules/") and topic.count("/") > 2 else topic


def _member(name: str) -> Callable[[Request], int]:
    return lambda request: 0 if request.get(name) is None else int(request[name])


def _count(name: str) -> Callable[[Request], int]:
    def count(request: Request) -> int:
        members = request.get(name) or ()
        # By name or in order: each is an object.
        return len([each.keys() for each in (members.values() if hasattr(members, "values") else members)])

    return count


def _retention_s(request: Request) -> int:
    return int(request.get("Attributes", {}).get("MessageRetentionPeriod", 0))


def _most_receives(request: Request) -> int:
    policy = request.get("Attributes", {}).get("RedrivePolicy") or "{}"
    return int(json.loads(policy).get("maxReceiveCount", 0))


def _key(request: Request) -> int:
    return len(request.get("Key", "").encode())


def _payload(request: Request) -> int:
    return len(request.get("Payload", b""))


_BATCH: Final = (rules.SQS_BATCH, _count("Entries"))
_KEY: Final = ((rules.S3_KEY, _key),)
_VISIBILITY: Final = (rules.SQS_VISIBILITY, _member("VisibilityTimeout"))
_TRANSACTION: Final = ((rules.DYNAMODB_TRANSACT, _count("TransactItems")),)
_QUEUE: Final = (
    (rules.SQS_RETENTION, _retention_s),
    (rules.SQS_RECEIVES, _most_receives),
)

MEASURES: Final[Mapping[str, Iterable[tuple[Rule, Callable[[Request], int]]]]] = {
    "sqs SendMessage": (
        (rules.SQS_MESSAGE, message_bytes),
        (rules.SQS_ATTRIBUTES, _count("MessageAttributes")),
        (rules.SQS_DELAY, _member("DelaySeconds")),
    ),
    "sqs SendMessageBatch": (
        _BATCH,
        (rules.SQS_BATCH_BYTES, lambda request: sum(map(message_bytes, request.get("Entries") or ()))),
    ),
    "sqs DeleteMessageBatch": (_BATCH,),
    "sqs ChangeMessageVisibilityBatch": (_BATCH,),
    "sqs ChangeMessageVisibility": (_VISIBILITY,),
    "sqs ReceiveMessage": (
        (rules.SQS_RECEIVE, _member("MaxNumberOfMessages")),
        (rules.SQS_WAIT, _member("WaitTimeSeconds")),
        _VISIBILITY,
    ),
    "sqs CreateQueue": _QUEUE,
    "sqs SetQueueAttributes": _QUEUE,
    "dynamodb BatchGetItem": (
        (
            rules.DYNAMODB_GET,
            lambda request: sum(len(each["Keys"]) for each in request["RequestItems"].values()),
        ),
    ),
    "dynamodb BatchWriteItem": (
        (rules.DYNAMODB_WRITE, lambda request: sum(map(len, request["RequestItems"].values()))),
    ),
    "dynamodb TransactGetItems": _TRANSACTION,
    "dynamodb TransactWriteItems": _TRANSACTION,
    "dynamodb PutItem": ((rules.DYNAMODB_ITEM, lambda request: item_bytes(request["Item"])),),
    "s3 PutObject": _KEY,
    "s3 GetObject": _KEY,
    "s3 HeadObject": _KEY,
    "s3 DeleteObject": _KEY,
    "s3 DeleteObjects": ((rules.S3_DELETE, lambda request: len(request["Delete"]["Objects"])),),
    "iot-data Publish": (
        (rules.IOT_MESSAGE, lambda request: len(request.get("payload", b""))),
        (rules.IOT_TOPIC, lambda request: len(_own_topic(request).encode())),
        (rules.IOT_LEVELS, lambda request: _own_topic(request).count("/")),
    ),
    "lambda Invoke": ((rules.LAMBDA_PAYLOAD, _payload),),
    "lambda Invoke Event": ((rules.LAMBDA_ASYNCHRONOUS, _payload),),
    "logs PutLogEvents": (
        (
            rules.LOG_EVENTS,
            lambda request: sum(26 + len(each["message"].encode()) for each in request["logEvents"]),
        ),
    ),
}
"""What counts in a request, by its service and operation."""


def broken_rule(service: str, operation: str, request: Request) -> Rule | None:
    """Return the rule that a request breaks; None if it keeps all. `operation` is AWS's: `SendMessage`.

    Raises `MalformedRequestError` for a request that cannot be measured.
    """
    if request.get("InvocationType") == "Event":
        operation += " Event"
    for rule, measure in MEASURES.get(f"{service} {operation}", ()):
        try:
            size = measure(request)
        except KeyError as error:
            raise MalformedRequestError("ValidationException", operation, f"{error} is missing") from error
        except Exception as error:  # members may be of any type
            raise MalformedRequestError(SERIALIZATION, operation, str(error)) from error
        if size > rule.most:
            return rule
    return None


def problem(rule: Rule) -> str:
    """Return the message of the answer to a request that breaks `rule`."""
    return f"{rule.name}: {rule.most:,} {rule.unit} at most ({rule.source})"


_CALLS: Final = re.compile(r"([\w-]+):(\d+)")


def calls_in_chain(trace: str) -> Counter[str]:
    """Count the calls of each function in a chain of messages, by the `trace` header of its last one."""
    _, _, lineage = trace.partition("Lineage=")
    return Counter({name: int(calls) for name, calls in _CALLS.findall(lineage)})


def with_call(trace: str, function: str) -> str:
    """Return the `trace` header of what `function` sends after a message with this one."""
    calls = calls_in_chain(trace) + Counter([function])
    return "Lineage=" + ",".join(f"{name}:{number}" for name, number in calls.items())


Handler = Callable[[str, str, Any, bytes, Any], Awaitable[Any]]


def within_rules(service: str, handler: Handler) -> Handler:
    """Return a handler of `service` that refuses, as AWS does, what is malformed or breaks a rule."""

    async def handle(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        try:
            rule = broken_rule(service, *_request(service, path, headers, body, query))
        except MalformedRequestError as error:
            return _refusal(service, error.code, str(error))
        if rule is None:
            return await handler(method, path, headers, body, query)
        return _refusal(service, rule.code, problem(rule))

    return handle


def _refusal(service: str, code: str, message: str) -> tuple[int, dict[str, str], bytes]:
    if service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        return 400, {"Content-Type": "application/xml"}, text.encode()
    kind = code.rpartition(".")[2]
    named = {"x-amzn-errortype": kind, "x-amzn-query-error": f"{code};Sender"}
    document = {"__type": kind, "message": message}
    return 400, {"Content-Type": "application/json", **named}, json.dumps(document).encode()


def _request(service: str, path: str, headers: Any, body: bytes, query: Any) -> tuple[str, dict[str, Any]]:
    """The operation and the members of a request that rules are about. Raises `MalformedRequestError`."""
    if target := headers.get("x-amz-target"):
        operation = target.rpartition(".")[2]
        try:
            members = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise MalformedRequestError(SERIALIZATION, operation, "the body is not JSON") from error
        if not isinstance(members, dict):
            raise MalformedRequestError(SERIALIZATION, operation, "the body is no JSON object")
        return operation, members
    if service == "s3":
        if "delete" in query:
            return "DeleteObjects", {"Delete": {"Objects": [None] * body.count(b"<Key>")}}
        return "PutObject", {"Key": "/".join(path.split("/")[2:])}
    if service == "lambda" and path.endswith("/invocations"):
        return "Invoke", {"Payload": body, "InvocationType": headers.get("x-amz-invocation-type")}
    if service == "iot-data" and path.startswith("/topics/"):
        return "Publish", {"topic": path.removeprefix("/topics/"), "payload": body}
    return "", {}
