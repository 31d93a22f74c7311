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
from tests.fakes.sqs import FakeSqs

Clients = Callable[[str], Any]


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

    def test_the_entries_of_a_batch_have_ids_of_their_own(self, sqs: Any) -> None:
        url, prefix = sqs.create_queue(QueueName="queue")["QueueUrl"], "AWS.SimpleQueueService."

        def refused(*entries: tuple[str, str]) -> str:
            return code(
                sqs.send_message_batch,
                QueueUrl=url,
                Entries=[{"Id": id, "MessageBody": body} for id, body in entries],
            )

        assert refused() == f"{prefix}EmptyBatchRequest"
        assert refused(("0", "b"), ("0", "b")) == f"{prefix}BatchEntryIdsNotDistinct"

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
    """It is moto: what is between is ours."""

    @pytest.fixture
    def table(self, dynamodb: Any) -> str:
        create_table(dynamodb, "table", "thing", "sk")
        for thing in "ba":
            dynamodb.put_item(TableName="table", Item={"thing": {"S": thing}, "sk": {"S": "1"}})
        return "table"

    def test_a_failed_condition_is_an_exception_of_the_client_and_can_return_the_item(
        self, dynamodb: Any, table: str
    ) -> None:
        with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException) as error:
            dynamodb.put_item(
                TableName=table,
                Item={"thing": {"S": "a"}, "sk": {"S": "1"}, "text": {"S": "after"}},
                ConditionExpression="attribute_not_exists(thing)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        assert error.value.response["Item"] == {"thing": {"S": "a"}, "sk": {"S": "1"}}

    @pytest.mark.parametrize(
        ("filter", "values"),
        [
            ("sk = :missing", {}),
            ("#missing = :a", {":a": {"S": "a"}}),
            ("attribute_exists(sk)", {":unused": {"S": "a"}}),
        ],
    )
    def test_an_expression_has_to_use_all_that_it_is_given(self, filter: str, values: dict[str, Any]) -> None:
        """DynamoDB refuses these; moto takes them."""
        dynamodb = FakeAws().dynamodb
        create_table(dynamodb, "table", "thing", "sk")
        request = {"FilterExpression": filter, **({"ExpressionAttributeValues": values} if values else {})}
        assert code(dynamodb.scan, TableName="table", **request) == "ValidationException"

    def test_a_table_that_is_missing_is_unknown(self, dynamodb: Any) -> None:
        with pytest.raises(dynamodb.exceptions.ResourceNotFoundException):
            dynamodb.scan(TableName="none")


class TestS3:
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
