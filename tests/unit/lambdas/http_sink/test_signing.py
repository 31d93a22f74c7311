"""The signing keys in Secrets Manager: rotation, outages, wrong values."""

from __future__ import annotations

import base64

import pytest

from lambdas.http_sink.signing import KEEP_MS, SigningKeyError, SigningKeys
from tests.fakes.clock import FakeClock
from tests.fakes.faults import FailingClient
from tests.fakes.secrets import FakeSecrets

SECRET = "webhook"
FIRST, SECOND, THIRD = ("1" * 64, "2" * 64, "whsec_" + "3" * 64)


@pytest.fixture
def secrets() -> FakeSecrets:
    return FakeSecrets()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def raw(*keys: str) -> tuple[bytes, ...]:
    return tuple(base64.b64decode(key.removeprefix("whsec_")) for key in keys)


def test_a_rotation_is_seen_in_time_and_the_previous_key_signs_on(
    secrets: FakeSecrets, clock: FakeClock
) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    keys = SigningKeys(secrets, SECRET, clock)
    assert keys.get() == raw(FIRST)
    secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    clock.now_ms += KEEP_MS - 1
    assert keys.get() == raw(FIRST)
    clock.now_ms += 1
    assert keys.get() == raw(SECOND, FIRST)
    secrets.put_secret_value(SecretId=SECRET, SecretString=THIRD)
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(THIRD, SECOND)


def test_known_keys_stay_while_secrets_manager_is_away(secrets: FakeSecrets, clock: FakeClock) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    client = FailingClient(secrets, targets=())
    keys = SigningKeys(client, SECRET, clock)
    keys.get()
    client.targets = {""}
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(FIRST)
    # It is not asked for every event; when it is back, it is asked in its turn.
    client.end()
    secrets.put_secret_value(SecretId=SECRET, SecretString=SECOND)
    assert keys.get() == raw(FIRST)
    clock.now_ms += KEEP_MS
    assert keys.get() == raw(SECOND, FIRST)


def test_without_any_answer_there_is_no_key(secrets: FakeSecrets, clock: FakeClock) -> None:
    keys = SigningKeys(FailingClient(secrets, code="AccessDenied"), SECRET, clock)
    expected = r"secret webhook: it could not be read .* put a key of 24 bytes"
    with pytest.raises(SigningKeyError, match=expected):
        keys.get()


@pytest.mark.parametrize("value", [None, "x", "short", "c2hvcnQ=", "not base64!" * 8])
def test_what_is_no_key_is_not_signed_with(secrets: FakeSecrets, clock: FakeClock, value: str | None) -> None:
    if value is not None:
        secrets.create_secret(Name=SECRET, SecretString=value)
    with pytest.raises(SigningKeyError, match="no version of it is a key"):
        SigningKeys(secrets, SECRET, clock).get()


def test_a_slip_in_a_rotation_leaves_the_previous_key_in_use(secrets: FakeSecrets, clock: FakeClock) -> None:
    secrets.create_secret(Name=SECRET, SecretString=FIRST)
    secrets.put_secret_value(SecretId=SECRET, SecretString="oops")
    assert SigningKeys(secrets, SECRET, clock).get() == raw(FIRST)
