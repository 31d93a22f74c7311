"""What each function computes from a fresh process to the answer to its first event, and what of it is boto3.

`python -m benchmarks.cold_start [REPEATS]` bundles the functions as a deployment does and starts each of them
anew, with AWS played by a process of this machine. Writes build/bench/cold-start.json. On Lambda one has to
add the start of the runtime and the network, and to divide by the share of a core that its memory buys.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any, Final

from benchmarks.results import Figure, write
from contract import load_contract
from eventplane.contract import Contract, compile_contract
from eventplane.contract.publication import cloud_destinations
from eventplane.envelope import write_event
from eventplane.ingest import IngestFrame, frame_text
from local.background import BackgroundServer

FUNCTIONS: Final = {
    "router": "router.handler",
    "archive": "archive.tap",
    "ingest_errors": "archive.ingest_errors",
    "webhook": "http_sink.webhook",
}
"""Their modules below `lambdas`."""

REPEATS: Final = 15
AIM_MS: Final = 120
"""For the router."""

CLOCK: Final = "CPU time of a fresh process after the interpreter's start, median"

_CHILD: Final = """
import time; began = time.process_time()
import json, re, sys
import botocore.session; clients = time.process_time()
import importlib
from local.background import BackgroundServer
handler = importlib.import_module(f"lambdas.{sys.argv[1]}"); wired = time.process_time()
class Context:
    aws_request_id = function_name = invoked_function_arn = "x"
    memory_limit_in_mb = 512
    def get_remaining_time_in_millis(self): return 30_000
answer = handler.handle(json.loads(sys.argv[2]), Context()); ended = time.process_time()
assert answer == {"batchItemFailures": []}, answer
marks = [began, clients, wired, ended]
figures = [1000 * (b - a) for a, b in zip(marks, marks[1:])]
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
figures += [1000 * (ended - began), int(peak[1]) / 1024]
print(json.dumps(figures), file=sys.stderr)
"""

PARTS: Final = ("import_botocore_ms", "init_rest_ms", "first_event_ms", "all_ms", "memory_mib")


class _Aws(BaseHTTPRequestHandler):
    """Takes everything, after `answer_s` seconds; its tables are empty."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it holds back every second write for 40 ms
    answer_s = 0.0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        taken = [{"Id": each["Id"]} for each in body.get("Entries", [])]
        found: dict[str, Any] = {"SecretString": "a" * 64} if "SecretId" in body else {}
        if self.headers.get("X-Amz-Target", "").endswith(".Scan"):
            found = {"Items": [], "Count": 0, "ScannedCount": 0}
        self._answer(json.dumps({"Successful": taken} if taken else found).encode())

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        sleep(self.answer_s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: it would be measured."""


@contextmanager
def aws(answer_s: float = 0.0) -> Iterator[str]:
    """The address of an AWS that says yes after `answer_s` seconds."""
    handler = type("Aws", (_Aws,), {"answer_s": answer_s})
    with BackgroundServer("aws", ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield server.url


def _batch(function: str) -> str:
    event = write_event(
        {"id": "1", "source": "/homes/a", "type": "org.eventplane.alarm.keyword.v1"}, {"room": "bath"}
    )
    body = frame_text(IngestFrame(event.json.encode(), "devices/a/outbox", "a", "", 4_000_000_000_000))
    if function == "webhook":
        body = event.json
    if function == "ingest_errors":
        names = {"ruleName": "r", "topic": "t", "clientId": "a", "base64OriginalPayload": "e30="}
        body = json.dumps({**names, "failures": []})
    attributes = {"SentTimestamp": "4000000000000", "ApproximateReceiveCount": "1"}
    record = {"messageId": "m", "receiptHandle": "r", "body": body, "attributes": attributes}
    return json.dumps({"Records": [record]})


def installed_here() -> Path:
    """The functions' packages, for this machine."""
    from stacks.bundling import installed  # starts a process of Node.js
    from stacks.constructs.function_assets import LOCK

    return installed(LOCK, "x86_64" if platform.machine() == "x86_64" else "arm64")


def _contract() -> Contract:
    """Ours, with one inbox as a webhook."""
    document = json.loads(load_contract().canonical)
    document["participants"]["alarm-centre"]["inbox"]["webhook"] = {}
    return compile_contract(document, "benchmark")


def environment(code: Path, packages: Path, url: str, source: str | None = None) -> dict[str, str]:
    """What a function's process is started with, with its `code` and `packages`, and AWS at `url`."""
    contract = _contract()
    inboxes = [each.address for each in cloud_destinations(contract)]
    queue = f"{url}/0/queue"
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{code}{os.pathsep}{packages}",
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
        "EVENTPLANE_SOURCE": contract.device.outbox.address if source is None else source,
        "EVENTPLANE_SOURCE_QUEUE": queue,
        "EVENTPLANE_QUEUES": json.dumps(dict.fromkeys(inboxes, queue)),
        "EVENTPLANE_PRIORITY": "urgent",
        "EVENTPLANE_LEDGER_QUEUE": queue,
        "EVENTPLANE_ARCHIVE_BUCKET": "archive",
        "EVENTPLANE_CONTRACTS_TABLE": "contracts",
        "EVENTPLANE_SUBSCRIPTIONS_TABLE": "subscriptions",
        "EVENTPLANE_INTEREST_TABLE": "interest",
        "EVENTPLANE_CONTRACT_REFRESH_S": "30",
        "EVENTPLANE_CONTRACT": contract.version,
        "EVENTPLANE_WEBHOOK_URL": f"{url}/hook",
        "EVENTPLANE_WEBHOOK_SECRET": "secret",
        "EVENTPLANE_WEBHOOK_ORIGIN": "bench",
        "EVENTPLANE_SINKS": "anywhere",
        "EVENTPLANE_OUTBOX_QUEUE": queue,
        "EVENTPLANE_DEAD_LETTER_QUEUE": queue,
        "EVENTPLANE_CONCURRENCY": "1",
        "EVENTPLANE_WAYS_IN": json.dumps([queue]),
        "EVENTPLANE_LETTERS_TO": json.dumps([queue]),
    }


