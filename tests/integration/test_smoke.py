"""The smoke test of an environment, over the plane in the local cloud: what it shows, what it leaves."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eventplane.envelope import Envelope
from lab.cloud import CloudEndpoint
from lab.plane import Plane, invoke
from tests.integration.cloud import Inboxes

ROOT = Path(__file__).parents[2]
STEPS = [
    "deployment", "certificate", "connection", "send", "command", "other device's topic", "decommissioning",
    "notification", "canary", "event", "alarm", "malformed message", "forged event", "archive", "audit",
]  # fmt: skip
USER = "smoke-tester"


def environment(cloud: CloudEndpoint, folder: Path) -> dict[str, str]:
    """What a person exports before `make smoke`, where devices connect elsewhere than to AWS."""
    ca = folder / "ca.pem"
    ca.write_text(cloud.ca_pem)
    return {
        **cloud.environment(),
        "EVENTPLANE_DEVICE_ENDPOINT": f"{cloud.mqtt_host}:{cloud.mqtt_port}",
        "EVENTPLANE_DEVICE_CA": str(ca),
    }


def smoke(environment: Mapping[str, str], contract: Path) -> subprocess.Popen[str]:
    """Start the command, whose result is JSON."""
    words = ["smoke", "--env", "local", "--json", "--contract", str(contract)]
    return subprocess.Popen(
        [sys.executable, "-m", "eventplane", *words],
        env=dict(environment), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result_of(command: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for its end, and return the result with the exit `status`."""
    output, problems = command.communicate()
    assert output, problems
    found: dict[str, Any] = json.loads(output)
    return {**found, "status": command.returncode}


def statuses(result: Mapping[str, Any]) -> dict[str, str]:
    return {each["step"]: each["status"] for each in result["steps"]}


class Left:
    """What a run could leave in the account."""

    def __init__(self, plane: Plane, inboxes: Inboxes) -> None:
        self._plane, self._inboxes = plane, inboxes
        # Its thing and certificate stay from its first run on.
        invoke(plane.cloud, "eventplane-local-canary", {"do": "alarm"})
        self.before = self._all()
        # What earlier tests left there would keep the run from looking.
        self._came()

    def nothing(self, run: str) -> None:
        """Assert that nothing is there that was not before, and nothing desired of or sent by `run`."""
        assert self._all() == self.before
        table = self._plane.outputs["DesiredTable"]
        assert run not in json.dumps(self._plane.cloud.client("dynamodb").scan(TableName=table)["Items"])
        assert not [each for each in self._came() if run in each.json]

    def _came(self) -> list[Envelope]:
        """Empty the inboxes, and return all that ever came into one and was not taken by the run."""
        return [each for service in self._plane.inboxes for each in self._inboxes.events(service)]

    def _all(self) -> dict[str, set[str]]:
        cloud, outputs = self._plane.cloud, self._plane.outputs
        iot, dynamodb = cloud.client("iot"), cloud.client("dynamodb")
        subscribed = cloud.client("sns").list_subscriptions()["Subscriptions"]
        queues = cloud.client("sqs").get_paginator("list_queues").paginate()
        return {
            "certificates": {each["certificateId"] for each in iot.list_certificates()["certificates"]},
            "things": {each["thingName"] for each in iot.list_things()["things"]},
            "queues": {url for page in queues for url in page.get("QueueUrls", [])},
            "subscriptions": {each["SubscriptionArn"] for each in subscribed},
            "devices": {
                each["thing"]["S"] for each in dynamodb.scan(TableName=outputs["FleetTable"])["Items"]
            },
        }


@pytest.fixture
def left(plane: Plane, inboxes: Inboxes) -> Left:
    return Left(plane, inboxes)


def test_every_step_passes(emulator: CloudEndpoint, contract_file: Path, left: Left, tmp_path: Path) -> None:
    result = result_of(smoke(environment(emulator, tmp_path), contract_file))
    unsound = [each for each in result["steps"] + result["removed"] if each.get("status") != "passed"]
    assert (result["status"], result["passed"]) == (0, True), json.dumps(unsound, indent=1)
    assert statuses(result) == dict.fromkeys(STEPS, "passed")
    for each in result["steps"]:
        if each["step"] not in ("connection", "send", "other device's topic", "audit"):
            assert each["requests"], f"no request of {each['step']}"
            assert each["reference"]
    measured = {each["step"] for each in result["steps"] if each["latency_s"] is not None}
    assert {"certificate", "command", "notification", "canary", "event", "alarm"} <= measured
    assert not [each for each in result["removed"] if each["problem"]]
    left.nothing(result["run"])
    prefix = "state ALARM of "
    raised = [each["what"].removeprefix(prefix) for each in result["removed"] if prefix in each["what"]]
    assert raised
    alarms = emulator.client("cloudwatch").describe_alarms(AlarmNames=raised)["MetricAlarms"]
    assert "ALARM" not in {each["StateValue"] for each in alarms}


def test_interrupts_clean_up(
    emulator: CloudEndpoint, contract_file: Path, left: Left, tmp_path: Path
) -> None:
    command = smoke(environment(emulator, tmp_path), contract_file)
    assert command.stderr is not None
    for line in command.stderr:
        if line.startswith("connection: passed"):
            break
    command.send_signal(signal.SIGINT)
    result = result_of(command)
    assert (result["status"], result["passed"]) == (1, False)
    assert statuses(result)["connection"] == "passed"
    left.nothing(result["run"])
