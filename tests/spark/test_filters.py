"""Filters and CESQL by Spark pass the events that they pass in the routers, and no others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from typing import Any
from unicodedata import category

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from eventplane import filters
from eventplane.cesql import BUILTINS, CesqlGenericError, Expression, Function, parse, write
from eventplane.cesql.operations import Type
from eventplane.cesql.parser import quote
from eventplane.cesql.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Exists,
    In,
    Like,
    Literal,
    Logic,
    Negate,
    Node,
    Not,
)
from eventplane.envelope import parse_event
from eventplane.filters import Filter, Sql
from eventplane.limits import MAX_DEPTH, MAX_INTEGER_TEXT, MAX_NUMBER_CHARACTERS
from glue_jobs.delivery_audit.cesql import AttributeColumns
from glue_jobs.delivery_audit.cesql_operations import lower, upper
from glue_jobs.delivery_audit.errors import UnsupportedExpressionError
from glue_jobs.delivery_audit.expect import attributes_of, to_column


def by_spark(spark: SparkSession, tried: Sequence[Filter], texts: Sequence[str]) -> list[list[bool]]:
    """For each event of `texts`, whether it matches each of the filters."""
    rows = spark.createDataFrame(list(enumerate(texts)), "at int, event string")
    names, typed = attributes_of(tried)
    schemas = {
        "texts": (names, StringType()),
        "integers": (typed, IntegerType()),
        "booleans": (typed, BooleanType()),
    }
    parsed = rows.withColumns(
        {
            kind: sf.from_json(
                "event",
                StructType([StructField(name, type) for name in sorted({"type", *held})]),
                {"mode": "PERMISSIVE"},
            )
            for kind, (held, type) in schemas.items()
        }
    )
    attributes = AttributeColumns.read(names, typed)
    columns = [to_column(each, attributes).alias(f"f{at}") for at, each in enumerate(tried)]
    return [list(row)[1:] for row in parsed.select("at", *columns).orderBy("at").collect()]


def assert_same_matches(spark: SparkSession, tried: Sequence[Filter], texts: Sequence[str]) -> None:
    held = [parse_event(text).attributes for text in texts]
    wrong = [
        (str(each), have, spark_says)
        for have, row in zip(held, by_spark(spark, tried, texts), strict=True)
        for each, spark_says in zip(tried, row, strict=True)
        if spark_says is not each.matches(have)
    ]
    assert wrong == []


REQUIRED = {"specversion": "1.0", "id": "5", "source": "/a", "type": "true"}
# Values that are each other in another type, and what Spark, Java and Python have each their own mind about.
KIN: list[str | int | bool] = ["5", "05", "+5", 5, -5, "-5", 0, "0", 1, "1", -1, 2, True, False]
WORDS: list[str | int | bool] = [
    "true",
    "TRUE",
    "false",
    "yes",
    "t",
    "tRue",
    " 5",
    "5.0",
    "1e0",
    "\N{ARABIC-INDIC DIGIT FIVE}",
    "abc",
    "a.b",
]
EDGES: list[str | int | bool] = [2**31 - 1, -(2**31), "2147483648", "-2147483648", "0" * 30 + "7"]
LONG = ["7".zfill(MAX_INTEGER_TEXT), "7".zfill(MAX_INTEGER_TEXT + 1)]
AWKWARD = [
    "\u212a",
    "\u0131",
    "ß",
    "İ",
    "ΑΣ",
    "a.Σ b",
    "ΑΣΣ",
    "Σ",
    "😀é",
    "a\u3000",
    "\u2003x ",
    "%",
    "_",
    "a\\b",
    "$1",
    "ꟁ",
    "水",
]
PLAIN = [*KIN, *WORDS, *EDGES, *LONG, *AWKWARD]
HELD = st.sampled_from(PLAIN) | st.text("ab5%_\\é😀Σ \u2003", max_size=5)
NAMES = st.sampled_from(["a", "b", "c", "1x", "type", "id", "subject", "data", "absent"])
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": HELD | st.none(),
        "b": HELD,
        "c": HELD,
        "1x": HELD,
        "data": HELD,
        "subject": HELD.filter(lambda held: isinstance(held, str) and held),
    },
)


def writable(value: str | int | bool) -> bool:
    try:
        quote(str(value))
    except CesqlGenericError:
        return False
    return True


LITERALS = st.builds(
    Literal,
    st.one_of(
        st.sampled_from(PLAIN),
        st.sampled_from(PLAIN),
        st.text(max_size=5),
        st.sampled_from(["\x1ca\x1c", "\x85b\n", "a\r\n", "\x00"]),
        st.integers(-(2**31), 2**31 - 1),
    ).filter(writable),
)
PATTERNS = st.text("ab%_\\é😀.*$\n-", max_size=6).filter(writable) | st.sampled_from(
    ["%", "", "tr%", "%5", "%b%"]
)
LEAVES = st.one_of(
    LITERALS, st.builds(Attribute, NAMES), st.builds(Attribute, NAMES), st.builds(Exists, NAMES)
)
TEXT_FUNCTIONS = st.sampled_from(["LENGTH", "LOWER", "UPPER", "TRIM", "ABS", "INT", "BOOL", "STRING", "NOPE"])
CUTS = st.sampled_from(["LEFT", "RIGHT", "SUBSTRING"])
SMALL = st.builds(Literal, st.integers(-4, 4))


def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    lists = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Not, inner),
        st.builds(Negate, inner),
        st.builds(Arithmetic, st.sampled_from(["*", "/", "%", "+", "-"]), inner, inner),
        st.builds(Comparison, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Comparison, st.sampled_from(["=", "!="]), inner, LEAVES),
        st.builds(Logic, st.sampled_from(["AND", "OR", "XOR"]), inner, inner),
        st.builds(Like, inner, PATTERNS),
        st.builds(In, inner, lists),
        st.builds(In, inner, st.lists(LITERALS, min_size=1, max_size=3).map(tuple)),
        st.builds(lambda name, one: Call(name, (one,)), TEXT_FUNCTIONS, inner),
        st.builds(lambda name, text, at: Call(name, (text, at)), CUTS, inner, SMALL | inner),
        st.builds(lambda *parts: Call("SUBSTRING", parts), inner, SMALL, SMALL | inner),
        st.builds(lambda parts: Call("CONCAT", parts), lists),
        st.builds(lambda parts: Call("CONCAT_WS", parts), lists),
    )


CONDITIONS = larger(LEAVES)
TREES = st.one_of(CONDITIONS, larger(CONDITIONS | LEAVES), st.recursive(LEAVES, larger, max_leaves=10))
EXPRESSIONS = TREES.map(lambda tree: parse(write(tree)))


def text_of(**attributes: Any) -> str:
    return json.dumps({**REQUIRED, **attributes})


def assert_agreement(spark: SparkSession, expressions: list[Expression], texts: list[str]) -> None:
    positive: list[Filter] = [Sql(each) for each in expressions]
    assert_same_matches(spark, [*positive, *map(filters.Not, positive)], texts)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EXPRESSIONS, min_size=15, max_size=25), st.lists(EVENTS, min_size=15, max_size=30))
def test_spark_and_python_agree_about_expressions(
    spark: SparkSession, expressions: list[Expression], events: list[dict[str, Any]]
) -> None:
    assert_agreement(spark, expressions, [text_of(**event) for event in events])


def test_they_agree_about_every_pair_of_values(spark: SparkSession) -> None:
    pairs = product([*PLAIN, None], repeat=2)
    texts = [text_of(**({"a": a} if a != "" else {}), b=b) for a, b in pairs]
    expressions = [
        *(f"a {operator} b" for operator in ("=", "!=", "<", ">=", "AND", "OR", "XOR", "+", "IN")),
        "a IN (b)", "a IN ('x', b)", "a IN (5, '5', b)", "NOT a", "NOT (a = b)", "a", "BOOL(a)",
        "a + b > 0", "a - b > 0", "a * b > 0", "a / b > 0", "a % b > 0", "a % b < 0", "a / b = 0", "-a > 0",
        "a = 5", "a = '5'", "a = TRUE", "5 = a", "'5' = a", "TRUE = a",
        "CONCAT(a, '') = b", "a = CONCAT(b, '')",
        "INT(a) = b", "BOOL(a) = b", "ABS(a) = b", "a OR TRUE", "a AND FALSE", "FALSE AND a", "TRUE OR a",
        "NOT (FALSE AND a)", "NOT (a AND FALSE)", "(a OR b) = FALSE", "(a XOR b) = FALSE",
        "LOWER(a) = b", "UPPER(a) = b", "LOWER(a) = LOWER(b)", "TRIM(a) = b", "LENGTH(a) = LENGTH(b)",
        "CONCAT_WS(a, b) = b", "CONCAT_WS(a, b, b) = CONCAT(b, a, b)", "CONCAT_WS(a) = ''",
        "RIGHT(a, 1) = RIGHT(b, 1)", "LEFT(a, b) = 'a'", "SUBSTRING(a, b) = ''", "SUBSTRING(a, -1) = '5'",
    ]  # fmt: skip
    assert_agreement(spark, [parse(each) for each in expressions if not each.endswith("IN b")], texts)


def test_upper_and_lower_case_are_python_s_for_every_character(spark: SparkSession) -> None:
    every = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]
    texts = ["".join(every[at : at + 4096]) for at in range(0, len(every), 4096)]
    # And what each of those that have a meaning does to a sigma beside it.
    assigned = [each for each in every if category(each) not in ("Cn", "Co")]
    for at in range(0, len(assigned), 512):
        texts += ["\n".join(f"A{each}Σ{each}Σ" for each in assigned[at : at + 512])]
        texts += ["\n".join(f"{each}Σ" for each in assigned[at : at + 512])]
    rows = spark.createDataFrame([(each,) for each in [*texts, "AΣ'Σ", "Σ.Σ", "'Σ"]], "text string")
    changed = rows.select("text", upper(sf.col("text")), lower(sf.col("text"))).collect()
    assert [each for each in changed if (each[1], each[2]) != (each[0].upper(), each[0].lower())] == []


def test_a_chain_as_long_as_may_be_is_evaluated(spark: SparkSession) -> None:
    chains = [f" {joint} ".join(["a"] * 99) for joint in ("AND", "XOR", "+")]
    tried = [Sql(parse(f"({each}) = TRUE")) for each in chains]
    assert_same_matches(spark, tried, [text_of(a=a) for a in (True, False, "x", 7)])


def test_deep_and_wide_expressions_are_evaluated(spark: SparkSession) -> None:
    nested = "SUBSTRING(" * 8 + "a" + ", 1)" * 8
    wide = f"{nested} IN ({', '.join(f'CONCAT({at})' for at in range(30))}, b)"
    many = f"a IN ({', '.join(map(str, range(1500)))})"
    texts = [text_of(a=a, b=b) for a, b in product([True, "x", 7], repeat=2)]
    assert_agreement(spark, [parse(each) for each in (wide, many)], texts)


def test_what_spark_cannot_evaluate_alike_is_refused(spark: SparkSession) -> None:
    own = BUILTINS.extended(Function("TWICE", (Type.INTEGER,), Type.INTEGER, lambda number: 2 * number))
    with pytest.raises(UnsupportedExpressionError, match=r"TWICE.*built-in"):
        by_spark(spark, [Sql(parse("TWICE(1) = 2", own))], [text_of()])
    with pytest.raises(UnsupportedExpressionError, match="within each other"):
        by_spark(spark, [Sql(parse("ABS(" * 13 + "a" + ")" * 13 + " = 1"))], [text_of()])
    with pytest.raises(UnsupportedExpressionError, match="surrogate"):
        by_spark(spark, [Sql(parse("a = '\ud800'"))], [text_of()])


FILTERED = ("type", "subject", "floor", "data")
# Few letters, so that filters often match; and those that mean something to SQL, JSON, patterns.
TEXTS = st.text(alphabet="ab%_\\.'\"*$é水😀", min_size=1, max_size=4)
FEW_TEXTS = TEXTS | st.sampled_from(["true", "false", "1", "-1", "0", "10"])
FILTERED_EVENTS = st.fixed_dictionaries(
    {"type": FEW_TEXTS},
    optional={
        "subject": FEW_TEXTS | st.none(),
        "floor": st.integers(-11, 11) | st.booleans() | FEW_TEXTS | st.none(),
        "data": FEW_TEXTS | st.integers(),
    },
)
COMPARISONS = st.builds(
    lambda kind, name, value: kind(name, value),
    st.sampled_from([filters.Exact, filters.Prefix, filters.Suffix]),
    st.sampled_from(FILTERED),
    FEW_TEXTS,
)
FILTERS = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.builds(filters.Not, inner)
        | st.lists(inner, max_size=3).map(lambda parts: filters.All(tuple(parts)))
        | st.lists(inner, max_size=3).map(lambda parts: filters.Any(tuple(parts)))
    ),
    max_leaves=5,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tried=st.lists(FILTERS, min_size=6, max_size=12),
    events=st.lists(FILTERED_EVENTS, min_size=20, max_size=40),
)
def test_spark_and_python_agree_about_filters(
    spark: SparkSession, tried: list[filters.Filter], events: list[dict[str, Any]]
) -> None:
    texts = [json.dumps({**REQUIRED, **event}, ensure_ascii=at % 2 == 0) for at, event in enumerate(events)]
    assert_same_matches(spark, tried, texts)


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
        f'{{"data":{data},"t\\u0079pe":"t","id":"1","source":"s","specversion":"1.0","severitynumber":17,"floor":-0}}'
        for data in awkward
    ]
    tried = [filters.Exact("type", "t"), Sql(parse("severitynumber >= 17")), filters.Exact("floor", "0")]
    assert_same_matches(spark, tried, texts)
    assert by_spark(spark, tried, texts) == [[True] * len(tried)] * len(awkward)
