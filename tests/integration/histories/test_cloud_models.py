"""The simulator's SQS, S3 and DynamoDB do what the emulated cloud does: the same scenarios over both."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from eventplane.downlink import table as downlink_table
from eventplane.records import NEW, REVISION, UNCOUNTED, Condition, Item, Selection, to_attribute
from eventplane_aws.tables import DynamoDbTables
from lab.cloud import CloudEndpoint
from lab.histories.cloud import CloudModel
from lab.histories.engine import Engine
from lab.histories.wires import CurrentFaults
from tests.dynamodb import create_desired_table
from tests.eventually import eventually
from tests.plane import shipped_contract

RECEIVES: Final = 3
"""Receives before the dead-letter queue."""

LONG_S: Final = 3_600
"""A visibility timeout that does not end within a scenario."""

Passes = Callable[[Callable[[], bool]], None]
"""Lets a second pass, or waits until something is true that is so by then."""


def of_sqs(seed: int, sqs: Any, passes: Passes) -> list[str]:
    """Return what a sender and a reader of a queue observe."""
    return _Queue(seed, sqs, passes).observed


class _Queue:
    def __init__(self, seed: int, sqs: Any, passes: Passes) -> None:
        self.observed: list[str] = []
        self._random = random = Random(seed)
        self._sqs, self._passes = sqs, passes
        self._is_fifo = bool(seed % 2)
        suffix, kind = (".fifo", {"FifoQueue": "true"}) if self._is_fifo else ("", {})
        self._dead = sqs.create_queue(QueueName=f"model-{seed}-dlq{suffix}", Attributes=kind)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=self._dead, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVES})
        attributes = {"RedrivePolicy": policy, "VisibilityTimeout": str(LONG_S), **kind}
        self._url = sqs.create_queue(QueueName=f"model-{seed}{suffix}", Attributes=attributes)["QueueUrl"]
        self._held: dict[str, str] = {}
        for number in range(16):
            step = random.choice(
                (*4 * ("send", "receive"), "send_batch", "delete", "delete", "show", "expire")
            )
            self.observed.append(step)
            getattr(self, f"_{step}")(number)
            self.observed.append(f"  {self._counts(self._url)} dead {self._counts(self._dead)}")
        self.observed.append(f"dead: {self._bodies(self._dead, LONG_S)}")

    def _message(self, body: str) -> dict[str, Any]:
        random, message = self._random, {"MessageBody": body}
        if self._is_fifo:
            copies = random.choice((body, body, f"copy {random.choice('12')}"))
            message |= {"MessageGroupId": random.choice("xyz"), "MessageDeduplicationId": copies}
        return message

    def _send(self, number: int) -> None:
        self._sqs.send_message(QueueUrl=self._url, **self._message(f"{number}"))

    def _send_batch(self, number: int) -> None:
        entries = [
            {"Id": str(at), **self._message(f"{number}.{at}")} for at in range(self._random.randint(1, 4))
        ]
        answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
        self.observed.append(f"  sent {[each['Id'] for each in answer['Successful']]}")

    def _receive(self, _: int) -> None:
        self.observed.append(f"  received {self._bodies(self._url, LONG_S)}")

    def _expire(self, _: int) -> None:
        """Receive with a timeout that passes: what was received is to be seen again."""
        before, held = self._counts(self._url), dict(self._held)
        self.observed.append(f"  received {self._bodies(self._url, 1)}")
        self._held = held
        self._passes(lambda: self._counts(self._url)[1] == before[1])

    def _bodies(self, url: str, visibility_s: int) -> list[str]:
        named = {"MessageSystemAttributeNames": ["ApproximateReceiveCount", "MessageGroupId"]}
        answer = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=visibility_s, **named
        )
        found: list[str] = []
        for each in answer.get("Messages", []):
            self._held[each["Body"]] = each["ReceiptHandle"]
            system = each["Attributes"]
            found.append(
                f"{each['Body']} of {system.get('MessageGroupId')} #{system['ApproximateReceiveCount']}"
            )
        # Only FIFO queues have an order.
        return found if self._is_fifo else sorted(found)

    def _take(self, most: int) -> list[dict[str, Any]]:
        """Some of the messages in flight, as entries of a batch."""
        taken = self._random.sample(sorted(self._held), min(len(self._held), most))
        return [{"Id": str(at), "ReceiptHandle": self._held.pop(each)} for at, each in enumerate(taken)]

    def _delete(self, _: int) -> None:
        if entries := self._take(self._random.randint(1, 3)):
            answer = self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
            self.observed.append(f"  deleted {sorted(each['Id'] for each in answer['Successful'])}")

    def _show(self, _: int) -> None:
        """Make messages visible, in one batch with a handle that there never was.

        All of a FIFO queue: of a group that is in flight the emulator moves others to the dead-letter queue.
        """
        entries = self._take(9 if self._is_fifo else self._random.randint(1, 3))
        entries.append({"Id": "bad", "ReceiptHandle": "none"})
        answer = self._sqs.change_message_visibility_batch(
            QueueUrl=self._url, Entries=[{**each, "VisibilityTimeout": 0} for each in entries]
        )
        for outcome in ("Successful", "Failed"):
            told = sorted((each["Id"], each.get("Code", "")) for each in answer.get(outcome, []))
            self.observed.append(f"  {outcome} {told}")

    def _counts(self, url: str) -> tuple[int, int]:
        """How many messages are visible, and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


