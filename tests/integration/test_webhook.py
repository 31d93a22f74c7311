"""From a device to the alarm centre's HTTPS endpoint: rule, router, inbox, webhook function, TLS."""

from __future__ import annotations

import gzip
import importlib.util
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.sender import SENDER_DEVICE
from eventplane.topics import basic_ingest_topic
from local.certificates import Authority
from local.cloud import CloudEndpoint
from local.deploy import ROOT, deploy
from local.process import Supervisor
from local.things import Thing, provision
from tests.endpoint import EndpointServer, answer
from tests.eventually import eventually
from tests.integration.mqtt import TestClient

SECONDS = 60.0
READ_SECONDS = 20

EXAMPLE = ROOT / "examples" / "verify_webhook.py"
specification = importlib.util.spec_from_file_location("verify_webhook", EXAMPLE)
assert specification is not None
assert specification.loader is not None
verify = importlib.util.module_from_spec(specification)
specification.loader.exec_module(verify)


@dataclass
class Plane:
    """The deployed plane and the endpoint of its alarm centre."""

    cloud: CloudEndpoint
    endpoint: EndpointServer
    outputs: dict[str, str]
    thing: Thing

    def sends(self, event: Envelope) -> None:
        """The device publishes `event`."""
        with TestClient.of_thing(self.thing) as device:
            topic = basic_ingest_topic(self.outputs["IngestRule"], self.thing.name)
            assert device.publish(topic, event.json.encode())

    def keys(self) -> list[str]:
        client = self.cloud.client("secretsmanager")
        return [client.get_secret_value(SecretId=self.outputs["AlarmCentreWebhookSecret"])["SecretString"]]

    def letter(self) -> dict[str, Any]:
        """The payload of the next dead letter that operations get."""
        sqs, queue = self.cloud.client("sqs"), self.outputs["OperationsInboxUrl"]
        (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=READ_SECONDS)["Messages"]
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        event = parse_event(message["Body"])
        assert event.type == DEAD_LETTER_TYPE
        payload: dict[str, Any] = event.data()
        return payload


@pytest.fixture(scope="module")
def plane(emulator: CloudEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    directory = tmp_path_factory.mktemp("webhook")
    authority = Authority(directory / "authority")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = authority.issue("alarm-centre")
    tls.load_cert_chain(identity.certificate, identity.key)
    with EndpointServer(answer(500), answer(202), answer(422, b"no such home"), tls=tls) as endpoint:
        with Supervisor(directory / "run") as supervisor, pytest.MonkeyPatch.context() as patch:
            patch.setenv("WEBHOOK_URL", endpoint.url())
            stacks = deploy(supervisor, emulator, app=Path(__file__).parent / "webhook_app")
        outputs = {name: value for each in stacks.values() for name, value in each.items()}
        _believe(emulator, "eventplane-hooks-webhook-alarm-centre", authority.ca)
        thing = provision(
            emulator, "hooked-home", policy=outputs["DevicePolicy"], directory=directory / "thing"
        )
        yield Plane(emulator, endpoint, outputs, thing)


def _believe(cloud: CloudEndpoint, function: str, ca: Path) -> None:
    """Let a function's TLS believe the test's authority, as Lambda's does those of the internet."""
    client = cloud.client("lambda")
    variables = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    client.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**variables, "SSL_CERT_FILE": str(ca)}}
    )


def test_an_event_arrives_exactly_and_signed_after_the_endpoint_s_failure(plane: Plane) -> None:
    event = write_event(
        {"id": "1", "source": "/homes/a/voice", "type": "org.eventplane.alarm.keyword.v1"},
        {"keyword": "Hilfe"},
    )
    plane.sends(event)

    assert eventually(lambda: len(plane.endpoint.received) == 2, SECONDS)
    failed, taken = plane.endpoint.received
    assert failed.body == taken.body == event.stamped(**{SENDER_DEVICE: plane.thing.name}).json.encode()
    assert failed.headers["webhook-id"] == taken.headers["webhook-id"]
    assert taken.headers["content-type"] == "application/cloudevents+json"
    for request in (failed, taken):
        assert verify.is_genuine(plane.keys(), request.headers, request.body)


def test_an_event_that_the_endpoint_refuses_comes_to_operations(plane: Plane) -> None:
    event = write_event({"id": "2", "source": "/homes/a/voice", "type": "org.eventplane.alarm.keyword.v1"})
    plane.sends(event)

    letter = plane.letter()
    assert (letter["reason"], letter["detail"]) == ("endpoint_refused", "HTTP 422 Words: no such home")
    assert letter["channel"] == "alarm-centre.inbox"
    assert len(plane.endpoint.received) == 3


def test_the_archive_says_what_became_of_both(plane: Plane) -> None:
    s3 = plane.cloud.client("s3")
    bucket = plane.outputs["ArchiveBucket"]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="handovers/")["Contents"]
    lines = [
        json.loads(line)
        for each in listed
        for line in gzip.decompress(s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()).splitlines()
    ]
    assert sorted((each["id"], each["outcome"], each["status"], each["attempt"]) for each in lines) == [
        ("1", "delivered", 202, 2),
        ("2", "dead_lettered", 422, 1),
    ]
