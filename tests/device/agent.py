"""Run the commands of the tests on the emulated device: one line of JSON each way over a virtio port."""

import json
import subprocess
from pathlib import Path

with Path("/dev/virtio-ports/agent").open("r+b", buffering=0) as port:
    port.write(b'{"ready": true}\n')
    for line in port:
        try:
            done = subprocess.run(json.loads(line), capture_output=True, check=False)
            status, output, errors = done.returncode, done.stdout, done.stderr
        except OSError as error:
            status, output, errors = 127, b"", str(error).encode()
        answer = {"status": status, "output": output.decode("utf-8", "replace")}
        answer["errors"] = errors.decode("utf-8", "replace")
        rest = memoryview(json.dumps(answer).encode() + b"\n")
        while rest:  # a write to the port takes at most 32 KiB
            rest = rest[port.write(rest) :]
