"""The conversation as AWS IoT documents it, step by step."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from edge.settings import CloudSettings
from eventplane_mqtt import TlsFiles
from parts.provisioning import (
    AnswerError,
    KeyMakingError,
    ProvisioningError,
    RejectedError,
    WrongThingError,
    conversation,
)
from parts.provisioning.exchange import Exchange
from parts.provisioning.renewal import make_signing_request

CREATE = "$aws/certificates/create/json"
FROM_REQUEST = "$aws/certificates/create-from-csr/json"
REGISTER = "$aws/provisioning-templates/fleet/provision/json"


def said(**body: Any) -> bytes:
    return json.dumps(body).encode()


CREATED = said(certificateId="1", certificatePem="cert", certificateOwnershipToken="token", privateKey="key")
REGISTERED = said(thingName="home-1")


def run(*answers: bytes, refused: str = "", signing_request: str | None = "csr") -> list[Any]:
    """What a device asks for and keeps, given these answers; that to the step `refused` is a refusal."""
    told, left = [], list(answers)

    def ask(step: str, topic: str, payload: bytes) -> tuple[str, bytes]:
        told.append((step, topic, json.loads(payload)))
        return f"{topic}/{'rejected' if step == refused else 'accepted'}", left.pop(0)

    Exchange("fleet", "home-1", signing_request).run(ask, lambda *kept: told.append(kept))
    return told


@pytest.mark.parametrize(
    ("signing_request", "topic", "asked", "private_key"),
    [("csr", FROM_REQUEST, {"certificateSigningRequest": "csr"}, None), (None, CREATE, {}, "key")],
    ids=["a certificate for its own key", "a key as well"],
)
def test_it_asks_for_what_it_lacks_keeps_it_and_registers(
    signing_request: str | None, topic: str, asked: dict[str, str], private_key: str | None
) -> None:
    register = {"certificateOwnershipToken": "token", "parameters": {"SerialNumber": "home-1"}}
    assert run(CREATED, REGISTERED, signing_request=signing_request) == [
        ("create", topic, asked),
        ("cert", private_key),
        ("register", REGISTER, register),
    ]
    assert set(Exchange("fleet", "home-1", signing_request).topics) == {
        f"{each}/{word}" for each in (topic, REGISTER) for word in ("accepted", "rejected")
    }


def test_a_foreign_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    created, registered = (f"{FROM_REQUEST}/accepted", CREATED), (f"{REGISTER}/accepted", REGISTERED)
    elsewhere = (f"{CREATE}/accepted", b""), ("something/else", b"")
    again = created, (f"{FROM_REQUEST}/rejected", b"{}")
    messages = [registered, *elsewhere, created, *again, registered]
    line = MagicMock()
    line.receive.side_effect = [SimpleNamespace(topic=topic, payload=payload) for topic, payload in messages]
    monkeypatch.setattr(conversation, "BlockingConnection", lambda _: line)
    files, kept = TlsFiles(tmp_path, tmp_path, tmp_path), MagicMock()
    cloud = conversation.MqttCloud(CloudSettings(host="cloud"), "home-1", files, 5.0)
    cloud.run(Exchange("fleet", "home-1", "csr"), kept)
    kept.assert_called_once_with("cert", None)
    assert [each.args[0] for each in line.send.call_args_list] == [FROM_REQUEST, REGISTER]


@pytest.mark.parametrize("step", ["create", "register"])
def test_a_refusal_says_which_step_and_why(step: str) -> None:
    answer = said(statusCode=403, errorCode="AccessDenied", errorMessage="hook said no")
    answers = [answer] if step == "create" else [CREATED, answer]
    with pytest.raises(RejectedError, match="403 AccessDenied: hook said no") as caught:
        run(*answers, refused=step)
    assert (caught.value.step, caught.value.status, caught.value.code) == (step, 403, "AccessDenied")


def test_another_things_name_is_refused() -> None:
    with pytest.raises(WrongThingError) as caught:
        run(CREATED, said(thingName="home-2"))
    assert (caught.value.thing, caught.value.registered) == ("home-1", "home-2")


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JSON object"),
        (said(certificatePem="", certificateOwnershipToken="t"), "'certificatePem' is missing"),
        (said(certificatePem="c", certificateOwnershipToken=1), "'certificateOwnershipToken' is missing"),
    ],
)
def test_an_answer_that_breaks_the_promise_is_named(payload: bytes, problem: str) -> None:
    with pytest.raises(AnswerError, match=problem) as caught:
        run(payload)
    assert caught.value.step == "create"


@given(st.binary(), st.sampled_from(["create", ""]))
def test_whatever_is_answered_nothing_but_our_errors_comes_out(payload: bytes, refused: str) -> None:
    with pytest.raises(ProvisioningError):
        run(payload, refused=refused)


@pytest.mark.parametrize(
    ("thing", "common_name"),
    [("home-1:a_b", "home-1:a_b"), ("home-" + "x" * 115, "home-" + "x" * 59)],
    ids=["a short name", "a longer name than a certificate may have"],
)
def test_the_request_is_for_the_key_and_in_the_things_name(thing: str, common_name: str) -> None:
    private_key, signing_request = make_signing_request(thing)
    key = load_pem_private_key(private_key.encode(), None)
    request = x509.load_pem_x509_csr(signing_request.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert request.public_key() == key.public_key()
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == f"CN={common_name}"


def test_a_device_without_openssl_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KeyMakingError, match=r"install openssl, or set provisioning\.keys to 'cloud'"):
        make_signing_request("home-1")


def test_an_openssl_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho no randomness >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(KeyMakingError, match="openssl genpkey: no randomness"):
        make_signing_request("home-1")
