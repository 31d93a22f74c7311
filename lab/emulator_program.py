"""Start the emulator behind a front that a web page does not pass, with parts of it replaced by quicker ones.

It takes unsigned calls and the key `test` as its owner's, from any page open in a browser. Here it takes
signed calls with other keys only, and its MQTT listener is on the loopback interface as well.

It unpacks 2,000 files for each process of each function, a large part of the time in which a plane starts;
here they share them. For each receive and delete it works on every message of the queue, so that a long
backlog drains slowly; here it works on those that are meant.

It takes what AWS refuses by its size or number; here AWS's rules hold (`eventplane_aws.rules`).

It says that jobs of Glue have succeeded which it never ran, and ends no device's connection on request; here
the checkout's code runs the audit, another job fails, and connections are ended.

`lab.emulator` runs this file with the Python of .venv-emulator.
"""

# ruff: noqa: SLF001 - the emulator has no other way in

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import accumulate, islice, takewhile
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from ministack import app as emulator  # type: ignore[import-not-found, unused-ignore]
from ministack.core import lambda_runtime, responses  # type: ignore[import-not-found, unused-ignore]
from ministack.services import glue, iot, lambda_svc, sqs  # type: ignore[import-not-found, unused-ignore]
from ministack.services.cloudformation import provisioners  # type: ignore[import-not-found, unused-ignore]

sys.path.append(str(Path(__file__).parents[1]))  # this Python has no package of the plane

from eventplane.resource_names import AUDIT_TODAY, DELIVERY_AUDIT
from eventplane_aws.rules import (
    LAMBDA_BATCH,
    LAMBDA_CHAIN,
    SQS_FIFO_IN_FLIGHT,
    SQS_IN_FLIGHT,
    SQS_RECEIVES,
    Rule,
)
from lab.aws_requests import (
    Handler,
    MalformedRequestError,
    broken_rule,
    calls_in_chain,
    problem,
    with_call,
    within_rules,
)

ROOT = Path(__file__).parents[1]
UNPACKED = Path(tempfile.gettempdir()) / "unpacked"

Message = dict[str, Any]
Queue = dict[str, Any]

LONG = 1_000
"""Messages in a queue that is long."""

HOSTS = ("127.0.0.1", "localhost")
OWN = ("/_ministack/", "/_localstack/", "/health")
"""Paths that are no AWS API: for whoever started the emulator, who knows the token."""

ANSWERS = ("/_ministack/cfn-response/", "/_ministack/cfn-signal/")
"""Own paths that end with a secret of theirs."""

_CREDENTIAL = re.compile(r"(?:Credential=|X-Amz-Credential=|AWSAccessKeyId=|AWS )([^/&:%,]+)")
_ANYBODY = re.compile(r"test|\d{12}")
"""Keys that the emulator takes for its owner's."""

_lock = threading.Lock()
_receive, _sweep, _expire = sqs._collect_msgs, sqs._dlq_sweep, sqs._expire_retained
_send_message, _receive_message = sqs._act_send_message, sqs._act_receive_message
_handle_packet = iot._WSSession.handle_packet
_receive_for_function, _run_batch = sqs._receive_messages_for_esm, lambda_svc._run_sqs_batch
_trace: ContextVar[str] = ContextVar("trace", default="")
"""The trace header of the request to SQS, or of the invocation, that runs."""