def of_s3(seed: int, s3: Any) -> list[str]:
    """Return what a writer and a reader of a bucket observe."""
    bucket = _Bucket(seed, s3)
    observed: list[str] = []
    for number in range(24):
        step = bucket.random.choice(
            ("put", "put", "create", "create", "get", "head", "delete", "list", "list")
        )
        key = bucket.random.choice(("a", "a/1", "a/2", "a/b/1", "a-", "b/1", "B", "ä"))
        try:
            told = getattr(bucket, step)(key, b"%d" % number)
        except ClientError as error:
            told = error.response["Error"]["Code"]
        observed.append(f"{step} {key}: {told}")
    return observed


class _Bucket:
    def __init__(self, seed: int, s3: Any) -> None:
        self.random = Random(seed)
        self._s3, self._name = s3, f"model-{seed}"
        s3.create_bucket(Bucket=self._name)

    def put(self, key: str, body: bytes, **more: str) -> Any:
        return self._s3.put_object(Bucket=self._name, Key=key, Body=body, **more)["ETag"]

    def create(self, key: str, body: bytes) -> Any:
        return self.put(key, body, IfNoneMatch="*")

    def get(self, key: str, _: bytes) -> Any:
        return self._s3.get_object(Bucket=self._name, Key=key)["Body"].read()

    def head(self, key: str, _: bytes) -> Any:
        return self._s3.head_object(Bucket=self._name, Key=key)["ContentLength"]

    def delete(self, key: str, _: bytes) -> None:
        self._s3.delete_object(Bucket=self._name, Key=key)

    def list(self, _key: str, _body: bytes) -> Any:
        given = {
            "Prefix": self.random.choice(("", "a", "a/", "x")),
            "Delimiter": self.random.choice(("", "/")),
        }
        size = {"PageSize": self.random.randint(1, 4)}
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._name, PaginationConfig=size, **given
        )
        return [
            (
                [(each["Key"], each["Size"], each["ETag"]) for each in page.get("Contents", [])],
                [each["Prefix"] for each in page.get("CommonPrefixes", [])],
            )
            for page in pages
        ]


