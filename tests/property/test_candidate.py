"""Two versions in force: what a frame comes to is what each event comes to by its own contract."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract.publication import Head, head_text, read_head
from eventplane.envelope import Envelope, pack_texts, write_event
from eventplane.ingest import IngestFrame, frame_text
from eventplane.names import FOLLOWED_CONTRACT
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner, Step
from tests.small_contract import with_changes
from tests.spark.small_archive import ALARM, DIARY, READING, small_contract

OLD = small_contract("strict")
NEW = with_changes(
    small_contract("none", diary={"filter": {"exact": {"type": DIARY}}, "to": "care.inbox"}),
    {"routes/readings": None, f"event_types/{ALARM}/priority": "normal"},
)
OLD_PLANNER, NEW_PLANNER = (Planner(each, "device.outbox", lambda: 0.0) for each in (OLD, NEW))
PLANNER = OLD_PLANNER.beside(NEW.version, NEW_PLANNER)

events = st.builds(
    lambda number, type, follows, data: write_event(
        {"id": f"e-{number}", "source": "/a", "type": type}
        | ({FOLLOWED_CONTRACT: follows} if follows is not None else {}),
        data,
    ),
    st.integers(0, 3),
    st.sampled_from((ALARM, READING, DIARY, "org.example.unknown.v1")),
    st.sampled_from((None, NEW.version, OLD.version, "0" * 16, "", 7, True)),
    st.sampled_from(({}, 7)),
)


def planned(planner: Planner, *frame: Envelope) -> list[Step]:
    payload = pack_texts(each.json for each in frame)
    body = frame_text(IngestFrame(payload, "topic", "home-1", "principal", 0))
    return list(planner.plan(QueueMessage("m", body, 0, 1), 0))


@given(st.lists(events, max_size=6))
def test_each_event_of_a_frame_is_judged_by_its_own_contract(frame: list[Envelope]) -> None:
    expected = [
        step
        for each in frame
        for step in planned(
            NEW_PLANNER if each.attributes.get(FOLLOWED_CONTRACT) == NEW.version else OLD_PLANNER, each
        )
    ]
    assert planned(PLANNER, *frame) == expected


texts = st.text(st.characters(codec="utf-8"))


@given(texts, texts, st.none() | texts, st.none() | texts, st.datetimes())
def test_an_archived_head_is_read_as_it_was(
    base: str, version: str, previous: str | None, candidate: str | None, at: Any
) -> None:
    head = Head(base, version, previous, f"{at:%Y-%m-%dT%H:%M:%S}Z".zfill(20), candidate)
    assert read_head(head_text(head)) == head


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
members = st.dictionaries(
    st.sampled_from(("base", "version", "previous", "candidate", "published_at", "more")), json_values
)


@given(st.binary() | members.map(lambda each: json.dumps(each).encode()))
def test_whatever_is_no_head_is_a_value_error(text: bytes) -> None:
    try:
        head = read_head(text)
    except ValueError:
        return
    assert read_head(head_text(head)) == head
