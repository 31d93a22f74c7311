"""The emulated cloud. Only this file and `emulator_program` know which emulator it is (ministack)."""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Final

from eventplane.resource_names import resource_name
from lab.cloud import CloudEndpoint
from lab.errors import LocalError, ToolMissingError
from lab.network import LOOPBACK, free_port
from lab.process import Supervisor, kill_by_environment

EMULATOR: Final = "emulator"
"""The name of its process, and of its log."""

PYTHON: Final = Path(__file__).parent.parent / ".venv-emulator" / "bin" / "python"
PROGRAM: Final = Path(__file__).with_name("emulator_program.py")
REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
READY_SECONDS: Final = 60.0

_CA: Final = "devices-ca.pem"
"""The file with the authority that devices trust."""

_TOKENS: Final[dict[str, str]] = {}
"""What opens the own paths of the emulators that this process started, by their URLs."""

_FAILED: Final = re.compile(r"(\d{4}-\S+ \S+) .*ESM: Lambda (\S+) failed processing")


class MqttListenerError(LocalError):
    """The emulator runs without its MQTT listener. `state` is what it reports of it."""

    def __init__(self, state: str, port: int) -> None:
        self.state, self.port = state, port
        super().__init__(
            f"the emulator's MQTT listener on port {port} is {state}; see its log, then `make setup`"
        )


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message in a queue: `sent_at` in Unix seconds, how often it was received, whether it can be."""

    id: str
    sent_at: float
    receives: int
    is_visible: bool


def start_emulator(
    supervisor: Supervisor,
    *,
    port: int | None = None,
    functions_call: str | None = None,
    functions_idle_s: int | None = None,
    executions: int | None = None,
) -> CloudEndpoint:
    """Start a cloud on free ports, with IAM and IoT policies enforced, which keeps nothing when it ends.

    The functions send their AWS calls to `functions_call`, by default to the cloud itself. After
    `functions_idle_s` (None: some minutes) one process of a function is kept: concurrent events then wait
    for the start of another. The account has so many `executions` of functions at a time (None: as many as
    this machine carries). Raises `MqttListenerError` if devices cannot connect, `ToolMissingError`, or what
    `Supervisor.start` raises.
    """
    if not PYTHON.exists():
        raise ToolMissingError("the emulated cloud")
    port, mqtt_port = port or free_port(), free_port()
    url = f"http://{LOOPBACK}:{port}"
    # Under AUTH=true the emulator's root user is whoever presents the access key that it was started with.
    key, secret, _TOKENS[url] = (f"AKIA{token_hex(8).upper()}", token_hex(20), token_hex(16))
    home = (supervisor.run_dir / "emulator").resolve()
    home.mkdir(parents=True, exist_ok=True)
    supervisor.start(
        EMULATOR,
        [str(PYTHON), "-P", str(PROGRAM)],
        env=_environment(port, mqtt_port, home)
        | {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "EMULATOR_TOKEN": _TOKENS[url]}
        | ({"AWS_ENDPOINT_URL": functions_call} if functions_call else {})
        | ({"LAMBDA_WARM_TTL_SECONDS": str(functions_idle_s)} if functions_idle_s else {})
        | ({"LAMBDA_ACCOUNT_CONCURRENCY": str(executions)} if executions else {}),
        cwd=home,
        ready=lambda: _get(f"{url}/_ministack/ready") is not None,
        ready_seconds=READY_SECONDS,
    )
    state = json.loads(_get(f"{url}/_ministack/health") or b"{}").get("iot_mtls", "unknown")
    ca_pem = _get(f"{url}/_ministack/iot/ca.pem")
    if state != "listening" or ca_pem is None:
        raise MqttListenerError(state, mqtt_port)
    (home / _CA).write_bytes(ca_pem)
    return CloudEndpoint(
        url=url,
        region=REGION,
        account=ACCOUNT,
        mqtt_host=LOOPBACK,
        mqtt_port=mqtt_port,
        ca_pem=ca_pem.decode(),
        access_key_id=key,
        secret_access_key=secret,
    )


def queued_messages(cloud: CloudEndpoint) -> dict[str, list[QueuedMessage]]:
    """Return the messages in the queues of `cloud` by queue name, without receiving them; {} on no answer."""
    text = _get(f"{cloud.url}/_ministack/sqs/messages?account={cloud.account}") or b"{}"
    by_region = json.loads(text).get("messages", {}).get(cloud.account, {})
    return {
        url.rpartition("/")[2]: [
            QueuedMessage(each["MessageId"], each["SentTimestamp"], each["ReceiveCount"], each["IsVisible"])
            for each in messages
        ]
        for queues in by_region.values()
        for url, messages in queues.items()
    }


def failed_invocations(log: Path) -> Iterator[tuple[float, str]]:
    """Yield time (Unix seconds) and function of each batch that failed as a whole, by the cloud's `log`."""
    with log.open(errors="replace") as lines:
        for line in lines:
            if found := _FAILED.match(line):
                at = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").astimezone()
                yield at.timestamp(), found[2]


def _environment(port: int, mqtt_port: int, home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    return {
        **ours,
        "AUTH": "true",
        "BIND_HOST": LOOPBACK,
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_PORT": str(mqtt_port),
        "IOT_RETRANSMIT_SECONDS": "5",
        "MINISTACK_REGION": REGION,
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "PERSIST_STATE": "0",
        "S3_PERSIST": "0",
        "SFTP_ENABLED": "0",
        "STATE_DIR": str(home / "state"),
        "S3_DATA_DIR": str(home / "s3"),
        "TMPDIR": str(home),
        "LOG_LEVEL": "INFO",
        "AWS_DEFAULT_REGION": REGION,
        # Functions get these, as no environment of a deployed plane has its devices' port here.
        "EVENTPLANE_DEVICE_ENDPOINT": f"{LOOPBACK}:{mqtt_port}",
        "EVENTPLANE_DEVICE_CA": str(home / _CA),
        # The functions run in its child processes: their output must not wait in a buffer.
        "PYTHONUNBUFFERED": "1",
    }


def _get(url: str) -> bytes | None:
    """The body of a successful answer, or None while there is none."""
    token = _TOKENS.get(url[: url.index("/", len("http://"))], "")
    try:
        request = urllib.request.Request(url, headers={"X-Emulator-Token": token})  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def kill_functions(cloud: CloudEndpoint, *names: str) -> int:
    """Kill every process of the functions `names` (SIGKILL) and return how many.

    It returns when they have ended: an event sent to a process that is about to end would be redelivered
    only after the visibility timeout of its queue.
    """
    functions = {resource_name("local", name) for name in names}
    return kill_by_environment(
        lambda variables: (
            variables.get("AWS_LAMBDA_FUNCTION_NAME") in functions
            and variables.get("AWS_ENDPOINT_URL") == cloud.url
        )
    )