def of_dynamodb(seed: int, client: Any, table: str) -> list[str]:
    """Return what readers and writers of records observe, in a table like that of desired states."""
    random, observed = Random(seed), list[str]()
    tables = DynamoDbTables(client, Random(0).randbytes)
    partition, sort = downlink_table.PARTITION_KEY, downlink_table.SORT_KEY

    def key_of() -> Item:
        return {
            partition: to_attribute(f"{seed}-{random.choice('ab')}"),
            sort: to_attribute(random.choice("123")),
        }

    for number in range(24):
        key = key_of()
        revision = random.choice((None, NEW, UNCOUNTED, 1, 2))
        condition = None if revision is None else Condition(revision, partition)
        name = " ".join(str(*each.values()) for each in key.values())
        match random.choice(("put", "put", "put", "delete", "get", "many", "page", "index")):
            case "put":
                item = {**key, "number": to_attribute(number)}
                if random.random() < 0.8:
                    item[REVISION] = to_attribute(random.choice((1, 2)))
                for each in (downlink_table.INDEX_KEY, downlink_table.INDEX_SORT_KEY):
                    if random.random() < 0.6:
                        item[each] = to_attribute(
                            random.choice((1, 2, 10))
                            + (100 * seed if each == downlink_table.INDEX_KEY else 0)
                        )
                observed.append(f"put {name} {revision}: {tables.put(table, key, item, condition)}")
            case "delete":
                observed.append(f"delete {name} {revision}: {tables.delete(table, key, condition)}")
            case "get":
                observed.append(f"get {name}: {_shown(tables.get(table, key))}")
            case "many":
                several = {str(each): each for each in (key_of() for _ in range(4))}
                found, left = tables.get_many(table, [*several.values()], is_consistent=True)
                observed.append(f"many: {sorted(map(_shown, found))} {left}")
            case where:
                observed.append(f"{where}: {_pages(tables, table, _selection(random, seed, where))}")
    return observed


def _selection(random: Random, seed: int, where: str) -> dict[str, Any]:
    index = random.choice(("", downlink_table.PENDING_INDEX)) if where == "page" else downlink_table.INDEX
    given: dict[str, Any] = {"limit": random.randint(1, 3)}
    if where == "page":
        given |= {"partition": downlink_table.PARTITION_KEY, "of": f"{seed}-a"}
    else:
        given |= {
            "partition": downlink_table.INDEX_KEY,
            "of": 100 * seed + random.choice((1, 2)),
            "is_consistent": False,
        }
    bounds: tuple[Any, ...] = ("1", "2", "3")
    given["sort"] = downlink_table.SORT_KEY
    if index:
        given |= {"index": index, "sort": downlink_table.INDEX_SORT_KEY}
        bounds = (1, 2, 10)
    return given | random.choice(({}, {"until": random.choice(bounds)}))


def _pages(tables: DynamoDbTables, table: str, given: dict[str, Any]) -> list[str]:
    """All items of a selection, page by page; those with the same sort key of an index in any order."""
    found: list[Item] = []
    page = tables.page(table, Selection(**given))
    found += page.items
    while page.after is not None:
        page = tables.page(table, Selection(**given, after=page.after))
        found += page.items
    return sorted(map(_shown, found)) if "index" in given else [_shown(each) for each in found]


def _shown(item: Item | None) -> str:
    return json.dumps(
        item and {name: each for name, each in item.items() if name != "writer"}, sort_keys=True
    )


TABLE = "model-desired"


@pytest.fixture
def model() -> CloudModel:
    engine = Engine()
    return CloudModel(engine, shipped_contract(), CurrentFaults(engine, Random(0)), [])


@pytest.fixture(scope="module")
def table(emulator: CloudEndpoint) -> str:
    create_desired_table(emulator.client("dynamodb"), TABLE)
    return TABLE


def until(is_true: Callable[[], bool]) -> None:
    assert eventually(is_true, every_s=0.05)


@pytest.mark.parametrize("seed", range(40))
def test_queues(emulator: CloudEndpoint, model: CloudModel, seed: int) -> None:
    engine = model.engine
    simulated = of_sqs(seed, model.sqs, lambda _: engine.run(engine.now_s + 1.0))
    assert simulated == of_sqs(seed, emulator.client("sqs"), until)


@pytest.mark.parametrize("seed", range(15))
def test_buckets(emulator: CloudEndpoint, model: CloudModel, seed: int) -> None:
    assert of_s3(seed, model.s3) == of_s3(seed, emulator.client("s3"))


@pytest.mark.parametrize("seed", range(30))
def test_tables(emulator: CloudEndpoint, table: str, model: CloudModel, seed: int) -> None:
    create_desired_table(model.dynamodb, table)
    assert of_dynamodb(seed, model.dynamodb, table) == of_dynamodb(seed, emulator.client("dynamodb"), table)
