"""The signing keys in Secrets Manager, as moto plays it: rotation, outages, wrong values."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from lambdas.http_sink.signing import KEEP_MS, SigningKeyError, SigningKeys
from tests.unit.lambdas.support import Unwilling

SECRET = "webhook"
FIRST, SECOND, THIRD = ("1" * 64, "2" * 64, "whsec_" + "3" * 64)


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def secrets() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client(
            "secretsmanager", region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t"
        )


def raw(*keys: str) -> tuple[bytes, ...]:
    return tuple(base64.b64decode(key.removeprefix("whsec_")) for key in keys)


def test_before_the_first_rotation_there_is_one_key(secrets: Any) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    assert SigningKeys(secrets, SECRET, Clock()).get() == raw(FIRST)


def test_a_rotation_is_seen_in_time_and_the_previous_key_signs_on(secrets: Any) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    clock = Clock()
    keys = SigningKeys(secrets, SECRET, clock)
    keys.get()
    secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    clock.now_ms += KEEP_MS - 1
    assert keys.get() == raw(FIRST)
    clock.now_ms += 1
    assert keys.get() == raw(SECOND, FIRST)
    secrets.put_secret_value(SecretId=SECRET, SecretString=THIRD)
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(THIRD, SECOND)


def test_known_keys_stay_while_secrets_manager_is_away(secrets: Any) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    clock = Clock()
    client = Sometimes(secrets)
    keys = SigningKeys(client, SECRET, clock)
    keys.get()
    client.is_away = True
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(FIRST)
    # It is not asked for every event; when it is back, it is asked in its turn.
    client.is_away = False
    secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    assert keys.get() == raw(FIRST)
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(SECOND, FIRST)


def test_without_any_answer_there_is_no_key(secrets: Any) -> None:
    keys = SigningKeys(Unwilling(secrets, "get_secret_value", code="AccessDenied"), SECRET, Clock())
    with pytest.raises(
        SigningKeyError, match=r"secret webhook: it could not be read .* put a key of 24 bytes"
    ):
        keys.get()


@pytest.mark.parametrize("value", ["", "short", "c2hvcnQ=", "not base64!" * 8])
def test_what_is_no_key_is_not_signed_with(secrets: Any, value: str) -> None:
    secrets.create_secret(Name=SECRET, SecretString=value or "x")
    with pytest.raises(SigningKeyError, match="no version of it is a key"):
        SigningKeys(secrets, SECRET, Clock()).get()


def test_a_slip_in_a_rotation_leaves_the_previous_key_in_use(secrets: Any) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    secrets.put_secret_value(SecretId=SECRET, SecretString="oops")
    assert SigningKeys(secrets, SECRET, Clock()).get() == raw(FIRST)


def test_a_secret_that_is_missing_is_told(secrets: Any) -> None:
    with pytest.raises(SigningKeyError, match="no version of it is a key"):
        SigningKeys(secrets, SECRET, Clock()).get()


class Sometimes:
    """A client that can be away."""

    def __init__(self, client: Any) -> None:
        self._clients = {False: client, True: Unwilling(client, "get_secret_value")}
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients[self.is_away], name)
