"""The fakes of AWS do what moto does: the same cases over both.

What depends on time is tested of the fakes alone: moto's time is the machine's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from tests.dynamodb import create_table
from tests.fakes.aws import FakeAws
from tests.fakes.faults import FailingClient
from tests.fakes.sqs import FakeSqs

Clients = Callable[[str], Any]
CONFLICT = "ConditionalCheckFailedException"


@pytest.fixture(params=["fake", "moto"])
def client(request: pytest.FixtureRequest) -> Clients:
    if request.param == "fake":
        return FakeAws().client
    request.getfixturevalue("aws")
    return lambda service: boto3.client(service)


@pytest.fixture
def sqs(client: Clients) -> Any:
    return client("sqs")


@pytest.fixture
def dynamodb(client: Clients) -> Any:
    return client("dynamodb")


@pytest.fixture
def s3(client: Clients) -> Any:
    found = client("s3")
    found.create_bucket(Bucket="bucket")
    return found


def code(call: Callable[..., Any], **request: Any) -> str:
    """The code with which AWS refuses a call."""
    with pytest.raises(ClientError) as error:
        call(**request)
    return str(error.value.response["Error"]["Code"])


def test_a_request_has_to_be_valid_by_the_services_model(client: Clients) -> None:
    for service, method, request in (
        ("sqs", "send_message", {"QueueUrl": "url"}),
        ("dynamodb", "get_item", {"TableName": "t", "Key": {"k": "text"}}),
        ("s3", "put_object", {"Bucket": "b", "Key": "k", "Text": "x"}),
    ):
        with pytest.raises(ParamValidationError):
            getattr(client(service), method)(**request)


class TestSqs:
    def receive(self, sqs: Any, url: str, **more: Any) -> list[dict[str, Any]]:
        named = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        found: list[dict[str, Any]] = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, **named, **more
        ).get("Messages", [])
        return found

    def test_a_message_is_received_once_until_it_is_visible_again(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
        hints = {"route": {"DataType": "String", "StringValue": "r"}}
        id = sqs.send_message(QueueUrl=url, MessageBody="body", MessageAttributes=hints)["MessageId"]
        (first,) = self.receive(sqs, url)
        assert (first["MessageId"], first["Body"], first["MessageAttributes"]) == (id, "body", hints)
        assert first["Attributes"]["ApproximateReceiveCount"] == "1"
        assert self.receive(sqs, url) == []
        entry = {"Id": "0", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0}
        answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
        assert [each["Id"] for each in answer["Successful"]] == ["0"]
        (second,) = self.receive(sqs, url)
        assert second["Attributes"]["ApproximateReceiveCount"] == "2"
        sqs.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
        assert self.receive(sqs, url, VisibilityTimeout=0) == []

    def test_only_what_is_asked_for_is_said_of_a_message(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        sqs.send_message(
            QueueUrl=url,
            MessageBody="b",
            MessageAttributes={name: {"DataType": "String", "StringValue": name} for name in ("one", "two")},
        )
        (found,) = sqs.receive_message(
            QueueUrl=url, AttributeNames=["SentTimestamp"], MessageAttributeNames=["one"]
        )["Messages"]
        assert (found["Attributes"].keys(), found["MessageAttributes"].keys()) == ({"SentTimestamp"}, {"one"})

    def test_messages_are_counted_by_what_they_wait_for(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="one")
        self.receive(sqs, url)
        sqs.send_message(QueueUrl=url, MessageBody="two")
        sqs.send_message(QueueUrl=url, MessageBody="three", DelaySeconds=900)
        names = [f"ApproximateNumberOfMessages{each}" for each in ("", "NotVisible", "Delayed")]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        assert [found[name] for name in names] == ["1", "1", "1"]
        assert [each["Body"] for each in self.receive(sqs, url)] == ["two"]

    def test_what_is_received_too_often_goes_to_the_dead_letter_queue(self, sqs: Any) -> None:
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = json.dumps({"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": 2})
        url = sqs.create_queue(QueueName="queue", Attributes={"RedrivePolicy": policy})["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="body")
        received = [len(self.receive(sqs, url, VisibilityTimeout=0)) for _ in range(3)]
        assert received == [1, 1, 0]
        assert [each["Body"] for each in self.receive(sqs, dead)] == ["body"]

    def test_a_fifo_queue_keeps_the_order_of_a_group_and_drops_copies(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for body, group, deduplication in (
            ("a1", "a", "1"),
            ("a2", "a", "2"),
            ("a1 again", "a", "1"),
            ("b1", "b", "3"),
        ):
            sqs.send_message(
                QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=deduplication
            )
        (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
        assert (first["Body"], [each["Body"] for each in self.receive(sqs, url)]) == ("a1", ["b1"])
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        (second,) = self.receive(sqs, url)
        assert (second["Body"], second["Attributes"]["MessageGroupId"]) == ("a2", "a")

    def test_a_batch_names_each_entry_that_it_took(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        entries = [{"Id": each, "MessageBody": f"body {each}"} for each in "01"]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        assert [each["Id"] for each in answer["Successful"]] == ["0", "1"]
        found = self.receive(sqs, url)
        assert sorted(each["Body"] for each in found) == ["body 0", "body 1"]
        handles = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(found)]
        answer = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
        assert [each["Id"] for each in answer["Successful"]] == ["0", "1"]

    def test_batches_have_limits(self, sqs: Any) -> None:
        url, prefix = sqs.create_queue(QueueName="queue")["QueueUrl"], "AWS.SimpleQueueService."

        def refused(*entries: tuple[str, str]) -> str:
            return code(
                sqs.send_message_batch,
                QueueUrl=url,
                Entries=[{"Id": id, "MessageBody": body} for id, body in entries],
            )

        half = "x" * (512 * 1024)
        assert refused() == f"{prefix}EmptyBatchRequest"
        assert refused(*((str(at), "b") for at in range(11))) == f"{prefix}TooManyEntriesInBatchRequest"
        assert refused(("0", "b"), ("0", "b")) == f"{prefix}BatchEntryIdsNotDistinct"
        assert refused(("0", half), ("1", half + "x")) == f"{prefix}BatchRequestTooLong"

    def test_a_single_message_has_limits(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        too_long = "x" * (1024 * 1024 + 1)
        assert code(sqs.send_message, QueueUrl=url, MessageBody=too_long) == "InvalidParameterValue"

    def test_what_one_entry_of_a_batch_has_wrong_fails_that_entry(self) -> None:
        """SQS refuses these; moto takes them."""
        sqs = FakeSqs()
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        entries: list[dict[str, Any]] = [
            {"Id": "0", "MessageBody": "\x00"},
            {"Id": "1", "MessageBody": ""},
            {"Id": "2", "MessageBody": "late", "DelaySeconds": 901},
            {"Id": "3", "MessageBody": "good"},
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        failed = [(each["Id"], each["Code"]) for each in answer["Failed"]]
        codes = ["InvalidMessageContents", "MissingParameter", "InvalidParameterValue"]
        assert failed == list(zip("012", codes, strict=True))
        assert sqs.bodies(url) == ["good"]

    def test_queues_are_found_by_name_and_prefix(self, sqs: Any) -> None:
        urls = {name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("a-1", "a-2", "a-3", "b-1")}
        assert sqs.get_queue_url(QueueName="b-1")["QueueUrl"] == urls["b-1"]
        pages = sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix="a-", PaginationConfig={"PageSize": 2}
        )
        assert sorted(url for page in pages for url in page["QueueUrls"]) == [urls[f"a-{at}"] for at in "123"]
        assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="c-")

    def test_a_queue_that_is_gone_is_unknown(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        sqs.delete_queue(QueueUrl=url)
        for method, request in (
            (sqs.get_queue_url, {"QueueName": "queue"}),
            (sqs.send_message, {"QueueUrl": url, "MessageBody": "b"}),
            (sqs.receive_message, {"QueueUrl": url}),
        ):
            with pytest.raises(sqs.exceptions.QueueDoesNotExist) as error:
                method(**request)
            assert error.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"

    def test_a_foreign_receipt_handle_hides_nothing(self, sqs: Any) -> None:
        url = sqs.create_queue(QueueName="queue")["QueueUrl"]
        entry = {"Id": "0", "ReceiptHandle": "none", "VisibilityTimeout": 1}
        (failed,) = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])["Failed"]
        assert (failed["Id"], failed["Code"]) == ("0", "ReceiptHandleIsInvalid")

    def test_delays_and_visibility_timeouts_end_by_the_clock(self) -> None:
        aws = FakeAws()
        url = aws.sqs.create_queue(QueueName="queue", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
        aws.sqs.send_message(QueueUrl=url, MessageBody="body", DelaySeconds=10)
        received = []
        for seconds in (0, 9.9, 0.1, 59.9, 0.1):
            aws.clock.advance(seconds)
            received.append(len(self.receive(aws.sqs, url)))
        assert received == [0, 0, 1, 0, 1]
        assert aws.sqs.bodies(url) == ["body"]
        assert (aws.sqs.take(url), aws.sqs.bodies(url)) == (["body"], [])


class TestDynamoDb:
    @pytest.fixture
    def table(self, dynamodb: Any) -> str:
        create_table(
            dynamodb,
            "table",
            "thing",
            "sk",
            numbers=("shelf", "due"),
            global_indexes={"by-shelf": ("shelf", "due")},
            local_indexes={"by-due": ("thing", "due")},
        )
        return "table"

    def put(self, dynamodb: Any, thing: str, sk: str, due: int | None = None, **more: Any) -> None:
        item = {"thing": {"S": thing}, "sk": {"S": sk}, **more}
        if due is not None:
            item |= {"due": {"N": str(due)}, "shelf": {"N": str(due % 2)}}
        dynamodb.put_item(TableName="table", Item=item)

    def test_an_item_is_put_read_and_deleted(self, dynamodb: Any, table: str) -> None:
        key = {"thing": {"S": "a"}, "sk": {"S": "1"}}
        item = {**key, "known": {"M": {"list": {"L": [{"N": "1.50"}, {"BOOL": True}, {"SS": ["x"]}]}}}}
        dynamodb.put_item(TableName=table, Item=item)
        found = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
        assert found["known"]["M"]["list"]["L"][1:] == [{"BOOL": True}, {"SS": ["x"]}]
        dynamodb.delete_item(TableName=table, Key=key)
        assert "Item" not in dynamodb.get_item(TableName=table, Key=key)

    @pytest.mark.parametrize(
        ("condition", "is_met"),
        [
            ("attribute_not_exists(sk)", False),
            ("attribute_exists(sk) AND attribute_not_exists(gone)", True),
            ("revision = :two", True),
            ("revision <> :two", False),
            ("gone <> :two", True),
            ("revision < :ten", True),  # as numbers, not as texts
            ("revision > :ten OR revision = :two", True),
            ("NOT (revision > :ten OR revision = :two)", False),
            ("revision BETWEEN :two AND :ten", True),
            ("revision IN (:ten, :two)", True),
            ("contains(tags, :tag) AND begins_with(#name, :tag)", True),
            ("contains(gone, :tag)", False),
            ("revision = :tag", False),
        ],
    )
    def test_a_condition_is_met_or_nothing_is_written(
        self, dynamodb: Any, table: str, condition: str, is_met: bool
    ) -> None:
        self.put(
            dynamodb, "a", "1", revision={"N": "2"}, tags={"SS": ["tag", "other"]}, name={"S": "tag and more"}
        )
        values = {":two": {"N": "2"}, ":ten": {"N": "10"}, ":tag": {"S": "tag"}}
        request: dict[str, Any] = {
            "TableName": table,
            "Key": {"thing": {"S": "a"}, "sk": {"S": "1"}},
            "ConditionExpression": condition,
        }
        if used := {name: value for name, value in values.items() if name in condition}:
            request["ExpressionAttributeValues"] = used
        if "#name" in condition:
            request["ExpressionAttributeNames"] = {"#name": "name"}
        if is_met:
            dynamodb.delete_item(**request)
        else:
            assert code(dynamodb.delete_item, **request) == CONFLICT
        assert dynamodb.scan(TableName=table)["Count"] == (0 if is_met else 1)

    def test_a_failed_condition_is_an_exception_of_the_client_and_can_return_the_item(
        self, dynamodb: Any, table: str
    ) -> None:
        self.put(dynamodb, "a", "1", text={"S": "before"})
        with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException) as error:
            dynamodb.put_item(
                TableName=table,
                Item={"thing": {"S": "a"}, "sk": {"S": "1"}},
                ConditionExpression="attribute_not_exists(thing)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        assert error.value.response["Item"]["text"] == {"S": "before"}

    def test_an_update_sets_removes_and_adds(self, dynamodb: Any, table: str) -> None:
        key = {"thing": {"S": "a"}, "sk": {"S": "1"}}
        self.put(dynamodb, "a", "1", due=4, revision={"N": "9"})
        update = {
            "TableName": table,
            "UpdateExpression": "SET known = :text, #s = :text REMOVE shelf, due ADD revision :one",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":text": {"S": "t"}, ":one": {"N": "1"}},
        }
        dynamodb.update_item(Key=key, **update)
        text = {"S": "t"}
        changed = {"known": text, "state": text, "revision": {"N": "10"}}
        assert dynamodb.get_item(TableName=table, Key=key)["Item"] == {**key, **changed}
        new = {**key, "sk": {"S": "new"}}
        dynamodb.update_item(Key=new, **update)
        assert dynamodb.get_item(TableName=table, Key=new)["Item"]["revision"] == {"N": "1"}

    def test_a_query_pages_through_a_partition_in_order(self, dynamodb: Any, table: str) -> None:
        for sk in ("c", "a", "b"):
            self.put(dynamodb, "home", sk)
        self.put(dynamodb, "other", "d")
        request: dict[str, Any] = {
            "TableName": table,
            "KeyConditionExpression": "thing = :thing AND sk >= :from",
            "ExpressionAttributeValues": {":thing": {"S": "home"}, ":from": {"S": "a"}},
        }
        first = dynamodb.query(**request, Limit=2)
        assert [each["sk"]["S"] for each in first["Items"]] == ["a", "b"]
        rest = dynamodb.query(**request, ExclusiveStartKey=first["LastEvaluatedKey"])
        assert ([each["sk"]["S"] for each in rest["Items"]], "LastEvaluatedKey" in rest) == (["c"], False)
        down = dynamodb.query(**request, ScanIndexForward=False)
        assert [each["sk"]["S"] for each in down["Items"]] == ["c", "b", "a"]
        pages = dynamodb.get_paginator("query").paginate(**request, PaginationConfig={"PageSize": 1})
        assert [each["sk"]["S"] for page in pages for each in page["Items"]] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("index", "partition", "value", "expected"),
        [("by-shelf", "shelf", {"N": "0"}, "c2 b4 a8"), ("by-due", "thing", {"S": "a"}, "a3 a8")],
    )
    def test_an_index_has_the_keys_of_what_has_its_attributes_by_number(
        self, dynamodb: Any, table: str, index: str, partition: str, value: dict[str, str], expected: str
    ) -> None:
        for thing, due in (("a", 8), ("b", 4), ("a", 3), ("c", 2), ("a", 16)):
            self.put(dynamodb, thing, str(due), due, text={"S": "long"})
        self.put(dynamodb, "a", "not due")
        found: list[str] = []
        position: dict[str, Any] = {}
        while True:
            page = dynamodb.query(
                TableName=table,
                IndexName=index,
                KeyConditionExpression="#p = :p AND due <= :d",
                ExpressionAttributeNames={"#p": partition},
                ExpressionAttributeValues={":p": value, ":d": {"N": "10"}},
                Limit=1,
                **position,
            )
            found += [each["thing"]["S"] + each["sk"]["S"] for each in page["Items"]]
            assert all("text" not in each for each in page["Items"])
            if "LastEvaluatedKey" not in page:
                break
            position = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        assert " ".join(found) == expected

    def test_a_scan_filters_after_it_has_read_a_page(self, dynamodb: Any, table: str) -> None:
        for at in range(5):
            self.put(dynamodb, f"t{at}", "1", state={"S": "gone" if at % 2 else "here"}, more={"S": "m"})
        request: dict[str, Any] = {
            "TableName": table,
            "FilterExpression": "#s IN (:here, :new)",
            "ProjectionExpression": "thing, #s",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":here": {"S": "here"}, ":new": {"S": "new"}},
        }
        pages = list(dynamodb.get_paginator("scan").paginate(**request, PaginationConfig={"PageSize": 2}))
        items = [item for page in pages for item in page["Items"]]
        assert sorted(each["thing"]["S"] for each in items) == ["t0", "t2", "t4"]
        assert {name for each in items for name in each} == {"thing", "state"}
        assert len(pages) == 3

    def test_a_page_ends_where_it_is_full(self, dynamodb: Any, table: str) -> None:
        for at in range(5):
            self.put(dynamodb, f"t{at}", "1", large={"S": "x" * 300_000})
        pages = list(dynamodb.get_paginator("scan").paginate(TableName=table))
        assert [page["Count"] for page in pages] == [3, 2]

    def test_a_batch_reads_what_there_is(self, dynamodb: Any, table: str) -> None:
        self.put(dynamodb, "a", "1")
        keys = [{"thing": {"S": thing}, "sk": {"S": "1"}} for thing in "ab"]
        answer = dynamodb.batch_get_item(RequestItems={table: {"Keys": keys, "ConsistentRead": True}})
        assert (answer["Responses"][table], answer["UnprocessedKeys"]) == ([keys[0]], {})
        too_many = [{"thing": {"S": str(at)}, "sk": {"S": "1"}} for at in range(101)]
        for wanted in (too_many, [keys[0], keys[0]]):
            refused = code(dynamodb.batch_get_item, RequestItems={table: {"Keys": wanted}})
            assert refused == "ValidationException"

    @pytest.mark.parametrize(
        ("method", "request_"),
        [
            ("put_item", {"Item": {"thing": {"S": "a"}}}),
            ("put_item", {"Item": {"thing": {"S": "a"}, "sk": {"N": "1"}}}),
            ("put_item", {"Item": {"thing": {"S": ""}, "sk": {"S": "1"}}}),
            (
                "update_item",
                {
                    "Key": {"thing": {"S": "a"}, "sk": {"S": "1"}},
                    "UpdateExpression": "SET state = :a",  # a reserved word
                    "ExpressionAttributeValues": {":a": {"S": "a"}},
                },
            ),
        ],
    )
    def test_what_is_not_valid_is_refused(
        self, dynamodb: Any, table: str, method: str, request_: dict[str, Any]
    ) -> None:
        assert code(getattr(dynamodb, method), TableName=table, **request_) == "ValidationException"

    @pytest.mark.parametrize(
        ("filter", "values"),
        [
            ("sk = :missing", {}),
            ("#missing = :a", {":a": {"S": "a"}}),
            ("sk =", {":a": {"S": "a"}}),
            ("attribute_exists(sk)", {":unused": {"S": "a"}}),
        ],
    )
    def test_an_expression_has_to_be_whole_and_to_use_all_that_it_is_given(
        self, filter: str, values: dict[str, Any]
    ) -> None:
        """DynamoDB refuses these; moto takes them."""
        dynamodb = FakeAws().dynamodb
        create_table(dynamodb, "table", "thing", "sk")
        request = {"FilterExpression": filter, **({"ExpressionAttributeValues": values} if values else {})}
        assert code(dynamodb.scan, TableName="table", **request) == "ValidationException"

    def test_a_table_that_is_missing_is_unknown(self, dynamodb: Any) -> None:
        with pytest.raises(dynamodb.exceptions.ResourceNotFoundException):
            dynamodb.scan(TableName="none")


class TestS3:
    def test_an_object_is_put_and_read(self, s3: Any) -> None:
        s3.put_object(Bucket="bucket", Key="a/1", Body=b"body", ContentType="text/plain")
        found = s3.get_object(Bucket="bucket", Key="a/1")
        assert (found["Body"].read(), found["ContentType"], found["ContentLength"]) == (
            b"body",
            "text/plain",
            4,
        )
        assert s3.head_object(Bucket="bucket", Key="a/1")["ETag"] == found["ETag"]

    def test_an_object_is_created_once(self, s3: Any) -> None:
        request = {"Bucket": "bucket", "Key": "a", "IfNoneMatch": "*"}
        s3.put_object(Body=b"first", **request)
        assert code(s3.put_object, Body=b"second", **request) == "PreconditionFailed"
        assert s3.get_object(Bucket="bucket", Key="a")["Body"].read() == b"first"

    def test_a_listing_comes_in_pages_and_by_folders(self, s3: Any) -> None:
        for key in ("a/1", "a/2", "a/b/3", "a/b/4", "c"):
            s3.put_object(Bucket="bucket", Key=key, Body=b"body")
        paginator = s3.get_paginator("list_objects_v2")
        pages = list(paginator.paginate(Bucket="bucket", Prefix="a/", PaginationConfig={"PageSize": 2}))
        listed = [(each["Key"], each["Size"]) for page in pages for each in page["Contents"]]
        assert (listed, len(pages)) == ([("a/1", 4), ("a/2", 4), ("a/b/3", 4), ("a/b/4", 4)], 2)
        page = s3.list_objects_v2(Bucket="bucket", Prefix="a/", Delimiter="/")
        assert [each["Key"] for each in page["Contents"]] == ["a/1", "a/2"]
        assert [each["Prefix"] for each in page["CommonPrefixes"]] == ["a/b/"]
        assert "Contents" not in s3.list_objects_v2(Bucket="bucket", Prefix="x")

    def test_what_is_deleted_or_missing_is_unknown(self, s3: Any) -> None:
        for key in "ab":
            s3.put_object(Bucket="bucket", Key=key, Body=b"body")
        s3.delete_object(Bucket="bucket", Key="a")
        s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "b"}]})
        for key in "ab":
            assert code(s3.get_object, Bucket="bucket", Key=key) == "NoSuchKey"
        assert code(s3.head_object, Bucket="bucket", Key="a") == "404"
        assert code(s3.get_object, Bucket="none", Key="a") == "NoSuchBucket"
        assert code(s3.head_bucket, Bucket="none") == "404"


def test_a_secret_has_a_current_and_a_previous_version(client: Clients) -> None:
    secrets = client("secretsmanager")
    secrets.create_secret(Name="key", SecretString="one")
    previous = {"SecretId": "key", "VersionStage": "AWSPREVIOUS"}
    assert code(secrets.get_secret_value, **previous) == "ResourceNotFoundException"
    secrets.put_secret_value(SecretId="key", SecretString="two")
    assert secrets.get_secret_value(SecretId="key")["SecretString"] == "two"
    assert secrets.get_secret_value(**previous)["SecretString"] == "one"
    assert code(secrets.get_secret_value, SecretId="none") == "ResourceNotFoundException"


def test_a_certificate_is_attached_to_a_thing_and_has_a_status(client: Clients) -> None:
    iot = client("iot")
    iot.create_thing(thingName="home-1")
    made = iot.create_keys_and_certificate(setAsActive=True)
    id, arn = made["certificateId"], made["certificateArn"]
    for call in (iot.attach_thing_principal, iot.detach_thing_principal):
        call(thingName="home-1", principal=arn)
        attached = iot.list_thing_principals(thingName="home-1")["principals"]
        assert attached == ([arn] if call == iot.attach_thing_principal else [])
    iot.update_certificate(certificateId=id, newStatus="INACTIVE")
    assert iot.describe_certificate(certificateId=id)["certificateDescription"]["status"] == "INACTIVE"
    with pytest.raises(iot.exceptions.ResourceNotFoundException):
        iot.update_certificate(certificateId="f" * 64, newStatus="INACTIVE")


def test_a_client_fails_where_and_as_long_as_it_is_told() -> None:
    sqs = FakeSqs()
    urls = [sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("one", "two")]
    failing = FailingClient(sqs, "send_message", targets={urls[0]}, code="Throttling")
    failing.send_message(QueueUrl=urls[1], MessageBody="b")
    assert code(failing.send_message, QueueUrl=urls[0], MessageBody="b") == "Throttling"
    failing.end()
    failing.send_message(QueueUrl=urls[0], MessageBody="b")
    assert failing.asked == [("send_message", urls[each]) for each in (1, 0, 0)]
    assert sqs.bodies(urls[0]) == ["b"]


def test_a_policy_is_attached_to_certificates(client: Clients) -> None:
    iot = client("iot")
    arn = iot.create_keys_and_certificate(setAsActive=True)["certificateArn"]
    iot.create_policy(policyName="quarantine", policyDocument="{}")
    for _ in range(2):
        iot.attach_policy(policyName="quarantine", target=arn)
    attached = iot.list_attached_policies(target=arn)["policies"]
    assert [each["policyName"] for each in attached] == ["quarantine"]
    iot.detach_policy(policyName="quarantine", target=arn)
    assert iot.list_attached_policies(target=arn)["policies"] == []
    with pytest.raises(iot.exceptions.ResourceNotFoundException):
        iot.attach_policy(policyName="missing", target=arn)


def test_a_deleted_thing_is_not_found(client: Clients) -> None:
    iot = client("iot")
    iot.create_thing(thingName="home-1")
    assert iot.describe_thing(thingName="home-1")["thingName"] == "home-1"
    iot.delete_thing(thingName="home-1")
    with pytest.raises(iot.exceptions.ResourceNotFoundException):
        iot.describe_thing(thingName="home-1")


def test_a_table_can_be_protected_from_deletion(dynamodb: Any) -> None:
    create_table(dynamodb, "table", "key")
    for is_protected in (True, False):
        dynamodb.update_table(TableName="table", DeletionProtectionEnabled=is_protected)
        described = dynamodb.describe_table(TableName="table")["Table"]
        assert described["DeletionProtectionEnabled"] is is_protected


def test_the_caller_s_account_is_the_resources_account(client: Clients) -> None:
    account = client("sts").get_caller_identity()["Account"]
    assert f":{account}:" in client("iot").create_thing(thingName="home-1")["thingArn"]


def test_a_client_names_its_region(client: Clients) -> None:
    assert client("sqs").meta.region_name == "us-east-1"
