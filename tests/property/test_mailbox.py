"""The mailbox under any sequence of puts and waits loses nothing and keeps its order and limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventplane_mqtt.mailbox import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    Acknowledged,
    LinkName,
    Mailbox,
    Message,
    Received,
)

LIMIT = 200_000

sizes = st.sampled_from([0, 100, 5_000, 90_000, BATCH_BYTES + 1])
steps = st.one_of(
    st.tuples(st.sampled_from(list(LinkName)), st.lists(sizes, min_size=1, max_size=8)),
    st.tuples(st.just("many"), st.sampled_from(list(LinkName))),
    st.tuples(st.just("control"), st.none()),
    st.tuples(st.just("wait"), st.none()),
)


@given(st.lists(steps, max_size=40))
def test_every_message_is_taken_once_in_the_order_of_its_link(actions: list[tuple[object, object]]) -> None:
    mailbox: Mailbox[Message] = Mailbox()
    shares = {each: mailbox.share(each, LIMIT) for each in LinkName}
    put: dict[object, list[Message]] = {each: [] for each in (*LinkName, "control")}
    taken: dict[object, list[Message]] = {each: [] for each in put}
    paused: set[LinkName] = set()

    def note(batch: list[Message]) -> None:
        received = [each for each in batch if isinstance(each, Received)]
        control = [each for each in batch if not isinstance(each, Received)]
        assert batch[: len(control)] == control
        taken["control"] += control
        assert len(received) <= BATCH_MESSAGES
        large = [each for each in received if each.memory_bytes > BATCH_BYTES]
        assert sum(each.memory_bytes for each in received if each not in large) <= BATCH_BYTES + 100_000
        assert len(large) <= len(LinkName)
        if any(each.link is LinkName.URGENT for each in received):
            assert received[0].link is LinkName.URGENT
        for each in received:
            taken[each.link].append(each)

    for kind, argument in actions:
        if kind == "wait":
            note(mailbox.wait(0))
        elif kind == "control":
            put["control"].append(Acknowledged(LinkName.CLOUD, 1, len(put["control"])))
            mailbox.put(put["control"][-1])
        else:
            link = argument if kind == "many" else kind
            assert isinstance(link, LinkName)
            lengths = [0] * 600 if kind == "many" else argument
            assert isinstance(lengths, list)
            if not shares[link].may_read(lambda link=link: paused.discard(link)):  # type: ignore[misc]
                paused.add(link)
                continue
            messages = [
                Received(link, 1, len(put[link]) + n, "t", bytes(size)) for n, size in enumerate(lengths)
            ]
            shares[link].put(messages)
            put[link] += messages
        for link, share in shares.items():
            assert share.waiting == len(put[link]) - len(taken[link])
    while batch := mailbox.wait(0):
        note(batch)
    assert taken == put
    assert not paused
    assert all(share.waiting_bytes == 0 for share in shares.values())
