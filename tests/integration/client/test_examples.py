"""The programs in lab/examples/ work, and the receiver of webhooks. call_for_help.py has more tests, in the
cloud and in a home; audit_notebook.py has its own in tests/unit/glue_jobs/test_small.py."""

import base64
import http.client
import os
import re
import runpy
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from contract import load_contract
from eventplane.contract import Contract, WebhookMode
from eventplane.envelope import Envelope, write_event
from eventplane.resource_names import resource_name
from eventplane_client import connect
from eventplane_client.dynamodb_duplicates import TABLE
from lab.process import Child, Supervisor
from lab.things import Authority
from parts.webhooks.request import Posted, to_request
from parts.webhooks.signing import signature_headers
from tests.eventually import eventually
from tests.integration.edge.conftest import SECONDS, Home, RecordingCloud, wait_for
from tests.small_contract import with_changes
from tests.unit.client.test_functions import record
from tests.unit.client.worlds import create_filter_table
from tests.unit.lambdas.support import LambdaContext

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "lab" / "examples"
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def start(supervisor: Supervisor, tmp_path: Path) -> Callable[..., Child]:
    """Starts an example, or another program, as a process with the variables given, beside its own."""

    def start(name: str, **variables: str) -> Child:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path), **variables}
        program = EXAMPLES / f"{name}.py"
        return supervisor.start(program.stem, [sys.executable, str(program)], env=environment)

    return start


@pytest.fixture
def home_contract() -> Contract:
    """The shipped contract, but alarms go to nobody in the cloud, where nobody runs who would reply."""
    routes = ("routes/alarms-to-alarm-centre", "routes/daily-life-to-family")
    return with_changes(load_contract(), dict.fromkeys(routes))


def address(home: Home) -> dict[str, str]:
    return {"EVENTPLANE_CLIENT_TRANSPORT": f"mqtt://127.0.0.1:{home.broker.port}"}


def test_every_example_is_listed_and_tested() -> None:
    programs = {each.name for each in EXAMPLES.glob("*.py")}
    assert set(re.findall(r"\[(\w+\.py)\]\(\1\)", (EXAMPLES / "README.md").read_text())) == programs
    tests = Path(__file__).read_text()
    assert [each for each in programs if each.removesuffix(".py") not in tests] == []


def test_it_reports(home: Home, cloud: RecordingCloud, start: Callable[..., Child], tmp_path: Path) -> None:
    sensor = tmp_path / "temp"
    sensor.write_text("21500\n")
    thermometer = start("thermometer", SENSOR=str(sensor), INTERVAL_S="0.2", **address(home))
    assert eventually(lambda: "stored on this device" in thermometer.log.read_text(), SECONDS)
    home.forwarder.kill()
    sensor.write_text("18000\n")
    assert eventually(lambda: "no receipt yet" in thermometer.log.read_text(), SECONDS)
    home.forwarder.start()

    def values() -> set[float]:
        readings = (each for each in cloud.events if each.type == "org.eventplane.climate.reading.v1")
        return {each.data()["value"] for each in readings}

    wait_for(lambda: values() == {21.5, 18.0})


def test_who_answered(home: Home, cloud: RecordingCloud, start: Callable[..., Child], tmp_path: Path) -> None:
    start(
        "call_for_help",
        CALLS=str(tmp_path / "calls.db"),
        EVENTPLANE_CLIENT_PARTICIPANT="call-service",
        **address(home),
    )
    with raise_alarm(home, timeout_s=SECONDS) as voice:
        assert voice.communicate() == ("call-service: handled\nstored\n", None)
    wait_for(lambda: [each.type for each in cloud.events].count("org.eventplane.alarm.keyword.v1") == 1)


def test_the_voice_service_stores_the_alarm(home: Home, cloud: RecordingCloud) -> None:
    home.forwarder.kill()
    with raise_alarm(home, timeout_s=1) as voice:
        try:
            assert voice.stdout.readline().startswith("not sent: does the forwarder run?")
            home.forwarder.start()
            assert voice.communicate(timeout=SECONDS) == ("stored\n", None)
        finally:
            voice.kill()
    wait_for(lambda: [each.type for each in cloud.events].count("org.eventplane.alarm.keyword.v1") == 1)


def raise_alarm(home: Home, timeout_s: float) -> subprocess.Popen[str]:
    voice = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "voice_service.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REPLY_TIMEOUT_S": str(timeout_s), **address(home)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    voice.stdin.write("good morning\nHelp!\n")
    voice.stdin.flush()
    return voice