class Front:
    """Passes on to the emulator what its owner and the programs of the plane send.

    `token` opens the emulator's own paths. A page can choose neither Host nor Origin, and knows no key.
    """

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        problem = None if scope["type"] == "lifespan" else self._problem(scope)
        if problem is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": problem})
        else:
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"message": problem}).encode()})

    def _problem(self, scope: dict[str, Any]) -> str | None:
        """Why a request is refused."""
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        if host not in HOSTS and not host.endswith(".localhost"):  # of an API, by its id
            return f"this server is not called {host!r}"
        if "origin" in headers or "sec-fetch-site" in headers or scope.get("method") == "OPTIONS":
            return "web pages are not served"
        path = scope["path"]
        if path.startswith(ANSWERS):
            return None
        if path.startswith(OWN):
            return None if headers.get("x-emulator-token") == self._token else "this path needs the token"
        signed = f"{headers.get('authorization', '')}&{scope['query_string'].decode('latin-1')}"
        key = _CREDENTIAL.search(signed)
        if key is None or _ANYBODY.fullmatch(key[1]):
            return "MissingAuthenticationToken: calls are signed with a key of this cloud"
        return None


def with_trace(service: str, handler: Handler) -> Handler:
    """Return a handler of `service` that keeps the trace of a request, for the messages that it sends."""

    async def handle(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        _trace.set(headers.get("x-amzn-trace-id", "") if service == "sqs" else "")
        return await handler(method, path, headers, body, query)

    return handle


def send_message(data: dict[str, Any], url: str) -> dict[str, Any]:
    """Send a message, alone or of a batch, that keeps the rules of messages, with its sender's trace."""
    try:
        rule = broken_rule("sqs", "SendMessage", data)
    except MalformedRequestError as error:
        raise sqs._Err(error.code, str(error)) from error
    if rule is not None:
        raise sqs._Err(rule.code, problem(rule))
    if trace := _trace.get():
        system = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}
        data = {**data, "MessageSystemAttributes": system | (data.get("MessageSystemAttributes") or {})}
    sent: dict[str, Any] = _send_message(data, url)
    return sent


async def receive_message(data: dict[str, Any], url: str) -> dict[str, Any]:
    """Receive messages; a short poll of a standard queue with too many in flight is refused."""
    queue = sqs._get_q(data.get("QueueUrl", url), "sqs:ReceiveMessage")
    if (rule := _too_many(queue)) and not queue["is_fifo"] and not data.get("WaitTimeSeconds"):
        raise sqs._Err(rule.code, problem(rule))
    received: dict[str, Any] = await _receive_message(data, url)
    return received


def _too_many(queue: Queue) -> Rule | None:
    """The rule of messages in flight, if a queue has as many as it may have."""
    rule = SQS_FIFO_IN_FLIGHT if queue["is_fifo"] else SQS_IN_FLIGHT
    if len(queue["messages"]) < rule.most:
        return None
    now = time.time()
    hidden = sum(each["receive_count"] > 0 and each["visible_at"] > now for each in queue["messages"])
    return rule if hidden >= rule.most else None


def receive_for_function(url: str, most: int) -> list[Message]:
    """Receive a batch of a function, as many messages as fit a call."""
    found: list[Message] = _receive_for_function(url, most)
    sizes = accumulate(len(each["body"].encode()) for each in found)
    fits = sum(size <= LAMBDA_BATCH.most for size in sizes)
    for each in found[fits:]:
        each |= {"visible_at": 0.0, "receive_count": each["receive_count"] - 1}
    return found[:fits]


def run_batch(mapping: Any, function: Any, event: Any, batch: list[Message], *queue: str) -> None:
    """Let a function process a batch, but for messages in whose chain it was called too often: dead letters.

    The function hands on the chain of the first of them; AWS does not document which.
    """
    name, going_on = mapping["FunctionName"], {}
    for each in batch:
        trace = with_call(each["sys"].get("AWSTraceHeader", ""), name)
        if lambda_svc._recursive_loop_drop(name, function, calls_in_chain(trace)[name]):
            each |= {"visible_at": 0.0, "receive_count": SQS_RECEIVES.most}
        else:
            going_on[each["id"]] = each, trace
    if going_on:
        _trace.set(next(iter(going_on.values()))[1])
        records = [each for each in event["Records"] if each["messageId"] in going_on]
        _run_batch(mapping, function, {"Records": records}, [each for each, _ in going_on.values()], *queue)


