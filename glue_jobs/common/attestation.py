"""Receipts that count: signed with a key that only the jobs have that may change the archive.

Whoever can write to the archive can write any receipt; without the key it allows nothing (docs/adr/0037).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from eventplane.errors import EventPlaneError
from glue_jobs.common import system
from glue_jobs.common.objects import FolderObjects, Objects

_ATTESTED_AT: Final = "attested_at_ms"
"""The member of a document that says when it was attested, Unix milliseconds."""

_ATTESTATION: Final = "attestation"
_SIGNATURE_BYTES: Final = 32
"""Of HMAC with SHA-256, and so of the key."""
_MAC: Final = "HMAC_SHA_256"


class AttestationKeyError(EventPlaneError):
    """The key `name` cannot be used."""

    name: str
    problem: str
    message = (
        "the key {name} can neither attest nor verify: {problem}; give --ATTESTATION_KEY a file outside the "
        "archive, or the alias or ARN of an HMAC key of AWS KMS that this role may use"
    )


class AttestationKey(Protocol):
    """Signs and verifies statements; `name` says to people which key it is."""

    @property
    def name(self) -> str: ...

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of `statement`. Raises `AttestationKeyError`."""

    def verify(self, statement: bytes, signature: bytes) -> bool:
        """Return whether this key made the `signature` of `statement`. Raises `AttestationKeyError`."""


class FileKey:
    """A key in the file at `path`, for archives on this machine. Its first use makes it, for its owner only.

    Raises `AttestationKeyError`.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = FolderObjects(path.parent)
            # Of two jobs that begin at once, both have the key of the first.
            if not path.exists():
                folder.create(path.name, system.random_bytes(_SIGNATURE_BYTES))
            self._key = path.read_bytes()
        except OSError as error:
            raise AttestationKeyError(self.name, str(error)) from error
        if len(self._key) < _SIGNATURE_BYTES:
            raise AttestationKeyError(self.name, f"it has {len(self._key)} bytes, not {_SIGNATURE_BYTES}")

    def sign(self, statement: bytes) -> bytes:
        return hmac.digest(self._key, statement, "sha256")

    def verify(self, statement: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(statement), signature)


class KmsKey:
    """An HMAC key of AWS KMS, by its alias or ARN, through a boto3 client: a role may verify and not sign."""

    def __init__(self, kms: Any, name: str) -> None:
        self.name = name
        self._kms = kms

    def sign(self, statement: bytes) -> bytes:
        try:
            signature: bytes = self._kms.generate_mac(**self._request(statement))["Mac"]
        except (ClientError, BotoCoreError) as error:
            raise AttestationKeyError(self.name, str(error)) from error
        return signature

    def verify(self, statement: bytes, signature: bytes) -> bool:
        if len(signature) != _SIGNATURE_BYTES:
            return False
        try:
            self._kms.verify_mac(**self._request(statement), Mac=signature)
        except self._kms.exceptions.KMSInvalidMacException:
            return False
        except (ClientError, BotoCoreError) as error:
            raise AttestationKeyError(self.name, str(error)) from error
        return True

    def _request(self, statement: bytes) -> dict[str, Any]:
        # KMS takes 4,096 bytes; a receipt has many more.
        message = hashlib.sha256(statement).digest()
        return {"KeyId": self.name, "Message": message, "MacAlgorithm": _MAC}


def open_key(name: str | None) -> AttestationKey:
    """Return the key `name`: a file, or an alias or ARN of AWS KMS; None: a file of this user.

    Raises `AttestationKeyError`.
    """
    if name and name.startswith(("alias/", "arn:")):
        # Glue gives its jobs no region.
        region = name.split(":")[3] if name.startswith("arn:") else None
        return KmsKey(boto3.client("kms", region_name=region), name)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return FileKey(Path(name) if name else state / "eventplane" / "attestation.key")


def add_key_option(parser: argparse.ArgumentParser) -> None:
    """Add the parameter that names the key of all jobs on the archive."""
    parser.add_argument(
        "--ATTESTATION_KEY",
        default=None,
        help="what attests receipts: a file outside the archive, made if there is none, or the alias or ARN "
        "of a KMS key (default: a file of this user)",
    )


def add_attest_option(parser: argparse.ArgumentParser) -> None:
    """Add the parameter by which an operator vouches for receipts of versions that attested none."""
    parser.add_argument(
        "--ATTEST",
        choices=("true", "false"),
        default="false",
        help="'true' first attests the job's receipts that are not, as they are: once after 0.3.0",
    )


def attest(key: AttestationKey, name: str, members: Mapping[str, Any]) -> bytes:
    """Return the text of the document `name` with these `members` and its attestation by `key`."""
    signature = base64.b64encode(key.sign(_statement(name, members))).decode()
    attestation = {"key": key.name, "signature": signature}
    return json.dumps({**members, _ATTESTATION: attestation}, indent=1).encode() + b"\n"


def read_attested(key: AttestationKey, name: str, body: bytes | None) -> tuple[dict[str, Any], bool]:
    """Return the members of the document `name`, and whether `key` has attested them under this name.

    A document that cannot be read has no members, and is not attested.
    """
    try:
        members = json.loads(body or b"")
        attestation = members.pop(_ATTESTATION, None)
        statement = _statement(name, members)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}, False
    try:
        signature = base64.b64decode(attestation["signature"], validate=True)
    except (TypeError, LookupError, ValueError):
        return members, False
    return members, key.verify(statement, signature)


def attest_old(objects: Objects, key: AttestationKey, names: Iterable[str], at_ms: int) -> None:
    """Attest those of the documents `names` that are not, as they are: whoever asks for it vouches for them.

    What cannot be read stays as it is.
    """
    for name in names:
        members, is_attested = read_attested(key, name, objects.read(name))
        if members and not is_attested:
            objects.write(name, attest(key, name, {**members, _ATTESTED_AT: at_ms}))


def refusal(key: AttestationKey, job: str) -> str:
    """Return what a finding says of a receipt of `job` that `key` has not attested."""
    return (
        f"the key {key.name} has not attested it, so it allows no change; if a version up to 0.3.0 wrote it, "
        f"run the {job} once with --ATTEST true; if another key did, name that by --ATTESTATION_KEY; else "
        "restore its attested version, or delete it if there was none"
    )


def _statement(name: str, members: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed. The name has folder and hour: no receipt fits another place."""
    return json.dumps([name, members], sort_keys=True, separators=(",", ":")).encode()
