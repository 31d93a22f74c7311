"""One publish over a WebSocket, signed, acknowledged or refused with the step that failed."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from eventplane.names import CANARY_CLIENT
from lambdas.canary.mqtt import CanaryPublishError, DataEndpoint, MqttPublisher, data_endpoint
from local.proxy import Proxy
from tests.unit.lambdas.canary.conftest import Gateway

HOST = "a1-ats.iot.eu-central-1.amazonaws.com"


def publisher(gateway: Gateway, token: str | None = "token/+=") -> MqttPublisher:  # noqa: S107 - no secret
    endpoint = DataEndpoint(host=HOST, address=gateway.address, is_tls=False)
    return MqttPublisher(
        endpoint=lambda: endpoint,
        credentials=Credentials("AKIDEXAMPLE", "secret", token),
        region="eu-central-1",
        client_id=CANARY_CLIENT,
        timeout_s=5,
    )


def test_a_publish_has_a_client_id_and_is_acknowledged(gateway: Gateway) -> None:
    payload = b"x" * 300  # longer than one digit of a remaining length, and than a frame's short length
    publisher(gateway).publish("$aws/rules/urgent/devices/canary/outbox", payload)
    connect, publish = gateway.packets[:2]
    assert connect[2:] == b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x07+canary"
    topic = b"$aws/rules/urgent/devices/canary/outbox"
    body = len(topic).to_bytes(2, "big") + topic + b"\x00\x01" + payload
    assert publish == b"\x32" + bytes([len(body) % 128 | 0x80, len(body) // 128]) + body


def test_the_session_token_is_no_part_of_what_is_signed(gateway: Gateway) -> None:
    publisher(gateway).publish("topic", b"{}")
    line, *headers = gateway.request.splitlines()
    query = urlsplit(line.split(" ")[1]).query
    assert f"Host: {HOST}" in headers
    assert query.endswith("&X-Amz-Security-Token=token%2F%2B%3D")
    assert "X-Amz-Signature" in query.partition("&X-Amz-Security-Token")[0]
    found = parse_qs(query)
    assert found["X-Amz-Credential"][0].endswith("/eu-central-1/iotdevicegateway/aws4_request")
    assert found["X-Amz-SignedHeaders"] == ["host"]


def test_without_a_session_token_there_is_none(gateway: Gateway) -> None:
    publisher(gateway, token=None).publish("topic", b"{}")
    assert "Security-Token" not in gateway.request


@pytest.mark.parametrize(
    ("refusal", "step", "detail"),
    [
        ({"status": "403 Forbidden"}, "upgrade", "403 Forbidden"),
        ({"answers": {1: b"\x20\x02\x00\x05"}}, "mqtt_connect", "20020005"),
        ({"answers": {}}, "mqtt_connect", "was closed"),
        ({"answers": {1: b"\x20\x02\x00\x00"}}, "publish", "was closed"),
    ],
)
def test_a_refusal_names_the_step(gateway: Gateway, refusal: dict[str, Any], step: str, detail: str) -> None:
    for name, value in refusal.items():
        setattr(gateway, name, value)
    with pytest.raises(CanaryPublishError, match=detail) as caught:
        publisher(gateway).publish("topic", b"{}")
    assert caught.value.step == step


def test_an_endpoint_that_nobody_listens_on_is_a_failed_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()[:2]
    with pytest.raises(CanaryPublishError) as caught:
        publisher(Gateway(address=address)).publish("topic", b"{}")
    assert caught.value.step == "connect"


def test_a_publish_passes_through_the_proxy_of_benchmarks_and_chaos(gateway: Gateway) -> None:
    host, port = gateway.address
    with Proxy(f"http://{host}:{port}") as proxy:
        behind = Gateway(address=(host, int(proxy.url.rpartition(":")[2])))
        publisher(behind).publish("topic", b"{}")
    assert [each[0] >> 4 for each in gateway.packets[:2]] == [1, 3]


class Iot:
    """Answers as AWS IoT's control plane; with an error where it has no `host`."""

    def __init__(self, host: str | None) -> None:
        self._host = host

    def describe_endpoint(self, *, endpointType: str) -> dict[str, str]:  # noqa: N803 - boto3's name
        assert endpointType == "iot:Data-ATS"
        if self._host is None:
            raise ClientError(
                {"Error": {"Code": "ServiceUnavailableException", "Message": "no"}}, "DescribeEndpoint"
            )
        return {"endpointAddress": self._host}


def test_the_endpoint_is_the_accounts_over_tls_unless_another_is_set() -> None:
    aws = data_endpoint(Iot(HOST), "https://data-ats.iot.eu-central-1.amazonaws.com")
    assert (aws.host, aws.address, aws.is_tls) == (HOST, (HOST, 443), True)
    emulated = data_endpoint(Iot("a1-ats.iot.us-east-1.localhost:4566"), "http://127.0.0.1:4566")
    assert (emulated.address, emulated.is_tls) == (("127.0.0.1", 4566), False)


def test_an_endpoint_that_nobody_tells_is_a_failed_step() -> None:
    with pytest.raises(CanaryPublishError, match="ServiceUnavailable") as caught:
        data_endpoint(Iot(None), "https://data-ats.iot.eu-central-1.amazonaws.com")
    assert caught.value.step == "endpoint"
