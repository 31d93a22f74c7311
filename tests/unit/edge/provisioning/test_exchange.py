"""The conversation as AWS IoT documents it, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from edge.provisioning import AnswerError, KeyMakingError, ProvisioningError, RejectedError, WrongThingError
from edge.provisioning.exchange import Created, Exchange, Registered
from edge.provisioning.renewal import make_signing_request

CREATE = "$aws/certificates/create/json"
FROM_REQUEST = "$aws/certificates/create-from-csr/json"
REGISTER = "$aws/provisioning-templates/fleet/provision/json"


def exchange(signing_request: str | None = "csr") -> Exchange:
    return Exchange("fleet", "home-1", signing_request)


def said(**body: Any) -> bytes:
    return json.dumps(body).encode()


CREATED = said(certificateId="1", certificatePem="cert", certificateOwnershipToken="token", privateKey="key")


@pytest.mark.parametrize(
    ("signing_request", "topic", "asked", "private_key"),
    [("csr", FROM_REQUEST, {"certificateSigningRequest": "csr"}, None), (None, CREATE, {}, "key")],
    ids=["a certificate for its own key", "a key as well"],
)
def test_it_asks_for_what_it_lacks_and_listens_for_the_answers(
    signing_request: str | None, topic: str, asked: dict[str, str], private_key: str | None
) -> None:
    it = exchange(signing_request)
    assert (it.first.step, it.first.topic, json.loads(it.first.payload)) == ("create", topic, asked)
    assert set(it.topics) == {
        f"{each}/{word}" for each in (topic, REGISTER) for word in ("accepted", "rejected")
    }
    created = it.answer(f"{topic}/accepted", CREATED)
    assert isinstance(created, Created)
    assert (created.certificate, created.private_key) == ("cert", private_key)


def test_it_registers_with_the_token_and_its_name_and_is_done() -> None:
    it = exchange()
    created = it.answer(f"{FROM_REQUEST}/accepted", CREATED)
    assert isinstance(created, Created)
    assert (created.then.step, created.then.topic) == ("register", REGISTER)
    assert json.loads(created.then.payload) == {
        "certificateOwnershipToken": "token",
        "parameters": {"SerialNumber": "home-1"},
    }
    assert isinstance(it.answer(f"{REGISTER}/accepted", said(thingName="home-1")), Registered)


def test_an_answer_that_comes_twice_or_late_or_from_elsewhere_changes_nothing() -> None:
    it = exchange()
    assert it.answer(f"{REGISTER}/accepted", said(thingName="home-1")) is None
    assert it.answer(f"{CREATE}/accepted", CREATED) is None
    assert it.answer("something/else", b"") is None
    it.answer(f"{FROM_REQUEST}/accepted", CREATED)
    assert it.answer(f"{FROM_REQUEST}/accepted", CREATED) is None
    assert it.answer(f"{FROM_REQUEST}/rejected", b"{}") is None


@pytest.mark.parametrize("step", ["create", "register"])
def test_a_refusal_says_which_step_and_why(step: str) -> None:
    it = exchange()
    topic = FROM_REQUEST
    if step == "register":
        it.answer(f"{FROM_REQUEST}/accepted", CREATED)
        topic = REGISTER
    answer = said(statusCode=403, errorCode="AccessDenied", errorMessage="hook said no")
    with pytest.raises(RejectedError, match="403 AccessDenied: hook said no") as caught:
        it.answer(f"{topic}/rejected", answer)
    assert (caught.value.step, caught.value.status, caught.value.code) == (step, 403, "AccessDenied")


def test_another_things_name_is_refused() -> None:
    it = exchange()
    it.answer(f"{FROM_REQUEST}/accepted", CREATED)
    with pytest.raises(WrongThingError) as caught:
        it.answer(f"{REGISTER}/accepted", said(thingName="home-2"))
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
        exchange().answer(f"{FROM_REQUEST}/accepted", payload)
    assert caught.value.step == "create"


@given(st.binary(), st.sampled_from(["accepted", "rejected"]))
def test_whatever_is_answered_nothing_but_our_errors_comes_out(payload: bytes, word: str) -> None:
    with pytest.raises(ProvisioningError):
        exchange().answer(f"{FROM_REQUEST}/{word}", payload)


@pytest.mark.parametrize(
    ("thing", "common_name"),
    [("home-1:a_b", "home-1:a_b"), ("home-" + "x" * 115, "home-" + "x" * 59)],
    ids=["a short name", "a longer name than a certificate may have"],
)
def test_the_request_is_for_the_key_and_in_the_things_name(thing: str, common_name: str) -> None:
    made = make_signing_request(thing)
    key = load_pem_private_key(made.private_key.encode(), None)
    request = x509.load_pem_x509_csr(made.request.encode())
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
