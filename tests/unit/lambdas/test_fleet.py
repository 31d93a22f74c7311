"""The provisioning hook and the rotation of certificates; moto plays the registry and AWS IoT."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from eventplane.fleet import FLEET_KEY, FleetTable, LifecycleState, decommissioned, made, quarantined
from eventplane.settings import SettingsError
from lambdas.common.queue import QueueMessage
from lambdas.common.queue_function import queue_function
from lambdas.fleet import hook, rotation
from tests.dynamodb import create_table
from tests.rule_failure import rule_failure
from tests.unit.lambdas.support import NOW_MS, LambdaContext, message, sqs_event

TABLE = "fleet"
THING = "home-1"


class Aws:
    """The registry and AWS IoT with the thing `THING`."""

    def __init__(self) -> None:
        self.iot = boto3.client("iot")
        self.sqs = boto3.client("sqs")
        self.queue = self.sqs.create_queue(QueueName="connections")["QueueUrl"]
        dynamodb = boto3.client("dynamodb")
        create_table(dynamodb, TABLE, FLEET_KEY)
        self.registry = FleetTable(dynamodb, TABLE)
        self.arn = self.iot.create_thing(thingName=THING)["thingArn"].rsplit(":", 1)[0]

    def certificate(self) -> str:
        """An active certificate of the thing."""
        created = self.iot.create_keys_and_certificate(setAsActive=True)
        self.iot.attach_thing_principal(thingName=THING, principal=created["certificateArn"])
        return str(created["certificateId"])

    def graces(self) -> list[QueueMessage]:
        """The delayed messages of the function to itself."""
        found = self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages", [])
        return [message(each["MessageId"], each["Body"]) for each in found]

    def status(self, certificate: str) -> str:
        found = self.iot.describe_certificate(certificateId=certificate)
        return str(found["certificateDescription"]["status"])

    def attached(self) -> set[str]:
        arns = self.iot.list_thing_principals(thingName=THING)["principals"]
        return {arn.rsplit("/", 1)[-1] for arn in arns}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "POWERTOOLS_SERVICE_NAME": "test",
        "EVENTPLANE_FLEET_TABLE": TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        aws = Aws()
        monkeypatch.setenv("EVENTPLANE_CERTIFICATE_ARNS", f"{aws.arn}:cert/")
        monkeypatch.setenv("EVENTPLANE_SOURCE_QUEUE", aws.queue)
        monkeypatch.setenv("EVENTPLANE_CERTIFICATE_GRACE_S", "0")
        hook.service.cache_clear()
        yield aws
    hook.service.cache_clear()


def asked(serial: Any = THING, offered: str = "a") -> dict[str, Any]:
    """What AWS IoT tells the hook."""
    return {
        "claimCertificateId": "the claim's",
        "certificateId": offered,
        "certificatePem": "-----BEGIN CERTIFICATE-----",
        "templateArn": "arn:aws:iot:us-east-1:000000000000:provisioningtemplate/fleet",
        "clientId": f"claim-{serial}",
        "parameters": {"SerialNumber": serial},
    }


def connected(certificate: str, thing: str = THING) -> QueueMessage:
    return message(certificate, json.dumps({"thing": thing, "certificate": certificate}))


class Hurried(LambdaContext):
    """An invocation that is about to end."""

    def get_remaining_time_in_millis(self) -> int:
        return 29_999


def keep(*messages: QueueMessage, context: LambdaContext | None = None) -> list[str]:
    """The ids of the messages that come again."""
    answer = queue_function(rotation.service)(sqs_event(*messages), context or LambdaContext())
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def test_a_device_that_was_made_is_allowed_and_written_down(
    aws: Aws, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.registry.write(made(THING, NOW_MS))
    assert hook.handle(asked(), LambdaContext()) == {"allowProvisioning": True}
    device = aws.registry.read(THING)
    assert device is not None
    assert (device.pending, device.registrations) == ("a", 1)
    (metric,) = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert json.loads(metric)["RegistrationAllowed"] == [1.0]


@pytest.mark.parametrize(
    "event", [asked(), asked(""), asked(None), asked(7), asked("x/y"), asked("x" * 5000), {}]
)
def test_a_stranger_is_refused_with_the_reason_in_log_and_metric(
    aws: Aws,
    event: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert hook.handle(event, LambdaContext()) == {"allowProvisioning": False}
    (metric,) = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    (logged,) = [vars(each) for each in caplog.records if each.message == "registration refused"]
    assert json.loads(metric)["reason"] == logged["reason"] == "unknown"
    assert len(logged["thing"]) <= 256


def test_a_registry_that_does_not_answer_allows_nothing(aws: Aws) -> None:
    boto3.client("dynamodb").delete_table(TableName=TABLE)
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        hook.handle(asked(), LambdaContext())


def test_two_writers_do_not_overwrite_each_other(aws: Aws) -> None:
    assert aws.registry.write(made(THING, NOW_MS))
    assert not aws.registry.write(made(THING, NOW_MS))
    read = aws.registry.read(THING)
    assert read is not None
    assert aws.registry.write(replace(read, reason="first"))
    assert not aws.registry.write(replace(read, reason="second"))


def test_the_certificate_that_was_seen_is_the_devices_and_those_before_are_retired(aws: Aws) -> None:
    old, lost, new = (aws.certificate() for _ in range(3))
    device = replace(made(THING, NOW_MS), state=LifecycleState.PROVISIONED, certificate=old)
    aws.registry.write(replace(device, pending=new, replaced=frozenset({lost})))
    assert keep(connected(new), connected(new)) == []
    confirmed = aws.registry.read(THING)
    assert confirmed is not None
    assert (confirmed.certificate, confirmed.pending, confirmed.replaced) == (new, None, {old, lost})
    assert aws.attached() == {old, lost, new}
    assert keep(*aws.graces()) == []
    after = aws.registry.read(THING)
    assert after is not None
    assert (after.certificate, after.replaced) == (new, frozenset())
    assert [aws.status(each) for each in (old, lost, new)] == ["INACTIVE", "INACTIVE", "ACTIVE"]
    assert aws.attached() == {new}


def test_a_connection_that_the_rule_could_not_hand_over_counts_once_it_is_redriven(aws: Aws) -> None:
    new = aws.certificate()
    aws.registry.write(replace(made(THING, NOW_MS), pending=new))
    lifecycle = {"clientId": THING, "eventType": "connected", "principalIdentifier": new, "versionNumber": 0}
    assert keep(message("m1", rule_failure(json.dumps(lifecycle).encode()))) == []
    device = aws.registry.read(THING)
    assert device is not None
    assert device.certificate == new


def test_a_connection_with_the_old_certificate_retires_nothing(aws: Aws) -> None:
    old, new = aws.certificate(), aws.certificate()
    device = replace(made(THING, NOW_MS), state=LifecycleState.PROVISIONED, certificate=old, pending=new)
    aws.registry.write(device)
    assert keep(connected(old)) == []
    assert aws.graces() == []
    assert aws.attached() == {old, new}
    assert aws.registry.read(THING) == replace(device, revision=1)


def test_the_end_of_a_grace_that_no_longer_counts_retires_nothing(aws: Aws) -> None:
    current, taken_back = aws.certificate(), aws.certificate()
    device = replace(made(THING, NOW_MS), certificate=current, pending=taken_back)
    aws.registry.write(device)
    late = json.dumps({"thing": THING, "retire": [current, taken_back]})
    stranger = json.dumps({"thing": "home-2", "retire": [current]})
    assert keep(message("1", late), message("2", stranger)) == []
    assert aws.attached() == {current, taken_back}


def test_a_certificate_that_is_gone_is_retired(aws: Aws) -> None:
    new = aws.certificate()
    aws.registry.write(replace(made(THING, NOW_MS), certificate="f" * 64, pending=new))
    assert keep(connected(new)) == []
    assert keep(*aws.graces()) == []
    after = aws.registry.read(THING)
    assert after is not None
    assert (after.certificate, after.replaced) == (new, frozenset())


def test_a_decommissioned_device_that_comes_back_is_locked_out(aws: Aws) -> None:
    late = aws.certificate()
    aws.registry.write(decommissioned(made(THING, NOW_MS), "", NOW_MS))
    assert keep(connected(late)) == []
    assert (aws.status(late), aws.attached()) == ("INACTIVE", set())


def test_a_quarantined_device_that_connects_is_locked_out_and_can_be_released(aws: Aws) -> None:
    old, in_flight = aws.certificate(), aws.certificate()
    device = replace(
        made(THING, NOW_MS), state=LifecycleState.PROVISIONED, certificate=old, pending=in_flight
    )
    aws.registry.write(quarantined(device, frozenset({old}), "it floods", NOW_MS))
    assert keep(connected(in_flight)) == []
    assert (aws.status(in_flight), aws.attached()) == ("INACTIVE", {old, in_flight})
    after = aws.registry.read(THING)
    assert after is not None
    assert (after.state, after.suspended) == (LifecycleState.QUARANTINED, {old, in_flight})
    assert hook.handle(asked(), LambdaContext()) == {"allowProvisioning": False}


def test_devices_that_the_registry_does_not_know_are_left_alone(aws: Aws) -> None:
    by_hand = aws.certificate()
    assert keep(connected(by_hand), connected("x", "claim-home-2")) == []
    assert aws.status(by_hand) == "ACTIVE"


def test_what_there_is_no_time_for_comes_again(aws: Aws) -> None:
    new = aws.certificate()
    aws.registry.write(replace(made(THING, NOW_MS), pending=new))
    assert keep(connected(new), context=Hurried()) == [new]
    device = aws.registry.read(THING)
    assert device is not None
    assert device.pending == new


def test_what_cannot_be_read_comes_again_and_takes_no_other_with_it(aws: Aws) -> None:
    new = aws.certificate()
    aws.registry.write(replace(made(THING, NOW_MS), pending=new))
    assert keep(message("1", "?"), message("2", "{}"), message("3", "[]"), connected(new)) == ["1", "2", "3"]
    device = aws.registry.read(THING)
    assert device is not None
    assert device.certificate == new


@pytest.mark.parametrize(
    ("handler", "variable"),
    [
        (hook, "EVENTPLANE_FLEET_TABLE"),
        (rotation, "EVENTPLANE_FLEET_TABLE"),
        (rotation, "EVENTPLANE_CERTIFICATE_ARNS"),
        (rotation, "EVENTPLANE_SOURCE_QUEUE"),
        (rotation, "EVENTPLANE_CERTIFICATE_GRACE_S"),
    ],
)
def test_a_missing_setting_is_named(
    aws: Aws, handler: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable)
    with pytest.raises(SettingsError, match=f"{variable} is not set"):
        handler.service()
