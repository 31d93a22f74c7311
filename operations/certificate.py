"""The certificate of one event: a signed document, its page for people, and its verification without a plane.

It attests integrity, not truth: the records that it names were in the archive, unaltered since, when it was
signed. A page has its document in it, and is that document's only if it is what `page` makes of that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from eventplane.envelope import parse_event
from eventplane.errors import EnvelopeError, EventPlaneError
from eventplane.sending import without_stamp
from eventplane.strict_json import decode_text, loads
from eventplane.values import timestamp_of_ms
from operations.text import word

FORMAT: Final = "eventplane.certificate.v1"

MAX_CERTIFICATE_BYTES: Final = 4 * 2**20
"""Longest certificate that is read, bytes. Ours: the page of an event with some thousand records."""

ATTESTS: Final = (
    "This certificate attests integrity, not truth. It shows which records of the event were in the archive "
    "when it was signed, and which verdict of an audit had judged them. Each record is the word of "
    "the one that wrote it, by the clock that is named: a receipt says that a program settled the event, not "
    "that a person heard or acted. Who holds the signing key can sign anything. The verdict is attested "
    "outside of the archive: compare its digest with the event that was sent to operations.inbox."
)

_MEMBERS: Final = frozenset(
    {
        *("format", "attests", "issued_at_ms", "event", "contract", "steps", "accounts", "is_complete"),
        *("unknown", "clocks", "evidence", "verdict", "key", "signature"),
    }
)

_BEGINS: Final = '<script type="application/json">\n'
_ENDS: Final = "</script>\n"
_CURVE: Final = ec.SECP256R1

ALGORITHM: Final = ec.ECDSA(hashes.SHA256())
"""What is signed is the SHA-256 of a text: KMS takes 4,096 bytes."""

_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256 (FIPS 186-4, D.1.2.3)."""


class Flaw(StrEnum):
    """Why a certificate is refused."""

    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    NOT_CANONICAL = "not_canonical"
    UNKNOWN_MEMBER = "unknown_member"
    OTHER_KEY = "other_key"
    ALTERED = "altered"
    OTHER_PAGE = "other_page"
    OTHER_VERDICT = "other_verdict"


class CertificateError(EventPlaneError):
    """A certificate is refused for a `flaw`."""

    flaw: Flaw
    problem: str
    message = "no valid certificate ({flaw}): {problem}; ask who issued it for the file as it was written"


class BadKeyError(EventPlaneError):
    """The key `name` cannot be used."""

    name: str
    problem: str
    message = (
        "the key {name} cannot be used: {problem}; name by --key an ECDSA key on the curve P-256: a file "
        "(PEM), or to sign also the alias or ARN of a KMS key that you may use"
    )


class Signer(Protocol):
    """Signs certificates; `public` is its public key."""

    @property
    def public(self) -> ec.EllipticCurvePublicKey: ...

    def sign(self, digest: bytes) -> bytes:
        """Return the signature (`ALGORITHM`, DER) of a digest."""


