"""Key and request by the real openssl, judged by a crypto library."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from edge.provisioning import KeyMakingError
from edge.provisioning.renewal import make_signing_request


def test_the_request_is_for_the_key_and_in_the_things_name() -> None:
    made = make_signing_request("home-1:a_b")
    key = load_pem_private_key(made.private_key.encode(), None)
    request = x509.load_pem_x509_csr(made.request.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert request.public_key() == key.public_key()
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == "CN=home-1:a_b"


def test_a_thing_may_have_a_longer_name_than_a_certificate() -> None:
    name = "home-" + "x" * 115
    request = x509.load_pem_x509_csr(make_signing_request(name).request.encode())
    assert request.subject.rfc4514_string() == f"CN={name[:64]}"


def test_every_key_is_another() -> None:
    assert make_signing_request("a").private_key != make_signing_request("a").private_key


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
