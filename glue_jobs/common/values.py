"""Texts of values as columns, read exactly as `eventplane.values` reads them; null where that refuses."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from eventplane.attributes import USUAL_FORMS
from eventplane.values import MAX_TIME_MS, TIMESTAMP_FORM

_USUAL: Final = USUAL_FORMS["recordedtime"]
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_LEAST_TIME_MS: Final = -62_135_596_800_000
"""The beginning of the year 1, Unix milliseconds."""


def timestamp_ms(text: Column) -> Column:
    """Return the Unix milliseconds of `text` as `timestamp_ms` does, null where `is_timestamp` is false.

    Spark's own reader takes no leap second and no offset beyond 18 hours, and much that is no timestamp. The
    form that most have it reads alike, and sooner.
    """
    is_usual = text.rlike(rf"\A(?:{_USUAL})\z")
    return sf.when(is_usual, sf.unix_millis(sf.try_to_timestamp(text))).otherwise(_any_timestamp_ms(text))


def _any_timestamp_ms(text: Column) -> Column:

    def digits(position: int, length: int = 2) -> Column:
        return sf.substring(text, position, length).cast("long")

    # A day that there is not is null, and so is the sum.
    day_ms = sf.unix_millis(sf.try_to_timestamp(sf.concat(sf.left(text, sf.lit(10)), sf.lit("T00:00:00Z"))))
    fraction = sf.regexp_extract(text, r"\.(\d{1,3})", 1)
    offset = sf.regexp_extract(text, r"([+-]\d\d:\d\d)$", 1)
    minutes = sf.substring(offset, 2, 2).cast("long") * 60 + sf.substring(offset, 5, 2).cast("long")
    ahead = sf.when(offset == "", 0).otherwise(sf.when(offset.startswith("-"), -minutes).otherwise(minutes))
    second_ms = day_ms + (digits(12) * 60 + digits(15) - ahead) * _MINUTE_MS + digits(18) * 1_000
    # Second 60 of the last minute of a month is the first second of the next one.
    month_begins = sf.dayofmonth(sf.date_from_unix_date(sf.floor(second_ms / _DAY_MS).cast("int"))) == 1
    is_leap = (
        (second_ms % _DAY_MS == 0) & month_begins & second_ms.between(_LEAST_TIME_MS + 1, MAX_TIME_MS + 1)
    )
    is_valid = text.rlike(rf"\A(?:{TIMESTAMP_FORM})\z") & ((digits(18) < 60) | is_leap)
    return sf.when(is_valid, second_ms + sf.rpad(fraction, 3, "0").cast("long"))


def whole_number(text: Column, most: int) -> Column:
    """Return the number that `text` spells as `whole_number` does, from 0 to `most`, which has 18 digits."""
    number = sf.when(text.rlike(rf"\A[0-9]{{1,{len(str(most))}}}\z"), text.cast("long"))
    return sf.when(number <= most, number)