def with_recursion(provision: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Let CloudFormation set `RecursiveLoop` of a function; the properties are the argument `at`."""

    def provision_function(*arguments: Any, **more: Any) -> Any:
        made = provision(*arguments, **more)
        lambda_svc._functions[made[0]]["recursive_loop"] = arguments[at].get("RecursiveLoop")
        return made

    return provision_function


async def handle_packet(session: Any, kind: int, flags: int, body: bytes) -> bool:
    """Handle a packet of MQTT; a publish that breaks a rule ends the connection."""
    if kind == iot.PKT_PUBLISH:
        topic, start = iot._read_string(body, 0)
        payload = body[start + (2 if flags & 6 else 0) :]
        if broken_rule("iot-data", "Publish", {"topic": topic, "payload": payload}):
            return False
    goes_on: bool = await _handle_packet(session, kind, flags, body)
    return goes_on


async def on_loopback(
    loop: asyncio.BaseEventLoop, factory: Any, host: Any = None, port: Any = None, **more: Any
) -> Any:
    """Listen on the loopback interface, whatever `host` says."""
    return await _create_server(loop, factory, HOSTS[0] if host == "0.0.0.0" else host, port, **more)  # noqa: S104


_create_server = asyncio.BaseEventLoop.create_server


ENDED_BY_OWNER = 0x98
"""The reason code of MQTT 5 for a connection that an administrator ends."""


def with_connections(handler: Handler) -> Handler:
    """Return a handler of AWS IoT's data that ends a device's connection on request as well."""

    async def handle(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        if method != "DELETE" or not path.startswith("/connections/"):
            return await handler(method, path, headers, body, query)
        client = unquote(path.rpartition("/")[2])
        place = responses.get_account_id(), responses.get_region(), client
        session = iot._connected_clients.get(place)
        if session is None:
            problem = f"{client} is not connected"
            return responses.error_response_json("ResourceNotFoundException", problem, 404)
        if session.protocol_version == iot.MQTT_5:
            await session.send_bytes(iot._make_disconnect(ENDED_BY_OWNER))
        await session._send({"type": "websocket.close", "code": 1000})
        await session.cleanup()
        return responses.json_response({})

    return handle


def run_job(run: dict[str, Any], job: dict[str, Any], arguments: dict[str, str], script: str) -> None:
    """Run an audit with the code of the checkout; another job fails, since Spark reads no bucket here."""
    del script
    if not job["Name"].endswith((DELIVERY_AUDIT, AUDIT_TODAY)):
        run |= {"JobRunState": "FAILED", "ErrorMessage": "the emulated cloud runs no job but the audit"}
        return
    words = [word for pair in arguments.items() for word in pair]
    url = f"http://{HOSTS[0]}:{os.environ['GATEWAY_PORT']}"
    done = subprocess.run(
        [str(ROOT / ".venv" / "bin" / "python"), "-m", "glue_jobs.delivery_audit", *words],
        env={"AWS_ENDPOINT_URL": url, **os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = (done.stderr.splitlines() or [""])[-1]
    run["JobRunState"] = "FAILED" if done.returncode else "SUCCEEDED"
    run["ErrorMessage"] = last if done.returncode else ""


class SharedArchive(zipfile.ZipFile):
    """An archive of code, which is unpacked once, because no function writes to its code."""

    def extractall(
        self,
        path: str | PathLike[str] | None = None,
        members: Iterable[str | zipfile.ZipInfo] | None = None,
        pwd: bytes | None = None,
    ) -> None:
        """Replace the empty folder `path` by a link to the one folder with these files."""
        content = Path(self.filename or "").read_bytes()
        shared = UNPACKED / hashlib.sha256(content).hexdigest()[:32]
        with _lock:
            if not shared.exists():
                unfinished = shared.with_suffix(".unfinished")
                super().extractall(unfinished, members, pwd)
                unfinished.rename(shared)
        link = Path(path or "")
        link.rmdir()
        link.symlink_to(shared)


def receive(queue: Queue, most: int, visibility_s: int) -> list[Message]:
    """Receive up to `most` messages: the original prepares every message of the queue each time."""
    if _too_many(queue):
        return []
    if not queue["is_fifo"]:
        now = time.time()
        visible = (each for each in queue["messages"] if each.get("visible_at", 0) <= now)
        queue = {**queue, "messages": list(islice(visible, most))}
    received: list[Message] = _receive(queue, most, visibility_s)
    return received


def sweep(queue: Queue) -> None:
    """Move what has no receives left to the dead-letter queue: the original copies the queue each time."""
    if queue["is_fifo"]:
        _sweep(queue)
        return
    # Receives take the first visible messages, so behind one that was never received none was.
    now = time.time()
    front = list(takewhile(lambda each: each["receive_count"] or each["visible_at"] > now, queue["messages"]))
    part = {**queue, "messages": front}
    _sweep(part)
    if len(part["messages"]) < len(front):
        queue["messages"][: len(front)] = part["messages"]


def expire(queue: Queue) -> None:
    """Drop what is beyond the retention: of a long queue only if the first message, the oldest, is."""
    first = {**queue, "messages": queue["messages"][:1]}
    _expire(first)
    if len(queue["messages"]) < LONG or not first["messages"]:
        _expire(queue)


def delete(data: dict[str, Any], url: str) -> dict[str, Any]:
    """Delete a batch of messages: the original copies the whole queue for each of them."""
    entries = data.get("Entries", [])
    sqs._validate_batch_entries(entries, "DeleteMessageBatchRequestEntry")
    messages = sqs._get_q(data.get("QueueUrl", url), "sqs:DeleteMessage")["messages"]
    wanted = {each.get("ReceiptHandle") for each in entries} - {None, ""}
    found: dict[str, int] = {}
    for place, each in enumerate(messages):
        if len(found) == len(wanted):
            break  # what was received is in front
        if each.get("receipt_handle") in wanted:
            found[each["receipt_handle"]] = place
    for place in sorted(found.values(), reverse=True):
        del messages[place]
    there = [each["Id"] for each in entries if each.get("ReceiptHandle") in found]
    invalid = {
        "Code": "ReceiptHandleIsInvalid",
        "Message": "The input receipt handle is invalid.",
        "SenderFault": True,
    }
    return {
        "Successful": [{"Id": each} for each in there],
        "Failed": [{"Id": each["Id"], **invalid} for each in entries if each["Id"] not in there],
    }


if __name__ == "__main__":
    sqs._collect_msgs, sqs._dlq_sweep, sqs._expire_retained = receive, sweep, expire
    sqs._act_send_message = send_message
    sqs._HANDLERS |= {
        "SendMessage": send_message,
        "ReceiveMessage": receive_message,
        "DeleteMessageBatch": delete,
    }
    sqs._receive_messages_for_esm = receive_for_function
    lambda_svc._run_sqs_batch, lambda_svc.MAX_INVOKE_DEPTH = run_batch, LAMBDA_CHAIN.most
    lambda_svc._xray_trace_id_for_invocation = lambda *_: _trace.get() or None
    functions = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    for step, at in (("create", 1), ("update", 2)):
        functions[step] = with_recursion(functions[step], at)
    iot._WSSession.handle_packet = handle_packet
    glue._is_spark_job, glue._execute_subprocess = lambda _job: False, run_job
    handlers = emulator.SERVICE_HANDLERS
    handlers["iot-data"] = with_connections(handlers["iot-data"])
    for service, handler in handlers.items():
        handlers[service] = with_trace(service, within_rules(service, handler))
    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedArchive})
    asyncio.BaseEventLoop.create_server = on_loopback  # type: ignore[method-assign, assignment]
    emulator.app = Front(emulator.app, os.environ.pop("EMULATOR_TOKEN"))
    sys.exit(emulator.main())
