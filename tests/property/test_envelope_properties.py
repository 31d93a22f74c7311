"""Whatever comes in: an event whose text is kept, or a named refusal; never another exception."""

import json

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from eventplane.attributes import KNOWN
from eventplane.batch import pack, unpack
from eventplane.envelope import Envelope, parse_event, write_event
from eventplane.errors import EnvelopeError

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
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
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


@pytest.mark.source("P-W4")
@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_a_named_refusal(raw: bytes) -> None:
    try:
        for item in unpack(raw):
            assert isinstance(item, Envelope | tuple)
    except EnvelopeError as error:
        assert error.reason


@pytest.mark.source("P-W4")
@given(JSON)
def test_any_json_is_an_event_or_a_named_refusal(value: object) -> None:
    try:
        parse_event(json.dumps(value))
    except EnvelopeError as error:
        assert error.reason


@given(st.lists(EVENTS, max_size=5))
def test_batches_keep_every_event_exactly(events: list[Envelope]) -> None:
    assert list(unpack(pack(events))) == events


@given(EVENTS)
def test_stamping_changes_nothing_else(event: Envelope) -> None:
    stamped = parse_event(event.stamped(deviceepoch="e").json)
    assert stamped.data() == event.data()
    assert {**event.attributes, "deviceepoch": "e"} == stamped.attributes


@given(EVENTS)
def test_the_sdk_reads_what_the_plane_writes(event: Envelope) -> None:
    theirs = JSONFormat().read(CloudEvent, event.json)
    assert (theirs.get_source(), theirs.get_id(), theirs.get_type()) == (event.source, event.id, event.type)
    assert theirs.get_data() == event.data()


@given(TEXT, JSON)
def test_the_plane_reads_what_the_sdk_writes(id: str, data: object) -> None:
    theirs = CloudEvent({"id": id, "source": "/a", "type": "t", "specversion": "1.0"}, data)
    ours = parse_event(JSONFormat().write(theirs))
    assert (ours.id, ours.source, ours.type) == (id, "/a", "t")
    assert ours.data() == data
