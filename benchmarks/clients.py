"""What the way to AWS costs a function at its start: boto3, botocore alone, its signer alone, or none of it.

`python -m benchmarks.clients [REPEATS]`: a fresh process imports it, makes a client for each of SQS, S3 and
DynamoDB and makes one call of each; AWS is played by a process of this machine. Writes
build/bench/clients.json; ADR 12 tells what follows.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from subprocess import run
from typing import Final

from benchmarks.cold_start import CLOCK, aws, environment, installed_here
from benchmarks.results import Figure, write

REPEATS: Final = 15

_BOTO3: Final = """
import boto3; imported = time.process_time()
make = boto3.client
"""

_BOTOCORE: Final = """
from botocore.session import get_session; imported = time.process_time()
make = get_session().create_client
"""

_CALLS: Final = """
sqs, s3, table = make("sqs"), make("s3"), make("dynamodb"); made = time.process_time()
sqs.send_message_batch(QueueUrl=queue, Entries=[{"Id": "0", "MessageBody": "{}"}])
s3.put_object(Bucket="archive", Key="a", Body=b"x")
table.get_item(TableName="contracts", Key={"key": {"S": "x"}})
"""

# SigV4 as AWS documents it; no retries, no errors, no redirects, no credentials that expire: a lower bound.
_BY_HAND: Final = """
import hashlib, hmac, http.client; imported = time.process_time()
from urllib.parse import urlsplit
host = urlsplit(url).netloc
def sign(key, text):
    return hmac.new(key, text.encode(), "sha256").digest()
def call(service, method, path, body, headers):
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-date": stamp, "x-amz-content-sha256": digest, **headers}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\\n" for name in sorted(headers))
    request = f"{method}\\n{path}\\n\\n{lines}\\n{names}\\n{digest}"
    scope = f"{stamp[:8]}/us-east-1/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\\n{stamp}\\n{scope}\\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = b"AWS4x"
    for part in scope.split("/"):
        key = sign(key, part)
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential=x/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    line.request(method, path, body, headers)
    return json.loads(line.getresponse().read() or b"{}")
"""

_REQUESTS: Final = """
def post(service, target, document):
    headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": target}
    return call(service, "POST", "/", json.dumps(document).encode(), headers)
line = http.client.HTTPConnection(urlsplit(url).netloc); made = time.process_time()
post("sqs", "AmazonSQS.SendMessageBatch",
     {"QueueUrl": queue, "Entries": [{"Id": "0", "MessageBody": "{}"}]})
call("s3", "PUT", "/archive/a", b"x", {})
post("dynamodb", "DynamoDB_20120810.GetItem", {"TableName": "contracts", "Key": {"key": {"S": "x"}}})
"""

# The same, signed by botocore.
_SIGNER: Final = """
import http.client
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials; imported = time.process_time()
from urllib.parse import urlsplit
who = Credentials("x", "x")
def call(service, method, path, body, headers):
    request = AWSRequest(method, url + path, data=body, headers=headers)
    (S3SigV4Auth if service == "s3" else SigV4Auth)(who, service, "us-east-1").add_auth(request)
    line.request(method, path, body, dict(request.headers))
    return json.loads(line.getresponse().read() or b"{}")
"""

_CHILD: Final = """
import time; began = time.process_time()
import json, os, re
url = os.environ["AWS_ENDPOINT_URL"]; queue = url + "/0/queue"
{body}
ended = time.process_time()
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
marks = [began, imported, made, ended]
print(*[1000 * (b - a) for a, b in zip(marks, marks[1:])], 1000 * (ended - began), int(peak[1]) / 1024)
"""

PARTS: Final = ("import_ms", "clients_ms", "first_calls_ms", "all_ms", "memory_mib")
WAYS: Final = {
    "boto3": _BOTO3 + _CALLS,
    "botocore": _BOTOCORE + _CALLS,
    "signer": _SIGNER + _REQUESTS,
    "by_hand": _BY_HAND + _REQUESTS,
}


def main(repeats: int) -> None:
    """Measure all ways in turn, and print and write the medians."""
    runs: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as directory, aws() as url:
        variables = environment(Path(directory), installed_here(), url)
        for _ in range(repeats + 1):
            for way, body in WAYS.items():
                command = [sys.executable, "-S", "-c", _CHILD.replace("{body}", body)]
                done = run(command, env=variables, capture_output=True, text=True, check=True)
                runs[way].append([float(each) for each in done.stdout.split()])
    figures = [
        Figure(
            f"{way}_{part.rpartition('_')[0]}",
            statistics.median(values),
            part.rpartition("_")[2],
            higher_is_better=False,
        )
        for way, of in runs.items()
        for part, values in zip(PARTS, zip(*of[1:], strict=True), strict=True)
    ]
    write("clients", figures, f"python -m benchmarks.clients {repeats}", CLOCK)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS)
