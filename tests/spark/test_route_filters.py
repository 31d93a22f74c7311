"""The audit's Spark columns and the routers' Python agree about every filter and every event."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import MapType, StringType

from eventplane import filters
from eventplane.envelope import parse_event, write_event
from glue_jobs.delivery_audit.route_filters import attribute_names, to_column
from glue_jobs.delivery_audit.schema import event_attributes

NAMES = ("type", "subject", "floor", "data")
REQUIRED = {"specversion": "1.0", "id": "1", "source": "//home", "type": "t"}
# Few letters, so that filters often match; and those that mean something to SQL, JSON, patterns.
TEXTS = st.text(alphabet="ab%_\\.'\"*$é水😀", min_size=1, max_size=4)
VALUES = TEXTS | st.sampled_from(["true", "false", "1", "-1", "0", "10"])
EVENTS = st.fixed_dictionaries(
    {"type": VALUES},
    optional={
        "subject": VALUES | st.none(),
        "floor": st.integers(-11, 11) | st.booleans() | VALUES | st.none(),
        "data": VALUES | st.integers(),
    },
)
COMPARISONS = st.builds(
    lambda kind, name, value: kind(name, value),
    st.sampled_from([filters.Exact, filters.Prefix, filters.Suffix]),
    st.sampled_from(NAMES),
    VALUES,
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.builds(filters.Not, inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: filters.All(tuple(parts)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: filters.Any(tuple(parts)))
    ),
    max_leaves=5,
)


def by_spark(
    spark: SparkSession, tried: list[filters.Filter], texts: list[str], as_map: bool
) -> list[list[bool]]:
    names = [name for each in tried for name in attribute_names(each)]
    schema = MapType(StringType(), StringType()) if as_map else event_attributes(["type", *names])
    rows = spark.createDataFrame([(at, text) for at, text in enumerate(texts)], "at int, event string")
    attributes = rows.select("at", sf.from_json("event", schema).alias("attributes"))
    columns = [to_column(each, sf.col("attributes")).alias(f"f{at}") for at, each in enumerate(tried)]
    return [list(row)[1:] for row in attributes.select("at", *columns).orderBy("at").collect()]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tried=st.lists(FILTERS, min_size=6, max_size=12),
    events=st.lists(EVENTS, min_size=20, max_size=40),
    as_map=st.booleans(),
)
def test_spark_and_python_agree(
    spark: SparkSession, tried: list[filters.Filter], events: list[dict[str, Any]], as_map: bool
) -> None:
    texts = [json.dumps({**REQUIRED, **event}, ensure_ascii=at % 2 == 0) for at, event in enumerate(events)]
    held = [parse_event(text).attributes for text in texts]
    assert by_spark(spark, tried, texts, as_map) == [[each.matches(have) for each in tried] for have in held]


def test_an_absent_attribute_is_false_and_its_negation_true(spark: SparkSession) -> None:
    absent = filters.Exact("subject", "x")
    event = write_event({"id": "1", "source": "s", "type": "t"})
    assert by_spark(spark, [absent, filters.Not(absent)], [event.json], as_map=False) == [[False, True]]


def test_all_of_nothing_is_true_and_any_of_nothing_false(spark: SparkSession) -> None:
    event = write_event({"id": "1", "source": "s", "type": "t"})
    assert by_spark(spark, [filters.All(()), filters.Any(())], [event.json], as_map=False) == [[True, False]]


def test_numbers_are_compared_in_canonical_form(spark: SparkSession) -> None:
    text = '{"specversion":"1.0","id":"1","source":"s","type":"t","floor":-0}'
    zero = filters.Exact("floor", "0")
    assert zero.matches(parse_event(text).attributes)
    assert by_spark(spark, [zero], [text], as_map=False) == [[True]]
