"""Events are kept exactly in batches, read by the CloudEvents SDK, and changed in their attributes alone."""

import json
from collections.abc import Callable

from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider

from edge.numbering import stamp
from eventplane.batch import pack, unpack
from eventplane.conversation.messages import write_request
from eventplane.downlink import wire
from eventplane.envelope import Envelope, Sender, parse_event
from eventplane.hops import ROUTER_HOPS, sent_on
from eventplane.names import (
    CORRELATION_ID,
    EPOCH,
    EXPIRY_TIME,
    REPLAYED_TIME,
    REPLY_DEVICE,
    REPLY_TO,
    SENDER_DEVICE,
    SENDER_SERVICE,
    SEQUENCE,
)
from eventplane.sending import stamp_sender
from parts.replay.order import marked
from parts.tracing.client import OpenTelemetry
from tests.property.strategies import EVENTS, JSON, TEXT


@given(st.lists(EVENTS, max_size=5))
def test_batches_keep_every_event_exactly(events: list[Envelope]) -> None:
    assert list(unpack(pack(events))) == events


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


NOW = "2026-01-01T00:00:00Z"


def asked(event: Envelope) -> Envelope:
    return write_request(event, asker="desk", device="home-1", correlation_id="c", deadline=NOW, now=NOW)


def sent_down(event: Envelope) -> Envelope:
    kind = wire.Downlink.COMMAND
    text = wire.stamped(
        event.json, kind=kind, key="a/b/c", uid="u", version=1, is_deleted=True, order=1, fence=1, reset=1
    )
    return parse_event(text)


def traced(event: Envelope) -> Envelope:
    with OpenTelemetry(tracers=TracerProvider()).putting("bell", event) as named:
        return named


WRITERS: dict[Callable[[Envelope], Envelope], tuple[str, ...]] = {
    lambda event: stamp(event, "e1", 7): (EPOCH, SEQUENCE),
    lambda event: stamp_sender(event, Sender("home-1")): (SENDER_DEVICE,),
    lambda event: stamp_sender(event, Sender(service="desk")): (SENDER_SERVICE,),
    lambda event: event.stamped(recordedtime=NOW): ("recordedtime",),
    asked: (
        REPLY_TO,
        REPLY_DEVICE,
        CORRELATION_ID,
        EXPIRY_TIME,
        "time",
    ),
    sent_down: wire.RESERVED,
    traced: ("traceparent",),
    sent_on: (ROUTER_HOPS,),
    lambda event: marked(event, 0): (REPLAYED_TIME,),
}
REQUIRED = {"id": "1", "source": "/a", "type": "t", "specversion": "1.0"}
NAMES = sorted({name for names in WRITERS.values() for name in names})


@st.composite
def events(draw: st.DrawFn) -> Envelope:
    """An event with unset attributes, spelt in any way, and data that speaks of such names."""
    unset = draw(st.lists(st.sampled_from(NAMES), unique=True))
    data = draw(st.sampled_from([1, NAMES[0], dict.fromkeys(NAMES)]))
    members = draw(st.permutations([*REQUIRED.items(), *dict.fromkeys(unset).items(), ("data", data)]))
    written = (f"{_spelt(draw, name)}:{json.dumps(value)}" for name, value in members)
    return parse_event("{" + ",".join(written) + "}")


def _spelt(draw: st.DrawFn, name: str) -> str:
    return "".join(
        ['"', *(rf"\u{ord(each):04x}" if draw(st.integers(0, 15)) == 0 else each for each in name), '"']
    )


@given(events(), st.sampled_from(sorted(WRITERS.items(), key=lambda each: each[1])))
def test_writing_changes_nothing_else(
    event: Envelope, written: tuple[Callable[[Envelope], Envelope], tuple[str, ...]]
) -> None:
    write, names = written
    after = write(event)
    assert parse_event(after.json) == after
    assert after.attributes == {**event.attributes, **{name: after.attributes[name] for name in names}}
    assert after.data() == event.data()