def figures(repeats: int) -> list[Figure]:
    """The medians of all functions."""
    packages = installed_here()
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, aws() as url:
        for function in FUNCTIONS:
            code = unpack(function, Path(directory))
            source = "alarm-centre.inbox" if function == "webhook" else None
            variables = environment(code, packages, url, source)
            runs = [run(function, variables) for _ in range(repeats + 1)][1:]
            for part, values in zip(PARTS, zip(*runs, strict=True), strict=True):
                name, _, unit = part.rpartition("_")
                aim = AIM_MS if (function, part) == ("router", "all_ms") else None
                median = statistics.median(values)
                found.append(Figure(f"{function}_{name}", median, unit, aim, higher_is_better=False))
    return found


def main(repeats: int) -> None:
    """Measure, print and write."""
    write("cold-start", figures(repeats), f"python -m benchmarks.cold_start {repeats}", CLOCK)


def unpack(function: str, directory: Path) -> Path:
    """The code of `function` in a folder below `directory`, as a deployment bundles it."""
    from stacks.bundling import compile_bytecode, copy_packages  # starts a process of Node.js
    from stacks.constructs.function_assets import CONTRACT_FILE

    code = directory / function
    code.mkdir()
    folder = FUNCTIONS[function].partition(".")[0]
    copy_packages(code, "eventplane", "lambdas/common", f"lambdas/{folder}")
    (code / CONTRACT_FILE).write_bytes(_contract().canonical)
    compile_bytecode(code, str(code))
    return code


def run(function: str, variables: dict[str, str]) -> list[float]:
    """The figures of one process, by `PARTS`."""
    command = [sys.executable, "-S", "-c", _CHILD, FUNCTIONS[function], _batch(function)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    figures: list[float] = json.loads(done.stderr.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)
