"""Attacks by a web page that is open in a browser on the machine of the emulated cloud."""

import http.client
from urllib.parse import urlsplit

import pytest

from tests.adversary.conftest import Attempt
from tests.adversary.world import World
from tests.listeners import elsewhere, listeners

PAGE = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain"}
PREFLIGHT = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
REBOUND = {"Host": "evil.example:80"}


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
BUCKET = "/eventplane-local-archive-000000000000-us-east-1"


def signed(key: str) -> dict[str, str]:
    scope = f"Credential={key}/20260301/us-east-1/sqs/aws4_request"
    return {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"}


LIST, INVOKE = "/?Action=ListQueues", "/2015-03-31/functions/eventplane-local-router-device/invocations"
PRESIGNED = f"{LIST}&X-Amz-Credential=test%2F20260301%2Fus-east-1%2Fsqs%2Faws4_request"
SHAPES: dict[str, tuple[str, str, dict[str, str], str]] = {
    "reset by a form": ("POST", "/_ministack/reset", {**PAGE, **FORM}, ""),
    "reset by a rebound name": ("POST", "/_ministack/reset", REBOUND, ""),
    "reset from the machine itself": ("POST", "/_ministack/reset", {}, ""),
    "configure": ("POST", "/_ministack/config", {**PAGE, **TEXT}, '{"lambda_svc.EXECUTOR": "local"}'),
    "read messages by an image": ("GET", "/_ministack/sqs/messages?account=000000000000", IMAGE, ""),
    "read messages by a rebound name": ("GET", "/_ministack/sqs/messages?account=000000000000", REBOUND, ""),
    "the other name of its own paths": ("GET", "/_localstack/health", PAGE, ""),
    "its health": ("GET", "/health", IMAGE, ""),
    "a preflight": ("OPTIONS", "/", PREFLIGHT, ""),
    "a preflight of a bucket": ("OPTIONS", f"{BUCKET}/x", PREFLIGHT, ""),
    "list queues by a form": ("POST", "/", {**PAGE, **FORM}, "Action=ListQueues"),
    "list queues by an image": ("GET", LIST, IMAGE, ""),
    "list queues by a rebound name": ("GET", LIST, {**REBOUND, **signed("test")}, ""),
    "list queues unsigned": ("GET", LIST, {}, ""),
    "list queues as `test`": ("GET", LIST, signed("test"), ""),
    "list queues as an account": ("GET", LIST, signed("000000000000"), ""),
    "list queues as `test`, signed in the query": ("GET", PRESIGNED, {}, ""),
    "call a function": ("POST", INVOKE, {**PAGE, **TEXT}, "{}"),
    "make a function": ("POST", "/2015-03-31/functions", {**PAGE, **TEXT}, "{}"),
    "call a function unsigned": ("POST", INVOKE, TEXT, "{}"),
    "write an object": ("PUT", f"{BUCKET}/tap/x", PAGE, "x"),
    "open a WebSocket": ("GET", "/mqtt", {**PAGE, **UPGRADE}, ""),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_web_page_reaches_the_emulated_cloud(world: World, attempt: Attempt, shape: str) -> None:
    """web page: in a developer's browser, reach the emulated cloud"""
    attempt.untraced("the front of the emulator refuses it, before the plane")
    method, path, headers, body = SHAPES[shape]
    queues = world.cloud.client("sqs").list_queues()["QueueUrls"]
    connection = http.client.HTTPConnection(urlsplit(world.cloud.url).netloc, timeout=10)
    try:
        connection.request(method, path, body.encode(), headers)
        answer = connection.getresponse()
        told = answer.read(), dict(answer.getheaders())
    finally:
        connection.close()
    attempt.refused(answer.status == http.client.FORBIDDEN, (answer.status, told))
    attempt.refused("access-control-allow-origin" not in {name.lower() for name in told[1]}, told)
    attempt.refused(world.cloud.client("sqs").list_queues()["QueueUrls"] == queues, "other queues")


def test_its_mqtt_listener_is_on_the_loopback_interface(world: World, attempt: Attempt) -> None:
    """neighbour: in the developer's network, connect to the emulated cloud as a device"""
    attempt.untraced("nothing listens there")
    found = {each for each in listeners() if each[1] == world.cloud.mqtt_port}
    attempt.refused(len(found) == 1 and not elsewhere(found), found)
