"""The audit's Spark columns and the routers' Python agree about every filter and every event."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from eventplane import filters
from eventplane.envelope import parse_event, write_event
from tests.spark.matching import by_spark

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


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tried=st.lists(FILTERS, min_size=6, max_size=12),
    events=st.lists(EVENTS, min_size=20, max_size=40),
)
def test_spark_and_python_agree(
    spark: SparkSession, tried: list[filters.Filter], events: list[dict[str, Any]]
) -> None:
    texts = [json.dumps({**REQUIRED, **event}, ensure_ascii=at % 2 == 0) for at, event in enumerate(events)]
    held = [parse_event(text).attributes for text in texts]
    assert by_spark(spark, tried, texts) == [[each.matches(have) for each in tried] for have in held]


def test_an_absent_attribute_is_false_and_its_negation_true(spark: SparkSession) -> None:
    absent = filters.Exact("subject", "x")
    event = write_event({"id": "1", "source": "s", "type": "t"})
    assert by_spark(spark, [absent, filters.Not(absent)], [event.json]) == [[False, True]]


def test_all_of_nothing_is_true_and_any_of_nothing_false(spark: SparkSession) -> None:
    event = write_event({"id": "1", "source": "s", "type": "t"})
    assert by_spark(spark, [filters.All(()), filters.Any(())], [event.json]) == [[True, False]]


def test_numbers_are_compared_in_canonical_form(spark: SparkSession) -> None:
    text = '{"specversion":"1.0","id":"1","source":"s","type":"t","floor":-0}'
    zero = filters.Exact("floor", "0")
    assert zero.matches(parse_event(text).attributes)
    assert by_spark(spark, [zero], [text]) == [[True]]
