from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from edge.certificate import CertificateFile
from edge.check import expires_soon, identity_problems
from edge.contract_file import read_contract
from edge.errors import SettingProblem
from edge.settings import CloudSettings
from eventplane.contract import Contract
from tests.integration.edge.certificates import Authority
from tests.unit.edge.fakes import contract

NOW = datetime.now(UTC)


@pytest.fixture
def cloud(tmp_path: Path) -> CloudSettings:
    authority = Authority(tmp_path / "pki")
    identity = authority.issue("home-1")
    identity.key.chmod(0o600)
    return CloudSettings(
        host="h", rule="r", ca=authority.ca, certificate=identity.certificate, key=identity.key
    )


def found(cloud: CloudSettings, now: datetime = NOW) -> list[tuple[str, str]]:
    """Setting and problem of each, without the files' names."""
    problems = identity_problems(cloud, now)
    assert all(each.remedy for each in problems)
    folder = f"{cloud.ca.parent}{os.sep}"
    return [(each.setting, each.problem.replace(folder, "")) for each in problems]


def test_files_that_fit_have_no_problem(cloud: CloudSettings) -> None:
    assert found(cloud) == []


def test_an_expired_certificate_and_one_of_tomorrow(cloud: CloudSettings) -> None:
    ((setting, problem),) = found(cloud, NOW + timedelta(days=61))
    assert setting == "cloud.certificate"
    assert problem.startswith("home-1.crt expired on ")
    ((setting, problem),) = found(cloud, NOW - timedelta(days=2))
    assert problem.startswith("home-1.crt is not valid before ")


def test_it_warns_before_a_certificate_expires(cloud: CloudSettings) -> None:
    warning = expires_soon(cloud, NOW + timedelta(days=40.5))
    assert warning is not None
    assert "expires in 19 days" in warning
    assert expires_soon(cloud, NOW) is None


def test_a_key_that_others_may_read(cloud: CloudSettings) -> None:
    cloud.key.chmod(0o644)
    assert found(cloud) == [("cloud.key", "home-1.key: others may use it")]


def test_a_key_of_another_certificate(cloud: CloudSettings, tmp_path: Path) -> None:
    other = Authority(tmp_path / "others").issue("home-2")
    cloud.key.write_bytes(other.key.read_bytes())
    assert found(cloud) == [("cloud.key", "home-1.key does not belong to home-1.crt")]


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(cloud: CloudSettings) -> None:
    key = load_pem_private_key(cloud.key.read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    cloud.key.write_bytes(encrypted)
    assert found(cloud) == [("cloud.key", "home-1.key has a passphrase")]


def test_all_missing_files_are_said_at_once(cloud: CloudSettings) -> None:
    for file in (cloud.ca, cloud.certificate, cloud.key):
        file.unlink()
    assert found(cloud) == [
        ("cloud.ca", "ca.pem: No such file or directory"),
        ("cloud.certificate", "home-1.crt: No such file or directory"),
        ("cloud.key", "home-1.key: No such file or directory"),
    ]


def test_files_with_something_else_in_them(cloud: CloudSettings) -> None:
    for file in (cloud.ca, cloud.certificate, cloud.key):
        file.write_text("something else")
    settings = [setting for setting, _ in found(cloud)]
    assert settings == ["cloud.ca", "cloud.certificate", "cloud.key"]


def test_a_contract_that_cannot_be_used_is_said_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "contract.json"
    missing = read_contract(file)
    assert isinstance(missing, SettingProblem)
    assert "contract.json: No such file" in missing.problem
    file.write_text("{}")
    assert isinstance(read_contract(file), SettingProblem)
    file.write_bytes(contract().canonical)
    read = read_contract(file)
    assert isinstance(read, Contract)
    assert read.version == contract().version


def test_a_certificate_that_is_replaced_is_read_again(cloud: CloudSettings, tmp_path: Path) -> None:
    it = CertificateFile(cloud.certificate)
    left_s = it.left_s()
    assert left_s is not None
    assert 59 * 86_400 < left_s <= 60 * 86_400
    cloud.certificate.write_text("half of a certificate")
    assert it.left_s() is None
    assert it.left_s() is None
    Authority(tmp_path / "pki").issue("home-1")
    assert it.left_s() is not None
    cloud.certificate.unlink()
    assert it.left_s() is None