def public_key(name: str, text: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key in a PEM text, or DER as KMS gives it. Raises `BadKeyError`."""
    load = (
        serialization.load_pem_public_key if text.startswith(b"-----") else serialization.load_der_public_key
    )
    try:
        key = load(text)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadKeyError(name, "it is no public key") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, _CURVE):
        raise BadKeyError(name, "it is of another kind")
    return key


def pem(key: ec.EllipticCurvePublicKey) -> str:
    """Return a public key as a PEM text."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode()


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key's DER form."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return sha256(key.public_bytes(serialization.Encoding.DER, form))


def sha256(body: bytes) -> str:
    """Return the digest of `body` with its kind in front."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def sign(document: Mapping[str, Any], signer: Signer) -> dict[str, Any]:
    """Return the certificate that `document` becomes."""
    signed = {"format": FORMAT, "attests": ATTESTS, **document, "key": fingerprint(signer.public)}
    signature = signer.sign(hashlib.sha256(text(signed)).digest())
    return {**signed, "signature": _spelled(signature)}


def _spelled(signature: bytes) -> str:
    """Return the only text of a signature (DER) that is accepted.

    Whoever reads (r, s) can write (r, n - s), which the key verifies as well: the smaller of both counts, so
    that a certificate has one text and one digest. Raises `ValueError`.
    """
    r, s = decode_dss_signature(signature)
    return base64.b64encode(encode_dss_signature(r, min(s, _ORDER - s))).decode()


def text(document: Mapping[str, Any]) -> bytes:
    """Return the only text of a document that is accepted."""
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True).encode() + b"\n"


def verified(body: bytes, key: ec.EllipticCurvePublicKey, verdict: bytes | None = None) -> dict[str, Any]:
    """Return the certificate in `body`, a document or a page, which `key` has signed.

    `verdict` is the audit's event as it came to operations.inbox, to compare. Raises `CertificateError`.
    """
    if len(body) > MAX_CERTIFICATE_BYTES:
        raise CertificateError(Flaw.TOO_LARGE, f"it has more than {MAX_CERTIFICATE_BYTES:,} bytes")
    is_page = body.startswith(b"<")
    document = _read(_in_page(body) if is_page else body)
    # Of a page all bytes are compared below.
    if not is_page and text(document) != body:
        raise CertificateError(Flaw.NOT_CANONICAL, "the text is not as certificates are written")
    if (named := document["key"]) != (given := fingerprint(key)):
        raise CertificateError(Flaw.OTHER_KEY, f"it names the key {str(named)[:80]}, and {given} was given")
    signed = {name: value for name, value in document.items() if name != "signature"}
    digest = hashlib.sha256(text(signed)).digest()
    try:
        signature = base64.b64decode(str(document["signature"]), validate=True)
        key.verify(signature, digest, ALGORITHM)
    except (ValueError, InvalidSignature) as error:
        raise CertificateError(Flaw.ALTERED, "the key has not signed what it says") from error
    if _spelled(signature) != document["signature"]:  # also: the last letter of its text has unused bits
        raise CertificateError(Flaw.ALTERED, "its signature is spelled otherwise than the key's")
    try:
        shown, _ = page(document), summary(document)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        problem = f"its members are not those of a certificate: {error!r}"
        raise CertificateError(Flaw.UNKNOWN_MEMBER, problem) from error
    if is_page and shown != body:
        raise CertificateError(Flaw.OTHER_PAGE, "the page shows something else than its document says")
    if verdict is not None and _digest_of_event(verdict) != (document["verdict"] or {}).get("digest"):
        raise CertificateError(Flaw.OTHER_VERDICT, "it cites another verdict than the one that was given")
    return document


def summary(document: Mapping[str, Any]) -> list[str]:
    """Return a certificate in lines for people."""
    event, verdict = document["event"], document["verdict"]
    lines = [
        f"valid: signed by {document['key']}",
        f"id {event['id']} of {event['source']}, sent by {event['sender']}",
        *(f"{each['inbox'] or 'every inbox'}: {each['fate']}" for each in document["accounts"]),
    ]
    if verdict:
        lines.append(f"verdict: {verdict['verdict']} on {verdict['window']}, event {verdict['event']}")
    return [word(each) for each in (*lines, *(f"not known: {each}" for each in document["unknown"]))]


def _digest_of_event(stamped: bytes) -> str:
    """Return the digest of an event as it was before a router stamped its sender."""
    try:
        return sha256(without_stamp(parse_event(stamped.strip())).json.encode())
    except EnvelopeError as error:
        raise CertificateError(Flaw.OTHER_VERDICT, f"the given verdict is no event: {error}") from error


def _in_page(body: bytes) -> bytes:
    _, begins, rest = body.partition(_BEGINS.encode())
    found, ends, _ = rest.partition(_ENDS.encode())
    if not (begins and ends):
        raise CertificateError(Flaw.NOT_JSON, "the page has no document in it")
    return found


def _read(body: bytes) -> dict[str, Any]:
    try:
        document = loads(decode_text(body))
    except EnvelopeError as error:
        raise CertificateError(Flaw.NOT_JSON, str(error)) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CertificateError(Flaw.UNKNOWN_MEMBER, f"it is not of the format {FORMAT}")
    if others := sorted(document.keys() ^ _MEMBERS):
        raise CertificateError(Flaw.UNKNOWN_MEMBER, f"too few or too many members: {', '.join(others)[:200]}")
    return document


@dataclass(frozen=True, slots=True)
class _Table:
    title: str
    head: tuple[str, ...]
    rows: Iterable[tuple[object, ...]]

    def __str__(self) -> str:
        rows = "".join(
            f"<tr>{''.join(f'<td>{_shown(each)}</td>' for each in row)}</tr>\n" for row in self.rows
        )
        head = "".join(f"<th scope=col>{each}</th>" for each in self.head)
        return f"<h2>{self.title}</h2>\n<table><tr>{head}</tr>\n{rows}</table>\n"


_UNSEEN: Final = re.compile("[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""What turns the reading direction, or has no width. Listed: Python's own tables differ by version."""


def _shown(value: object) -> str:
    seen = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", "" if value is None else str(value))
    return escape(seen)


def _time(at_ms: int) -> str:
    try:
        return timestamp_of_ms(at_ms)
    except OverflowError:  # its offset puts the time of a source beyond the calendar
        return f"{at_ms} ms"


_STYLE: Final = (
    "body{font:11pt/1.4 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;width:100%}td{font-size:9pt}"
    "th,td{border:1px solid #999;padding:.2em .5em;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "@media print{body{margin:0}tr{break-inside:avoid}}"
)


def page(document: Mapping[str, Any]) -> bytes:
    """Return the page of a certificate, which has the document in it and loads nothing."""
    document = json.loads(text(document))  # its order is that of the text
    event, verdict = document["event"], document["verdict"] or {"verdict": "none"}
    title = f"Certificate of event {_shown(event['id'])}"
    tables = (
        _Table("Event", ("", ""), ((*each,) for each in {**event, "contract": document["contract"]}.items())),
        _Table(
            "What happened",
            ("step", "time (UTC)", "clock", "where", "what", "record"),
            (
                (
                    each["step"],
                    _time(each["at_ms"]),
                    each["clock"],
                    each["where"],
                    each["what"],
                    each["evidence"],
                )
                for each in document["steps"]
            ),
        ),
        _Table(
            "What became of it",
            ("inbox", "end", "by", "why"),
            (
                (each["inbox"] or "every inbox", each["fate"], each["by"], each["why"])
                for each in document["accounts"]
            ),
        ),
        _Table("What it does not know", ("",), ((each,) for each in document["unknown"])),
        _Table(
            "Clocks",
            ("clock", "ahead by, ms", "by"),
            ((each["clock"], each["ahead_ms"], each["by"]) for each in document["clocks"]),
        ),
        _Table("Evidence", ("object", "digest"), document["evidence"].items()),
        _Table("Verdict", ("", ""), verdict.items()),
        _Table("Signature", ("", ""), ((name, document[name]) for name in ("key", "signature"))),
    )
    inside = text(document).decode().replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{title}</h1>\n"
        f"<p>Issued {timestamp_of_ms(document['issued_at_ms'])}. {_shown(document['attests'])}</p>\n"
        f"{''.join(map(str, tables))}{_BEGINS}{inside}{_ENDS}</html>\n"
    ).encode()
