"""`eventplane certificate [SOURCE] ID`, `certificate verify FILE` and `certificate key`."""

from __future__ import annotations

import argparse
import os
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from eventplane.archive_layout import AUDIT
from eventplane.resource_names import certificate_key
from operations import system
from operations.archive import FolderArchive, add_days, archive_of, body_of, is_folder
from operations.certificate import (
    ALGORITHM,
    MAX_CERTIFICATE_BYTES,
    BadKeyError,
    Signer,
    page,
    pem,
    public_key,
    sign,
    summary,
    text,
    verified,
)
from operations.command import DONE, END_UNKNOWN, ChoiceError, add_contract, contract_of, present
from operations.text import word

_KMS: Final = ("alias/", "arn:")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "%(prog)s [SOURCE] ID [options] | verify FILE --key PUBLIC [options] | key [options]"
    parser.description = (
        "Write a signed certificate of an event's fate, as a document and a page; verify one offline; or "
        "print the public key."
    )
    parser.epilog = (
        "Exit status: 0 written, or valid with all ends known; 1 refused; 2 wrong usage; 3 valid, and an end "
        "of the event is not known."
    )
    parser.set_defaults(run=_certificate)
    add = parser.add_argument
    add("names", nargs="+", metavar="ID", help="the event's `id`, optionally after its `source`")
    add(
        "--key",
        metavar="KEY",
        help="signs: a file, made if there is none, or a KMS key's alias or ARN; "
        "default: the environment's, for a copy of the archive this user's. Verifies: the public key's file",
    )
    add(
        "--output",
        type=Path,
        default=Path("certificate.json"),
        metavar="FILE",
        help="the document, with the page beside it (.html); default: %(default)s",
    )
    add("--sender", metavar="NAME", help="the sender, if several use this `source` and `id`")
    add("--incomplete", action="store_true", help="sign although an end of the event is not known")
    add("--audit", type=Path, metavar="FOLDER", help="the audit's output, if not in the archive")
    add(
        "--verdict",
        type=Path,
        metavar="FILE",
        help="for `verify`: the verdict that operations.inbox received",
    )
    add_contract(parser)
    add_days(parser)


def _certificate(options: argparse.Namespace) -> int:
    match options.names:
        case ["verify", file]:
            return _verify(options, Path(file))
        case ["key"]:
            present(options, {"public": (shown := pem(_signer(options).public))}, shown.rstrip())
            return DONE
        case [_] | [_, _]:
            return _write(options)
    raise ChoiceError("name one event: ID, or SOURCE ID; or write `verify FILE`, or `key`")


def _verify(options: argparse.Namespace, file: Path) -> int:
    if options.key is None:
        raise ChoiceError(
            "name the public key of who issued it by --key FILE; `certificate key` prints it there"
        )
    key = public_key(options.key, _bytes(Path(options.key)))
    document = verified(_bytes(file), key, _bytes(options.verdict) if options.verdict else None)
    present(options, document, "\n".join(summary(document)))
    return DONE if document["is_complete"] else END_UNKNOWN


def _bytes(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_CERTIFICATE_BYTES + 1)


def _write(options: argparse.Namespace) -> int:
    # Only here: to verify needs nothing of the plane.
    from operations.certified import document_of
    from operations.trace_command import found_traces

    if options.output.suffix == ".html":
        raise ChoiceError("the page is beside the document, as .html: name another --output")
    found, days, cloud = found_traces(options, contract_of(options))
    chosen = [each for each in found if options.sender in (None, each.sender)]
    if len(chosen) != 1:
        senders = ", ".join(each.sender for each in found)
        raise ChoiceError(
            f"{len(chosen)} events have these names: name one by SOURCE and --sender ({senders})"
        )
    archive = archive_of(options, cloud)
    audit = FolderArchive(options.audit) if options.audit else archive
    folder = "" if options.audit else f"{AUDIT}/"
    document = document_of(
        chosen[0],
        lambda name: body_of(archive, name),
        lambda name: body_of(audit, f"{folder}{name}"),
        system.now_ms(),
        days.damaged,
        incomplete=options.incomplete,
    )
    signer = _signer(options)
    signed = sign(document, signer)
    shown = page(signed)
    verified(shown, signer.public)  # what is too large for a reader is not written
    options.output.write_bytes(text(signed))
    options.output.with_suffix(".html").write_bytes(shown)
    place = f"{options.output} and {options.output.with_suffix('.html').name}"
    lines = [f"{place}: signed by {signed['key']}", *(f"not known: {each}" for each in signed["unknown"])]
    present(options, signed, "\n".join(map(word, lines)))
    return DONE


class _FileSigner:
    """A key in the file at `path`, made for its owner only where there is none. Raises `BadKeyError`."""

    def __init__(self, path: Path) -> None:
        try:
            if not path.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(made)
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise BadKeyError(str(path), str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise BadKeyError(str(path), "it is of another kind")
        self._key = key
        self.public = key.public_key()

    def sign(self, digest: bytes) -> bytes:
        return self._key.sign(digest, ALGORITHM)


class _KmsSigner:
    """A key of AWS KMS, by its alias or ARN, through a boto3 client."""

    def __init__(self, kms: Any, name: str) -> None:
        self._kms = kms
        self._name = name

    @cached_property
    def public(self) -> ec.EllipticCurvePublicKey:
        return public_key(self._name, self._kms.get_public_key(KeyId=self._name)["PublicKey"])

    def sign(self, digest: bytes) -> bytes:
        made: bytes = self._kms.sign(
            KeyId=self._name, Message=digest, MessageType="RAW", SigningAlgorithm="ECDSA_SHA_256"
        )["Signature"]
        return made


def _signer(options: argparse.Namespace) -> Signer:
    """Return what signs by the key that is named."""
    name: str | None = options.key
    if name is None and not is_folder(options.archive):
        name = certificate_key(options.env)
    if name and name.startswith(_KMS):
        from operations.cloud import enter

        return _KmsSigner(enter(options.env).client("kms"), name)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return _FileSigner(Path(name) if name else state / "eventplane" / "certificate.key")
