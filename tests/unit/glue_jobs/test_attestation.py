"""The keys that attest receipts: a file of this user, or an HMAC key of AWS KMS."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.common.attestation import (
    AttestationKey,
    AttestationKeyError,
    FileKey,
    KmsKey,
    attest,
    open_key,
    read_attested,
)

ALIAS = "alias/attestation"


@pytest.fixture(params=["file", "kms", "kms by ARN"])
def key(request: pytest.FixtureRequest, tmp_path: Path) -> AttestationKey:
    if request.param == "file":
        return open_key(str(tmp_path / "key"))
    request.getfixturevalue("aws")
    kms = boto3.client("kms", region_name="us-east-1")
    made = kms.create_key(KeyUsage="GENERATE_VERIFY_MAC", KeySpec="HMAC_256")["KeyMetadata"]
    kms.create_alias(AliasName=ALIAS, TargetKeyId=made["KeyId"])
    return open_key(ALIAS if request.param == "kms" else made["Arn"])


@pytest.mark.lost_answers
def test_a_signature_is_of_its_statement_whatever_its_length(key: AttestationKey) -> None:
    statement = b"x" * 100_000
    signature = key.sign(statement)
    assert key.verify(statement, signature)
    assert not key.verify(statement[:-1], signature)
    for other in (b"", signature[:-1], signature + b"x", bytes(32)):
        assert not key.verify(statement, other)


MEMBERS: dict[str, Any] = {
    "changes": {"tap/ä": ["sha256:1", None]},
    "rows": 7,
    "share": 0.5,
    "is": [True, {}],
}


@given(noise=st.binary(max_size=20), place=st.integers(0, 300), length=st.integers(0, 9))
def test_a_document_is_attested_as_it_was_written_and_no_other(noise: bytes, place: int, length: int) -> None:
    key = open_key(None)
    body = attest(key, "name", MEMBERS)
    assert read_attested(key, "name", body) == (MEMBERS, True)
    assert read_attested(key, "other", body) == (MEMBERS, False)
    for other in (noise, body[:place] + noise + body[place + length :]):
        read, is_attested = read_attested(key, "name", other)
        assert not is_attested or read == MEMBERS


def test_a_key_file_is_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    signature = open_key(None).sign(b"statement")
    assert open_key(None).verify(b"statement", signature)
    (made,) = (each for each in (tmp_path / "state").rglob("*") if each.is_file())
    assert made.stat().st_mode & 0o777 == 0o600
    assert not FileKey(tmp_path / "other").verify(b"statement", signature)


def test_a_key_that_cannot_be_used_says_what_to_give(tmp_path: Path, aws: None) -> None:
    (tmp_path / "short").write_bytes(b"secret")
    for name in (tmp_path / "short", tmp_path / "short" / "below", tmp_path):
        with pytest.raises(AttestationKeyError, match="give --ATTESTATION_KEY"):
            open_key(str(name))
    missing = KmsKey(boto3.client("kms", region_name="us-east-1"), "alias/none")
    with pytest.raises(AttestationKeyError, match="alias/none"):
        missing.sign(b"statement")
    with pytest.raises(AttestationKeyError, match="alias/none"):
        missing.verify(b"statement", bytes(32))
