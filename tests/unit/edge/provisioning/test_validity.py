"""The two dates of a certificate, compared with what a crypto library wrote; and what follows from them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.provisioning.errors import ValidityError
from edge.provisioning.validity import Validity, read_validity
from tests.unit.edge.provisioning.pems import certificate, private_key

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400
MONTHS_12 = Validity(0, 360 * DAY)
NEVER_TOO_OLD = 10_000 * DAY


# X.509 writes years from 2050 on in another form, and AWS IoT's certificates end with 2049.
@given(
    st.datetimes(datetime(1950, 1, 1), datetime(2120, 1, 1)),  # noqa: DTZ001 - made aware below
    st.integers(1, 80 * 365 * DAY),
)
def test_it_reads_what_the_library_wrote(start: datetime, seconds: int) -> None:
    not_before = start.replace(microsecond=0, tzinfo=UTC)
    not_after = not_before + timedelta(seconds=seconds)
    expected = Validity(int(not_before.timestamp()), int(not_after.timestamp()))
    assert read_validity(certificate(not_before, not_after)) == expected


def test_it_finds_the_certificate_behind_the_key_and_takes_the_first_of_a_chain() -> None:
    mine, issuers = (certificate(START, START + timedelta(days=days)) for days in (10, 999))
    assert read_validity(private_key() + mine + issuers) == read_validity(mine)


@given(st.binary(max_size=300))
def test_whatever_is_in_the_block_is_read_or_named(garbage: bytes) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(garbage).decode()}\n-----END CERTIFICATE-----"
    with pytest.raises(ValidityError):
        read_validity(text)


GOOD = certificate(START, START + timedelta(days=1))
DER = base64.b64decode("".join(GOOD.splitlines()[1:-1]))


@given(st.integers(0, len(DER) - 1), st.integers(0, 255))
def test_a_damaged_certificate_is_read_or_named(place: int, value: int) -> None:
    damaged = DER[:place] + bytes([value]) + DER[place + 1 :]
    text = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(damaged).decode()}\n-----END CERTIFICATE-----"
    try:
        found = read_validity(text)
    except ValidityError:
        return
    assert isinstance(found.not_after_s, int)


@pytest.mark.parametrize(
    "text", ["", "key only", private_key(), "-----BEGIN CERTIFICATE-----*-----END CERTIFICATE-----"]
)
def test_what_is_no_certificate_is_named(text: str) -> None:
    with pytest.raises(ValidityError, match="it will be replaced"):
        read_validity(text)


@pytest.mark.parametrize(
    ("day", "due"), [(-400, False), (0, False), (239, False), (241, True), (359, True), (400, True)]
)
def test_it_is_due_in_the_last_third_of_its_life(day: int, due: bool) -> None:
    assert MONTHS_12.is_due(day * DAY, NEVER_TOO_OLD) is due


@pytest.mark.parametrize(("day", "due"), [(99, False), (101, True)])
def test_it_is_due_at_its_greatest_age_however_long_it_lives(day: int, due: bool) -> None:
    assert Validity(0, 24 * 365 * DAY).is_due(day * DAY, 100 * DAY) is due
