"""The states of a key end alike in whatever order the cloud applies them, and however often."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventplane.downlink.addressing import Addressed
from eventplane.downlink.desired import Desired, KeyedEvent
from eventplane.downlink.transitions import apply_event
from tests.examples import examples
from tests.unit.eventplane.downlink.events import NOW_MS, THING, deletion, state


def expected(events: Sequence[Addressed]) -> KeyedEvent | None:
    """The state that a device should have after all events of a key (docs/explanation/downlink.md)."""
    messages = [each.message for each in events]
    live = [each for each in messages if not each.is_deleted]
    if not live:
        return None
    newest = max(live, key=lambda each: each.version)
    ends = [each.version for each in messages if each.is_deleted and each.uid in ("", newest.uid)]
    return None if any(version >= newest.version for version in ends) else newest


@st.composite
def histories(draw: st.DrawFn) -> list[Addressed]:
    """What a sender says of a key: incarnations one after the other, deletions early, late, or never."""
    version, uid = 1, draw(st.sampled_from(["", "a", "a"]))
    uids = [uid]
    events = [state(version, uid)]
    for _ in range(draw(st.integers(1, 10))):
        version += draw(st.integers(1, 3))
        match draw(st.sampled_from(["change", "delete", "recreate", "late"])):
            case "change":
                events.append(state(version, uid))
            case "delete":
                events.append(deletion(version, uid))
            case "recreate":
                uid = uid and f"{uids[0]}{len(uids)}"
                uids.append(uid)
                events.append(state(version, uid))
            case _:
                events.append(
                    deletion(version, draw(st.sampled_from([each for each in uids if each] or [""])))
                )
    return events


@pytest.mark.source("K4", "K-B3")
@settings(max_examples=examples(200))
@given(histories(), st.data())
def test_order_does_not_matter(events: list[Addressed], data: st.DataObject) -> None:
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=4))
    item: Desired | None = None
    for each in data.draw(st.permutations(events + repeated)):
        item = apply_event(item, THING, each, NOW_MS, is_present=data.draw(st.booleans())).item
    wanted = expected(events)
    assert (item.message.id if item and item.is_present and item.message else None) == (wanted and wanted.id)
