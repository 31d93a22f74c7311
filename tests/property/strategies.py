"""Strategies that several files share: JSON, events with all kinds of attributes, and filters."""

from typing import Any as Anything

from hypothesis import strategies as st

from eventplane.attributes import KNOWN, AttributeValue
from eventplane.cesql import parse
from eventplane.envelope import write_event
from eventplane.filters import All, Any, Exact, Filter, Not, Prefix, Suffix


def json_values(
    texts: st.SearchStrategy[str],
    numbers: st.SearchStrategy[int] | None = None,
    keys: st.SearchStrategy[str] | None = None,
) -> st.SearchStrategy[Anything]:
    """Generate values that JSON can carry; `numbers` are any integers, `keys` are `texts`."""
    keys = texts if keys is None else keys
    floats = st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | (st.integers() if numbers is None else numbers) | floats | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=20)
NAME = st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True).filter(lambda name: name not in {"data", *KNOWN})
EXTENSIONS = st.fixed_dictionaries(
    {},
    optional={
        "severitynumber": st.integers(1, 24),
        "severitytext": st.sampled_from(["TRACE", "Fatal", "bad"]),
        "traceparent": st.builds(
            "00-{:032x}-{:016x}-{:02x}".format,
            st.integers(1, 2**128 - 1),
            st.integers(1, 2**64 - 1),
            st.integers(0, 255),
        ),
        "tracestate": TEXT | st.just(""),
        "sequence": TEXT,
        "partitionkey": TEXT,
        "expirytime": st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
        "dataschema": st.just("urn:a:b"),
    },
)
VALUE = TEXT | st.integers(-(2**31), 2**31 - 1) | st.booleans()
JSON = json_values(TEXT, st.integers(-(2**53), 2**53))
EVENTS = st.builds(
    lambda id, known, extensions, data: write_event(
        {
            **known,
            **extensions,
            "id": id,
            "source": "/homes/1/voice",
            "type": "org.example.thing.v1",
        },
        data,
    ),
    TEXT,
    EXTENSIONS,
    st.dictionaries(NAME, VALUE, max_size=4),
    JSON,
)


def filters(
    names: st.SearchStrategy[str], values: st.SearchStrategy[AttributeValue], leaves: int = 6
) -> st.SearchStrategy[Filter]:
    """Generate filters over attributes of these `names`, compared with `values`."""
    texts = values.filter(lambda value: isinstance(value, str))
    kinds = st.sampled_from([Exact, Prefix, Suffix])
    expressions = st.recursive(
        _conditions(names, values),
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "and", "OR", "XOR"]), inner)
            | st.builds("(NOT ({}))".format, inner)
        ),
        max_leaves=leaves,
    )
    return st.recursive(
        kinds.flatmap(lambda kind: st.builds(kind, names, texts)) | expressions.map(parse),
        lambda inner: (
            st.sampled_from([All, Any]).flatmap(
                lambda kind: st.builds(kind, st.lists(inner, max_size=3).map(tuple))
            )
            | st.builds(Not, inner)
        ),
        max_leaves=leaves,
    )


def _conditions(
    names: st.SearchStrategy[str], values: st.SearchStrategy[AttributeValue]
) -> st.SearchStrategy[str]:
    # Identifiers are case-insensitive in CESQL.
    names = names | names.map(str.upper)
    literals = values.map(lambda value: f"'{value}'" if isinstance(value, str) else str(value))
    patterns = st.text("ab5%_", max_size=5) | st.sampled_from([r"a\%", r"a\%%", r"%\_", "%", "", "%a_"])
    operands = st.one_of(literals, literals, names, names.map("UPPER({})".format))
    return st.one_of(
        st.builds("{} {} {}".format, names, st.sampled_from(["=", "!=", "<", ">="]), operands),
        st.builds("{} {} {}".format, literals, st.sampled_from(["=", "!=", "<"]), names),
        st.builds("{} {}LIKE '{}'".format, names, st.sampled_from(["", "NOT "]), patterns),
        st.builds(
            "{} {}IN ({})".format,
            names,
            st.sampled_from(["", "NOT "]),
            st.lists(operands, min_size=1, max_size=3).map(", ".join),
        ),
        names.map("EXISTS {}".format),
        names,
        literals,
    )


# Kin across types, and texts that begin and end with each other, so that terms hold and casts meet.
TEXTS = st.text("ab5", max_size=4) | st.sampled_from(
    [
        *("", "a", "ab", "aba", "ba", "b", "é", "a%", "a\U0001f600"),
        *("5", "05", "+5", "-5", "0", "1", "true", "TRUE", "false"),
    ]
)
VALUES = TEXTS | st.sampled_from([5, -5, 0, 1, 2**31 - 1]) | st.booleans()
FILTER_NAMES = st.sampled_from(["type", "source", "subject", "a", "b", "1x"])
FILTERS = filters(FILTER_NAMES, VALUES)
# The envelope gives the known attributes one type each.
ATTRIBUTES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("type", "source", "subject"), TEXTS) | dict.fromkeys(("a", "b", "1x"), VALUES)
)