def test_the_care_report_has_the_mean_of_each_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENTPLANE_CLIENT_TRANSPORT", "memory:care-report")
    monkeypatch.setenv("READINGS", str(tmp_path / "readings.db"))
    monkeypatch.setenv("IDLE_S", "0")
    with connect(participant="care-analytics") as reader, connect(participant="climate-service") as climate:
        reader.subscribe({"suffix": {"type": ".reading.v1"}})
        for id, value in [("1", 20), ("2", 23), ("2", 23)]:
            climate.put(reading(id, value))
        report()
        report()
        climate.put(reading("3", 26))
        report()
    line = "{}: temperature {} Cel, mean of {}\n"
    assert capsys.readouterr().out == 2 * line.format("", 21.5, 2) + line.format("", 23.0, 3)


def report() -> None:
    runpy.run_path(str(EXAMPLES / "care_report.py"))


def reading(id: str, value: float) -> Envelope:
    data = {"quantity": "temperature", "value": value, "unit": "Cel"}
    return write_event({"id": id, "source": "/r", "type": "org.eventplane.climate.reading.v1"}, data)


@mock_aws
def test_the_function_tells_the_relatives_of_each_alarm_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    sqs, sns, dynamodb = (boto3.client(each) for each in ("sqs", "sns", "dynamodb"))
    for channel in ("inbox", "outbox"):
        sqs.create_queue(QueueName=resource_name("test", f"family-app-{channel}"))
    create_filter_table(dynamodb, resource_name("test", TABLE))
    topic = sns.create_topic(Name="relatives")["TopicArn"]
    phone = sqs.create_queue(QueueName="phone")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=phone, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    monkeypatch.setenv("TOPIC", topic)
    monkeypatch.setenv("EVENTPLANE_ENV", "test")

    handle = runpy.run_path(str(EXAMPLES / "notify_family.py"))["handle"]
    alarm = write_event(
        {"id": "1", "source": "/v", "type": "org.eventplane.alarm.keyword.v1", "senderdevice": "home-1"},
        {"keyword": "help"},
    )
    for attempt in (1, 2):
        batch = {"Records": [record("m", alarm.json, attempt), record("n", reading("2", 20).json, attempt)]}
        assert handle(batch, LambdaContext()) == {"batchItemFailures": []}
    told = sqs.receive_message(QueueUrl=phone, MaxNumberOfMessages=10)["Messages"]
    assert [re.findall(r"home-1 raised an alarm", each["Body"]) for each in told] == [
        ["home-1 raised an alarm"]
    ]


@pytest.mark.parametrize("is_over_tls", [True, False])
def test_the_receiver_stores_once(start: Callable[..., Child], tmp_path: Path, is_over_tls: bool) -> None:
    authority = Authority(tmp_path / "certificates")
    identity = authority.issue("receiver")
    both = tmp_path / "both.pem"
    both.write_bytes(identity.certificate.read_bytes() + identity.key.read_bytes())
    receiver = start(
        "../../parts/webhooks/receiver",
        KEYS=KEY,
        RECEIVED=str(tmp_path / "received.db"),
        PORT="0",
        CERTIFICATE=str(both) if is_over_tls else "",
    )
    assert eventually(lambda: "port " in receiver.log.read_text(), SECONDS), receiver.log.read_text()
    port = int(re.findall(r"port (\d+)", receiver.log.read_text())[0])

    def post(request: Posted, headers: Mapping[str, str]) -> int:
        connection: Any = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        if is_over_tls:
            context = ssl.create_default_context(cafile=str(authority.ca))
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context)
        connection.request("POST", "/v1", request.body, {**request.headers, **headers})
        try:
            return int(connection.getresponse().status)
        finally:
            connection.close()

    alarm = to_request(reading("1", 20), WebhookMode.STRUCTURED)
    forged = to_request(reading("2", 20), WebhookMode.STRUCTURED)
    genuine = signature_headers([base64.b64decode(KEY)], alarm.id, int(time.time()), alarm.body)
    assert [post(alarm, genuine), post(alarm, genuine)] == [204, 204]
    assert [post(forged, genuine), post(alarm, {})] == [401, 401]
    assert receiver.log.read_text().count("org.eventplane.climate.reading.v1") == 1
