"""Strategies that several files share: JSON of any form, and events with all kinds of attributes."""

from typing import Any

from hypothesis import strategies as st

from eventplane.attributes import KNOWN
from eventplane.envelope import write_event


def json_values(
    texts: st.SearchStrategy[str],
    numbers: st.SearchStrategy[int] | None = None,
    keys: st.SearchStrategy[str] | None = None,
) -> st.SearchStrategy[Any]:
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
