"""Whose rows an erasure removes, and the search for what it overlooked."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from eventplane.archive_layout import COMPACTIONS, PUBLISHED
from eventplane.errors import EventPlaneError
from eventplane.written import WRITTEN
from glue_jobs.common.hours import hour_of
from glue_jobs.common.objects import Objects

_SHORTEST: Final = 4
_BORDERS: Final = "/#?:"
"""What may follow the prefix, so that //home-1 is not //home-10."""

_SOURCE: Final = "source"
_TEXTS: Final = (
    *("id", "sender", "client_id", "device", "thing", "topic", "event", "original_base64"),
    *("line_text", "text", "body", "detail"),
)
"""The columns in which a row can name a person."""

_WORD: Final = r"[\w-]"
_BASE64: Final = r"[A-Za-z0-9+/]{16,}={0,2}"

_SKIPPED: Final = (COMPACTIONS, PUBLISHED, WRITTEN, "athena")
"""Folders that hold names of objects and nothing else, and people's answers, which the job may not read."""

_LINES, _PARQUET = ".json.gz", ".parquet"

_DAY: Final = re.compile(r".*?/date=[^/]+")


class TooWideError(EventPlaneError):
    """The `value` of `option` would take in more than one person's events."""

    option: str
    value: str
    message = (
        "{option} {value!r} is not one person's: it is too short, or a name of the contract; give the whole "
        "beginning of the sources, such as //home-17/, and the device's whole client id"
    )


@dataclass(frozen=True, slots=True)
class Person:
    """All whose events come from `source` or beneath it, and all that names them or the device `client`.

    A name counts as a whole word: home-1 is in `home-1.1772366400000.disconnected` and in
    `/devices/home-1/router`, and not in home-17 or home-1-annex. Raises `TooWideError`.
    """

    source: str
    client: str | None = None

    def __post_init__(self) -> None:
        for option, value in (("--SOURCE", self.source), ("--CLIENT", self.client)):
            if value is not None and len(value.strip(_BORDERS)) < _SHORTEST:
                raise TooWideError(option, value)

    @property
    def names(self) -> tuple[str, ...]:
        """What the person and the device are called."""
        return tuple(dict.fromkeys(each.strip(_BORDERS) for each in (self.source, self.client) if each))

    @property
    def pseudonym(self) -> str:
        """A name for the records of the erasure, which must not hold the person's own."""
        return hashlib.sha256(json.dumps([self.source, self.client]).encode()).hexdigest()[:32]

    def is_in(self, columns: Collection[str]) -> Column:
        """Return whether a row that has `columns` is the person's, or names the person."""
        tests = [self.is_named(sf.col(name)) for name in _TEXTS if name in columns]
        if _SOURCE in columns:
            source = sf.col(_SOURCE)
            tests += [source == self.source, *(source.startswith(each) for each in self._beginnings)]
        return reduce(or_, (sf.coalesce(each, sf.lit(False)) for each in tests), sf.lit(False))

    def is_named(self, text: Column) -> Column:
        """Return whether `text` names the person, in base64 too."""
        pattern = f"(?U){self._pattern}"
        encoded = sf.regexp_extract_all(text, sf.lit(f"({_BASE64})"))
        decoded = sf.transform(encoded, lambda each: sf.try_to_binary(each, sf.lit("base64")).cast("string"))
        return text.rlike(pattern) | sf.exists(
            decoded, lambda each: sf.coalesce(each.rlike(pattern), sf.lit(False))
        )

    def is_named_in(self, text: str) -> bool:
        """Return whether `text` names the person, in base64 too."""
        name = re.compile(self._pattern)
        return any(name.search(each) for each in (text, *_decoded(text)))

    @property
    def _beginnings(self) -> tuple[str, ...]:
        if self.source.endswith(tuple(_BORDERS)):
            return (self.source,)
        return tuple(self.source + border for border in _BORDERS)

    @property
    def _pattern(self) -> str:
        return f"(?<!{_WORD})(?:{'|'.join(map(re.escape, self.names))})(?!{_WORD})"


def _decoded(text: str) -> Iterator[str]:
    for found in re.findall(_BASE64, text):
        try:
            yield base64.b64decode(found, validate=True).decode("utf-8", "replace")
        except ValueError:
            continue


def naming(
    spark: SparkSession, objects: Objects, person: Person, now: datetime, damaged: Collection[str] = ()
) -> list[str]:
    """Return the objects that name `person`, in order, but for hours that are still written to.

    The search knows no tables and no columns: it shares nothing with what removes rows but the names. Objects
    that are known to be `damaged` are not opened.
    """
    found = []
    by_day: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name in _names(objects, now):
        suffix = next((each for each in (_LINES, _PARQUET) if name.endswith(each)), "")
        if suffix and name not in damaged:
            day = _DAY.match(name)
            by_day[suffix, day[0] if day else name].append(name)
        if person.is_named_in(name if suffix else f"{name} {_document(objects, name)}"):
            found.append(name)
    for (suffix, _), names in by_day.items():
        texts = _texts(spark, suffix, [f"{objects.uri}/{name}" for name in names])
        hits = texts.where(person.is_named(sf.col("text"))).select("file").distinct().collect()
        found += [name for name in names if any(hit["file"].endswith(f"/{name}") for hit in hits)]
    return sorted(set(found))


def _document(objects: Objects, name: str) -> str:
    return (objects.read(name) or b"").decode("utf-8", "replace")


def _texts(spark: SparkSession, suffix: str, uris: list[str]) -> DataFrame:
    if suffix == _LINES:
        rows, text = spark.read.text(uris), sf.col("value")
    else:
        rows, text = spark.read.option("mergeSchema", "true").parquet(*uris), sf.to_json(sf.struct("*"))
    return rows.select(text.alias("text"), sf.col("_metadata.file_path").alias("file"))


def _names(objects: Objects, now: datetime) -> Iterator[str]:
    for folder in objects.folders(""):
        if folder not in _SKIPPED:
            for each in objects.beneath(folder):
                hour = hour_of(each.name)
                if hour is None or hour.is_closed(now):
                    yield each.name
