"""Requests and replies as events, and the questions of services with their answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventplane.contract import Downlink
from eventplane.conversation.messages import (
    Failure,
    Replier,
    Reply,
    ReplyError,
    Status,
    is_request,
    read_reply,
    replier_to,
    write_reply,
    write_request,
)
from eventplane.conversation.questions import (
    HandlersAnswer,
    HandlersQuestion,
    QuestionError,
    StateAnswer,
    StateQuestion,
    read_handlers_answer,
    read_handlers_question,
    read_state_answer,
    read_state_question,
    write_handlers_answer,
    write_handlers_question,
    write_state_answer,
    write_state_question,
)
from eventplane.downlink.addressing import addressed
from eventplane.envelope import Envelope, Sender, parse_event, write_event
from eventplane.errors import EnvelopeError
from eventplane.hops import sent_on
from eventplane.limits import MAX_REPLY_BYTES
from tests.unit.eventplane.conversation.worlds import ask

NOW, DEADLINE = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
LAMP = Replier("lamp")


def request(event: Envelope | None = None, device: str | None = "home-1") -> Envelope:
    return write_request(
        event or ask(), asker="button", device=device, correlation_id="c1", deadline=DEADLINE, now=NOW
    )


def sent(reply: Envelope, replier: Replier = LAMP) -> Envelope:
    """As the plane delivers it, with the sender that it authenticated."""
    return reply.stamped(**Sender(replier.thing or "", replier.participant).attributes)


def test_a_request_is_its_event_with_the_asker_in_front() -> None:
    event = ask()
    asked = request(event)
    assert asked.json.endswith(event.json[1:])
    assert asked.key == event.key
    added = {name: each for name, each in asked.attributes.items() if name not in event.attributes}
    assert added == {
        "replyto": "button",
        "replydevice": "home-1",
        "correlationid": "c1",
        "expirytime": DEADLINE,
        "time": NOW,
    }
    assert is_request(asked)
    assert not is_request(event)
    assert parse_event(asked.json).attributes == asked.attributes


def test_a_request_keeps_its_own_expiry_and_time_and_is_asked_once() -> None:
    assert request(ask(expirytime=NOW)).attributes["expirytime"] == NOW
    assert request(ask(time="2020-01-01T00:00:00Z")).attributes["time"] == "2020-01-01T00:00:00Z"
    with pytest.raises(EnvelopeError, match="replyto"):
        request(request())


@given(
    answer=st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=10,
    ),
    status=st.sampled_from([Status.HANDLED, Status.FAILED, Status.UNHANDLED]),
    thing=st.none() | st.just("home-7"),
    failure=st.none() | st.just(Failure("ValueError", "too loud")),
)
def test_a_reply_arrives(answer: object, status: Status, thing: str | None, failure: Failure | None) -> None:
    reply = Reply(Replier("lamp", thing), status, answer, failure)
    event = parse_event(sent(write_reply(request(), reply, NOW), reply.replier).json)
    assert read_reply(event) == ("c1", reply)
    assert (event.attributes["replyto"], event.attributes["causationid"]) == ("button", "1")
    assert (event.attributes["expirytime"], event.attributes["todevice"]) == (DEADLINE, "home-1")
    of_device = write_reply(request().stamped(deliverby=NOW), reply, NOW)
    assert of_device.attributes["expirytime"] == NOW
    document = json.loads(event.json)
    document["data"]["mood"] = "a member of a later version"
    assert read_reply(parse_event(json.dumps(document))) == ("c1", reply)
    # Two clocks in one event would make a lifetime that nobody meant.
    assert "time" not in event.attributes
    assert not is_request(event)


def test_the_same_reply_is_the_same_event() -> None:
    asked = sent_on(sent_on(request()))
    first, again = (write_reply(asked, Reply(LAMP, Status.HANDLED, 1), each) for each in (NOW, DEADLINE))
    other = write_reply(request(), Reply(Replier("chime"), Status.HANDLED, 1), NOW)
    assert first.key == again.key != other.key
    # A copy that is sent on and on is stopped also if it is answered in between.
    assert first.attributes["routerhops"] == 2


@pytest.mark.parametrize("answer", [object(), "x" * 200_000, float("nan")])
def test_an_answer_that_cannot_be_sent_is_reported_as_a_failure(answer: object) -> None:
    _, reply = read_reply(sent(write_reply(request(), Reply(LAMP, Status.HANDLED, answer), NOW)))
    assert reply.status is Status.HANDLED
    assert reply.answer is None
    assert reply.failure is not None


def test_the_largest_answer_has_room_for_hops() -> None:
    bare = len(write_reply(request(), Reply(LAMP, Status.HANDLED, ""), NOW).json)
    largest, more = (
        write_reply(request(), Reply(LAMP, Status.HANDLED, "x" * (MAX_REPLY_BYTES - bare + each)), NOW)
        for each in (0, 1)
    )
    assert len(largest.json) == MAX_REPLY_BYTES
    assert addressed(sent_on(largest), Downlink.COMMAND, 0).message.id == largest.id
    _, reply = read_reply(sent(more))
    assert f"at most {MAX_REPLY_BYTES}" in reply.failure.text


def test_an_error_is_cut() -> None:
    long = Reply(LAMP, Status.FAILED, None, Failure.of(ValueError("x" * 10_000)))
    _, reply = read_reply(sent(write_reply(request(), long, NOW)))
    assert reply.failure == Failure("ValueError", "x" * 500)
    silent = Reply(LAMP, Status.FAILED, None, Failure.of(ValueError()))
    assert read_reply(sent(write_reply(request(), silent, NOW))) == ("c1", silent)


def test_a_replier_on_a_device_names_the_device() -> None:
    down = ask(todevice="home-7", downkind="command")
    assert replier_to(down, "lamp") == Replier("lamp", "home-7")
    # The same event in the cloud, and what a device asks.
    assert replier_to(ask(todevice="home-7"), "desk") == Replier("desk")
    assert replier_to(request(down), "lamp") == Replier("lamp")
    assert str(Replier("lamp", "home-7")) == "home-7/lamp"


@pytest.mark.parametrize(
    "change",
    [
        {"type": "org.eventplane.conversation.reply.v2"},
        {"correlationid": None},
        {"data": None},
        {"data": []},
        {"data": {}},
        {"status": "not_awaited"},
        {"status": "postponed"},
        {"participant": ""},
        {"thing": 7},
        {"failure": {"kind": "x"}},
        {"failure": "x"},
        {"failure": ""},
        {"thing": ""},
    ],
)
def test_malformed_replies_are_refused(change: dict[str, object]) -> None:
    event = json.loads(sent(write_reply(request(), Reply(LAMP, Status.HANDLED, 1), NOW)).json)
    for name, value in change.items():
        (event if name in event else event["data"])[name] = value
    with pytest.raises(ReplyError, match="not a reply"):
        read_reply(parse_event(json.dumps(event)))


@pytest.mark.parametrize(
    ("claimed", "sender", "counts"),
    [
        (LAMP, Sender("", "lamp"), True),
        (Replier("lamp", "home-7"), Sender("home-7", "lamp"), True),
        # A device that does not tell its services apart vouches for all of them.
        (Replier("lamp", "home-7"), Sender("home-7", ""), True),
        (LAMP, Sender("", "chime"), False),
        (Replier("lamp", "home-7"), Sender("home-7", "chime"), False),
        (Replier("lamp", "home-7"), Sender("home-666", "lamp"), False),
        (Replier("lamp", "home-7"), Sender("", "lamp"), False),
        (LAMP, Sender("home-666", "lamp"), False),
        (LAMP, Sender("home-666", ""), False),
        (LAMP, Sender(), False),
    ],
)
def test_only_the_repliers_reply_counts(claimed: Replier, sender: Sender, counts: bool) -> None:
    reply = Reply(claimed, Status.HANDLED, 1)
    event = write_reply(request(), reply, NOW).stamped(**sender.attributes)
    if counts:
        assert read_reply(event) == ("c1", reply)
    else:
        with pytest.raises(ReplyError, match="in the name of"):
            read_reply(event)


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts.filter(lambda it: 0 < len(it) <= 400), texts.filter(lambda it: 0 < len(it) <= 400))
def test_a_state_question_is_read_as_it_was_written(id: str, key: str) -> None:
    assert read_state_question(write_state_question(id, key), "x.inbox") == StateQuestion(id, key, "x.inbox")


@given(st.none() | texts, st.none() | st.just("this build has no answers"))
def test_a_state_answer_is_read_as_it_was_written(event: str | None, problem: str | None) -> None:
    answer = StateAnswer("1", event, problem)
    assert read_state_answer(write_state_answer(answer)) == answer


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"1", b"[]", b'{"id":1}', b'{"id":"i"}', b'{"id":"","key":"k"}', b'{"id":"i","event":1}'],
)
def test_other_bytes_are_neither_question_nor_answer(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_state_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_state_answer(payload)


@given(
    texts.filter(lambda it: 0 < len(it) <= 400),
    st.lists(st.sampled_from(["lamp", "desk"])).map(tuple),
    st.booleans(),
    st.none() | st.just("it asks nothing"),
)
def test_answers_are_read_back(thing: str, names: tuple[str, ...], again: bool, problem: str | None) -> None:
    answer = HandlersAnswer("1", thing, names, again, problem)
    written = write_handlers_answer(answer)
    assert read_handlers_answer(written) == answer
    # A later version may add members.
    assert read_handlers_answer(written[:-1] + b',"mood":"good"}') == answer


def test_a_handlers_question_has_the_attributes_of_the_event_only() -> None:
    event = write_event({"id": "1", "source": "/a", "type": "t", "loud": True, "n": 7}, {"much": "data"})
    payload = write_handlers_question("q", event)
    assert b"much" not in payload
    question = read_handlers_question(payload, "x.inbox")
    assert question == HandlersQuestion("q", question.event, "x.inbox")
    assert question.event.attributes == event.attributes


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b'{"id":"i"}',
        b'{"id":"i","event":{}}',
        b'{"id":"i","event":[]}',
        b'{"event":{"specversion":"1.0","id":"1","source":"/a","type":"t"}}',
        b'{"id":"i","thing":"t","handlers":"x","comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[""],"comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[],"comes_again":1}',
        b'{"id":"i","thing":"","handlers":[],"comes_again":true}',
        b'{"id":"i","thing":"t","handlers":[],"comes_again":true,"problem":1}',
    ],
)
def test_other_bytes_are_no_handlers_question_or_answer(payload: bytes) -> None:
    with pytest.raises(QuestionError):
        read_handlers_question(payload, "x.inbox")
    with pytest.raises(QuestionError):
        read_handlers_answer(payload)
