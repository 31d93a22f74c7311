"""A certificate's validity is read from any PEM text, or refused with a ValueError."""

import base64
import contextlib
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from eventplane_mqtt.tls import read_validity

KEY = ec.generate_private_key(ec.SECP256R1())
moments = st.datetimes(datetime(1951, 1, 1), datetime(2999, 1, 1)).map(  # noqa: DTZ001 -- made aware next
    lambda each: each.replace(microsecond=0, tzinfo=UTC)
)


def pem(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"some text\n-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"


def signed(start: datetime, end: datetime, name: str) -> x509.Certificate:
    """A certificate that signs itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), 1, start, end)
    return builder.sign(KEY, hashes.SHA256())


@given(moments, st.timedeltas(timedelta(seconds=1), timedelta(days=36_500)), st.text(min_size=1, max_size=16))
def test_it_is_what_another_implementation_wrote(start: datetime, span: timedelta, name: str) -> None:
    end = max((start + span).replace(microsecond=0), start)
    text = signed(start, end, name).public_bytes(serialization.Encoding.PEM).decode()
    assert read_validity(text) == (start, end)


VALID = signed(datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC), "d").public_bytes(
    serialization.Encoding.DER
)


@given(st.one_of(st.text(), st.binary().map(pem)))
def test_other_text_is_refused_by_name(text: str) -> None:
    with contextlib.suppress(ValueError):
        read_validity(text)


@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, len(VALID)))
def test_a_damaged_certificate_is_read_or_refused(at: int, byte: int, cut: int) -> None:
    damaged = (VALID[:at] + bytes([byte]) + VALID[at + 1 :])[:cut]
    with contextlib.suppress(ValueError):
        validity = read_validity(pem(damaged))
        assert validity.start.tzinfo is UTC
