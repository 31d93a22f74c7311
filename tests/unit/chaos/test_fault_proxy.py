"""A service in failure fails as botocore knows it from AWS, and only that service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from local.background import BackgroundServer
from local.chaos import fault_proxy
from local.chaos.fault_proxy import Failure, FaultProxy, Target
from local.ports import LOOPBACK

ANSWERS = {
    "sqs": b'{"Successful": [], "Failed": []}',
    "dynamodb": b'{"Items": []}',
    "iotdata": b"{}",
    "s3": b"",
}


class Cloud:
    """Answers every call, and counts them by service."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                service = self.headers["Authorization"].split("/")[3]
                cloud.calls.append(service)
                self.send_response(200)
                self.send_header("Content-Length", str(len(ANSWERS[service])))
                self.end_headers()
                self.wfile.write(ANSWERS[service])

            do_PUT = do_POST  # noqa: N815 - named by the base class

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self.server.server_port}"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    with BackgroundServer("cloud", cloud.server):
        yield cloud


@pytest.fixture
def proxy(cloud: Cloud) -> Iterator[FaultProxy]:
    with FaultProxy(cloud.url) as proxy:
        yield proxy


def client(proxy: FaultProxy, service: str, read_s: float = 30.0) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        endpoint_url=proxy.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=read_s),
    )


def put_object(proxy: FaultProxy) -> Any:
    return client(proxy, "s3").put_object(Bucket="archive", Key="k", Body=b"x")


def scan(proxy: FaultProxy) -> Any:
    return client(proxy, "dynamodb").scan(TableName="contracts")


def send(proxy: FaultProxy, queue: str = "family-app-inbox", read_s: float = 30.0) -> Any:
    entries = [{"Id": "0", "MessageBody": "text"}]
    url = f"{proxy.url}/0/{queue}"
    return client(proxy, "sqs", read_s).send_message_batch(QueueUrl=url, Entries=entries)


def publish(proxy: FaultProxy) -> Any:
    return client(proxy, "iot-data").publish(topic="a/b", payload=b"x")


CALLS: dict[str, Callable[[FaultProxy], Any]] = {
    "s3": put_object,
    "dynamodb": scan,
    "sqs": send,
    "iotdata": publish,
}


@pytest.mark.parametrize(
    ("service", "failure", "code", "status"),
    [
        ("s3", Failure.UNAVAILABLE, "ServiceUnavailable", 503),
        ("s3", Failure.THROTTLED, "SlowDown", 503),
        ("dynamodb", Failure.UNAVAILABLE, "ServiceUnavailable", 503),
        ("dynamodb", Failure.THROTTLED, "ThrottlingException", 400),
        ("sqs", Failure.UNAVAILABLE, "ServiceUnavailable", 503),
        ("sqs", Failure.THROTTLED, "RequestThrottled", 400),
        ("iotdata", Failure.UNAVAILABLE, "ServiceUnavailableException", 503),
        ("iotdata", Failure.THROTTLED, "ThrottlingException", 429),
    ],
)
def test_a_service_refuses_by_its_own_errors(
    cloud: Cloud, proxy: FaultProxy, service: str, failure: Failure, code: str, status: int
) -> None:
    target = Target(service)
    proxy.begin(target, failure)
    with pytest.raises(ClientError) as refused:
        CALLS[service](proxy)
    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    for other in CALLS.keys() - {service}:
        CALLS[other](proxy)
    assert service not in cloud.calls
    proxy.end(target)
    CALLS[service](proxy)
    assert sorted(cloud.calls) == sorted(CALLS)


def test_one_queue_fails_and_the_others_do_not(cloud: Cloud, proxy: FaultProxy) -> None:
    proxy.begin(Target("sqs", "family-app-inbox"), Failure.UNAVAILABLE)
    with pytest.raises(ClientError):
        send(proxy)
    send(proxy, "alarm-centre-inbox")
    assert cloud.calls == ["sqs"]


def test_a_stalled_call_does_nothing_and_ends_without_an_answer(cloud: Cloud, proxy: FaultProxy) -> None:
    target = Target("sqs")
    proxy.begin(target, Failure.STALLED)
    with pytest.raises(ReadTimeoutError):
        send(proxy, read_s=0.1)
    assert not cloud.calls
    ended: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(ConnectionClosedError) as closed:
            send(proxy)
        ended.append(closed.value)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    proxy.end(target)
    waiting.join(10)
    assert ended
    assert not cloud.calls


def test_an_outage_goes_on_until_a_call_has_met_it(proxy: FaultProxy) -> None:
    target = Target("sqs")
    proxy.begin(target, Failure.UNAVAILABLE)
    healing = threading.Thread(target=proxy.end, args=(target,), daemon=True)
    healing.start()
    publish(proxy)  # of another service
    with pytest.raises(ClientError):
        send(proxy)
    healing.join(10)
    assert not healing.is_alive()
    send(proxy)


def test_an_unanswered_call_is_done(cloud: Cloud, proxy: FaultProxy) -> None:
    proxy.begin(Target("sqs"), Failure.UNANSWERED)
    with pytest.raises(ConnectionClosedError):
        send(proxy)
    assert cloud.calls == ["sqs"]


def test_a_late_answer_comes_when_the_caller_has_given_up(cloud: Cloud, proxy: FaultProxy) -> None:
    target = Target("sqs")
    proxy.begin(target, Failure.LATE)
    with pytest.raises(ReadTimeoutError):
        send(proxy, read_s=0.1)
    assert cloud.calls == ["sqs"]


def test_an_answer_is_later_than_functions_wait() -> None:
    from lambdas.common import aws

    assert aws.PATIENT.read_s < fault_proxy.LATE_S


def test_a_swallowed_message_is_reported_as_stored(cloud: Cloud, proxy: FaultProxy) -> None:
    proxy.begin(Target("sqs"), Failure.SWALLOWED)
    assert [each["Id"] for each in send(proxy)["Successful"]] == ["0"]
    assert not cloud.calls
    send(proxy, "eventplane-local-ledger")
    assert len(cloud.calls) == 1  # the record of what was swallowed
