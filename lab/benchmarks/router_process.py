"""A router as a deployment bundles it, in a fresh process, with AWS played by a server of this machine."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any, Final

from contract import load_contract
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.settings import written
from lab.background import BackgroundServer

_CHILD: Final = """
import time; began, began_cpu = time.monotonic(), time.process_time()
import importlib, json, os, re, sys
handler = importlib.import_module("lambdas.router.handler")
initialized, initialized_cpu = time.monotonic(), time.process_time()
if members := os.environ.get("BENCH_GROUP"):
    with open(members, "w") as group: group.write(str(os.getpid()))
class Context:
    aws_request_id = function_name = invoked_function_arn = "x"
    memory_limit_in_mb = 512
    def get_remaining_time_in_millis(self): return 900_000
first, rest, seconds = json.load(sys.stdin)
number = 0
def handle(event):
    global number
    for record in event["Records"]:
        number += 1
        record["messageId"] = str(number)
    answer = handler.handle(event, Context())
    assert answer == {"batchItemFailures": []}, answer
handle(first)
found = {
    "init_s": initialized - began,
    "init_cpu_s": initialized_cpu - began_cpu,
    "first_s": time.monotonic() - initialized,
    "first_cpu_s": time.process_time() - initialized_cpu,
    "peak_mib": int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024,
}
if rest:
    warm = time.monotonic()
    for _ in range(20): handle(first)
    found["warm_s"] = (time.monotonic() - warm) / 20
    batches, started, started_cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() - started < seconds:
        handle(rest); batches += 1
    found["batches"] = batches
    found["took_s"], found["took_cpu_s"] = time.monotonic() - started, time.process_time() - started_cpu
print(json.dumps(found), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class RouterRun:
    """A process, in seconds: until it is wired and until it has answered its first event, by clock and CPU.

    If it had more to do: `warm_s` of an invocation with its first event, and `batches` in `took_s`.
    """

    init_s: float
    init_cpu_s: float
    first_s: float
    first_cpu_s: float
    peak_mib: float
    warm_s: float = 0.0
    batches: int = 0
    took_s: float = 0.0
    took_cpu_s: float = 0.0

    @property
    def cpu_ms(self) -> float:
        """CPU time from the interpreter's start to the answer to the first event, milliseconds."""
        return 1e3 * (self.init_cpu_s + self.first_cpu_s)


def run(variables: dict[str, str], *, rest: object = None, seconds: float = 0.0) -> RouterRun:
    """Start a router, let it handle an event, then the batch `rest` again and again for so many seconds."""
    event = {"id": "1", "source": "/homes/a", "type": "org.eventplane.alarm.keyword.v1"}
    first = messages([write_event(event, {"room": "bath"}).json.encode()])
    command = [sys.executable, "-S", "-c", _CHILD]
    given = json.dumps([first, rest, seconds])
    done = subprocess.run(command, env=variables, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the router failed: {done.stderr[-2_000:]}")
    return RouterRun(**json.loads(done.stderr.splitlines()[-1]))


def messages(payloads: list[bytes]) -> dict[str, object]:
    """Publishes of a device, as the ingest rule writes them and the router gets them."""
    attributes = {"SentTimestamp": "4000000000000", "ApproximateReceiveCount": "1"}
    attributes["ApproximateFirstReceiveTimestamp"] = "4000000000000"
    bodies = (
        frame_text(IngestFrame(each, "devices/a/outbox", "a", "", 4_000_000_000_000)) for each in payloads
    )
    rest = {"messageId": "m", "receiptHandle": "r", "attributes": attributes}
    return {"Records": [{**rest, "body": each} for each in bodies]}


class _Aws(BaseHTTPRequestHandler):
    """Takes everything, after `answer_s` seconds; its tables are empty."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it holds back every second write for 40 ms
    answer_s = 0.0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        taken = [{"Id": each["Id"]} for each in body.get("Entries", [])]
        found: dict[str, Any] = {}
        if self.headers.get("X-Amz-Target", "").endswith(".Scan"):
            found = {"Items": [], "Count": 0, "ScannedCount": 0}
        answer = json.dumps({"Successful": taken} if taken else found).encode()
        sleep(self.answer_s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: it would be measured."""


@contextmanager
def deployed(folder: Path, answer_s: float = 0.0) -> Iterator[dict[str, str]]:
    """Bundle a router in `folder`; yield the environment of its process.

    It finds an AWS that takes everything after `answer_s` seconds.
    """
    # These start a process of Node.js.
    from stacks.bundling import OWN_PYTHON, copy_modules, installed
    from stacks.constructs.function_assets import CONTRACT_FILE, LOCK

    copy_modules(folder, ["lambdas.router.handler"], OWN_PYTHON)
    (folder / CONTRACT_FILE).write_bytes(load_contract().canonical)
    packages = installed(LOCK, "x86_64" if platform.machine() == "x86_64" else "arm64", OWN_PYTHON)
    handler = type("Aws", (_Aws,), {"answer_s": answer_s})
    with BackgroundServer("aws", ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield {"PYTHONPATH": f"{folder}{os.pathsep}{packages}", **_environment(folder, server.url)}


def _environment(code: Path, url: str) -> dict[str, str]:
    contract = load_contract()
    inboxes = [each.address for each in cloud_destinations(contract)]
    queue = f"{url}/0/queue"
    return {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "LAMBDA_TASK_ROOT": str(code),
        "AWS_LAMBDA_FUNCTION_NAME": "bench",  # by which they wire themselves when they are imported
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_EC2_METADATA_DISABLED": "true",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "EVENTPLANE_SOURCE": contract.device.outbox.address,
        "EVENTPLANE_SOURCE_QUEUE": queue,
        "EVENTPLANE_QUEUES": written(dict.fromkeys(inboxes, queue)),
        "EVENTPLANE_PRIORITY": "urgent",
        "EVENTPLANE_LEDGER_QUEUE": queue,
        "EVENTPLANE_ARCHIVE_BUCKET": "archive",
        "EVENTPLANE_CONTRACTS_TABLE": "contracts",
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": "subscriptions",
        "EVENTPLANE_INTEREST_TABLE": "interest",
        "EVENTPLANE_CONTRACT_REFRESH_S": "30",
        "EVENTPLANE_CONTRACT": contract.version,
    }
