"""The audit's Spark columns and the routers' Python agree about every filter and every event."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from eventplane import filters
from eventplane.cesql import parse
from eventplane.envelope import parse_event, write_event
from eventplane.limits import MAX_DEPTH, MAX_NUMBER_CHARACTERS
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


def test_no_data_that_the_routers_accept_hides_the_attributes_from_spark(spark: SparkSession) -> None:
    longest = MAX_NUMBER_CHARACTERS
    awkward = [
        *(
            "9" * longest,
            f"-{'9' * (longest - 1)}",
            f"0.{'1' * (longest - 2)}",
            "1e308",
            "1e-99999999999",
            "-0",
        ),
        *(
            "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1),
            '{"":1,"type":"x"}',
            "{" + f'"{"k" * 60_000}":1' + "}",
        ),
        *('"\\u0000"', '"\x7f\u2028\ufffe\U0001ffff"', '"\\ud83d\\ude00"', f'"{"y" * 90_000}"', "null"),
    ]
    texts = [
        f'{{"data":{data},"t\\u0079pe":"t","id":"1","source":"s","specversion":"1.0","severitynumber":17}}'
        for data in awkward
    ]
    tried = [filters.Exact("type", "t"), filters.Sql(parse("severitynumber >= 17"))]
    assert [[each.matches(parse_event(text).attributes) for each in tried] for text in texts] == (
        [[True, True]] * len(awkward)
    )
    assert by_spark(spark, tried, texts) == [[True, True]] * len(awkward)
