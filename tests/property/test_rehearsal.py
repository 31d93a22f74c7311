"""A rehearsal says of each event what the routers do with it under the contract, delivery by delivery."""

from collections import Counter
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.explain import explain
from contract.loader import payload_check
from contract.rehearsal import PAYLOAD_REASONS, Effect, Rehearsal, Tapped, carried
from eventplane.contract import Contract, Place
from eventplane.contract.subscription import new_subscription, with_subscriptions
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import Envelope, write_event
from eventplane.expiry import expires_at_ms
from eventplane.ingest import IngestFrame, frame_text
from eventplane.interest.announcement import new_announcement, with_interest
from eventplane.ledger import LedgerRecord
from eventplane.reasons import Outcome
from eventplane.values import timestamp_of_ms
from lambdas.common.queue import QueueMessage
from lambdas.router.planner import Planner
from tests.examples import examples
from tests.routing import THING
from tests.small_contract import small_contract

ALARM, NOTE = "org.example.alarm.v1", "org.example.note.v1"
ACCEPTED_MS = 1_767_225_600_000
FILTERS = st.sampled_from(
    [
        {"exact": {"type": ALARM}},
        {"prefix": {"type": "org."}},
        {"exact": {"type": DEAD_LETTER_TYPE}},
        {"exact": {"deadletterreason": "payload_invalid"}},
        {"not": {"exact": {"subject": "a"}}},
        {"exact": {"senderdevice": THING}},
        {"sql": "EXISTS room AND room = true"},
        {"sql": f"type = '{NOTE}' AND (subject LIKE '%b' OR severitynumber > 10)"},
    ]
)
DESTINATIONS = st.sampled_from(["device.outbox", "chime.inbox", "desk.inbox", "shop.inbox", "device.inbox"])
ROUTES = st.lists(
    st.tuples(
        FILTERS, st.sampled_from(["device.outbox", "chime.inbox", "desk.inbox", "shop.inbox", "device.inbox"])
    ),
    max_size=6,
)


def _contract(
    routes: list[tuple[dict[str, Any], str]],
    sends: list[str] | None,
    expiry_s: dict[str, int],
    schema: dict[str, Any],
    announced: list[object] | None,
) -> Contract:
    inboxes = {name: {"inbox": {"expiry_s": each}} for name, each in expiry_s.items()}
    schemas = [{"$id": "https://example.org/note", "type": "object", **schema}]
    made = small_contract(
        {
            "device": {"kind": "device"},
            "bell": {"kind": "device_service", **({} if sends is None else {"sends": sends})},
            "chime": {"kind": "device_service", "sends": []},
            "desk": {"kind": "cloud_service", **inboxes.get("desk", {})},
            "shop": {"kind": "cloud_service", "sends": [], **inboxes.get("shop", {})},
            "downlink": {"kind": "cloud_service", "sends": []},
        },
        {
            "up": ({"prefix": {"type": "org."}}, "device.outbox"),
            **{f"route-{at}": each for at, each in enumerate(routes)},
        },
        {
            ALARM: {"priority": "urgent"},
            NOTE: {"schemas": schemas, "schema_check": "strict" if schema else "none"},
        },
    )
    if announced is None:
        return made
    return with_interest(made, [new_announcement("desk", announced)])[0]


CONTRACTS = st.builds(
    _contract,
    ROUTES,
    st.sampled_from([None, [], [ALARM], [ALARM, NOTE]]),
    st.dictionaries(st.sampled_from(["desk", "shop"]), st.sampled_from([1, 60])),
    st.sampled_from([{}, {"required": ["value"]}, {"required": ["more"]}]),
    st.none() | st.lists(FILTERS, max_size=1),
)
EVENTS = st.builds(
    lambda type, attributes, data: write_event({"id": "1", "source": "/a", "type": type, **attributes}, data),
    st.sampled_from([ALARM, NOTE, DEAD_LETTER_TYPE, "com.example.other"]),
    st.fixed_dictionaries(
        {},
        optional={
            "subject": st.sampled_from(["a", "b", "ab"]),
            "room": st.sampled_from([True, "true", "b"]),
            "severitynumber": st.sampled_from([5, 12, 20]),
            "senderservice": st.sampled_from(["bell", "chime", "device", "desk", "nobody"]),
            "routerhops": st.sampled_from([1, 16]),
            "expirytime": st.sampled_from([0, 5_000]).map(lambda ms: timestamp_of_ms(ACCEPTED_MS + ms)),
            "time": st.just(timestamp_of_ms(ACCEPTED_MS)),
        },
    ),
    st.sampled_from([{}, {"value": 1}, {"more": 1}]),
)
DELAYS = st.sampled_from([0, 500, 1_000, 30_000, 100_000])


def _records(contract: Contract, event: Envelope, delay_ms: int) -> list[LedgerRecord]:
    """Return the ledger's rows that the cloud's router writes of an event of `THING`."""
    frame = IngestFrame(event.json.encode(), "topic", THING, "principal", ACCEPTED_MS)
    message = QueueMessage("m", frame_text(frame), ACCEPTED_MS, 1, present_ms=ACCEPTED_MS + delay_ms)
    steps = Planner(contract, "device.outbox", lambda: 0.0).plan(message, ACCEPTED_MS + delay_ms)
    return [each.record for each in steps]


@settings(max_examples=examples(600))
@given(CONTRACTS, CONTRACTS, EVENTS, DELAYS)
def test_it_equals_the_run(old: Contract, new: Contract, event: Envelope, delay_ms: int) -> None:
    before = _records(old, event, delay_ms)
    is_refused = any(each.reason in PAYLOAD_REASONS and each.route is None for each in before)
    ends_ms = expires_at_ms(event, ACCEPTED_MS)
    tapped = Tapped(event, THING, ACCEPTED_MS, ends_ms, ACCEPTED_MS + delay_ms, is_refused)
    rehearsal = Rehearsal(old, new, payload_check)
    rulings = rehearsal.rulings(tapped)
    for contract, ruling in zip((old, new), rulings, strict=True):
        local = {each.route for each in ruling.ends if each.place is Place.DEVICE}
        above = (each for each in ruling.ends if each.place is Place.CLOUD)
        home = {each.route for each in explain(contract, event, Place.DEVICE) if each.matched}
        goes_up = any(each.destination == "device.outbox" for each in home)
        if ruling.goes_up or ruling is rulings[0] or not rulings[0].goes_up or ruling.refused:
            run = [each for each in _records(contract, event, delay_ms) if each.route]
            ends = Counter((*each[:3], each.outcome, each.reason) for each in above)
            assert ends == Counter((*map(partial(getattr, each), RECORDED),) for each in run)
        else:
            assert not goes_up
            assert not [*above]
        if event.attributes.get("senderservice") in ("bell", "chime") and not ruling.refused:
            assert ruling.goes_up is goes_up
            assert local == {each.name for each in home if each.destination != "device.outbox"}
    # The sum says the same, whether the event is judged by itself or by its combination of values.
    rehearsal.take(tapped)
    tally = rehearsal.tally()
    assert tally.events == 1
    for at, ruling in enumerate(rulings):
        came = (each for each in ruling.ends if each.outcome is Outcome.DELIVERED)
        counts = Counter((each.destination, each.type) for each in came)
        assert {inbox: each[at] for inbox, each in tally.deliveries.items() if each[at]} == counts
    kinds = {each.kind for each in tally.changes}
    assert (Effect.FEWER in kinds) == any(was > now for was, now in tally.deliveries.values())
    assert (Effect.MORE in kinds) == any(was < now for was, now in tally.deliveries.values())


RECORDED = ("type", "route", "destination", "outcome", "reason")


@settings(max_examples=examples(200))
@given(CONTRACTS, st.lists(st.tuples(EVENTS, DELAYS), max_size=8))
def test_equal_contracts_differ_in_nothing(contract: Contract, events: list[tuple[Envelope, int]]) -> None:
    rehearsal = Rehearsal(contract, contract, payload_check)
    for event, delay_ms in events:
        rehearsal.take(Tapped(event, THING, ACCEPTED_MS, None, ACCEPTED_MS + delay_ms))
    tally = rehearsal.tally()
    assert not tally.changes
    assert all(before == after for before, after in tally.deliveries.values())


@settings(max_examples=examples(100))
@given(CONTRACTS, FILTERS, st.none() | st.lists(FILTERS, max_size=1))
def test_subscriptions_are_carried_over(
    plain: Contract, filter: dict[str, Any], announced: list[object] | None
) -> None:
    old, refused = with_subscriptions(plain, [new_subscription("desk", "mine", filter, "")])
    if announced is not None:
        old = with_interest(old, [new_announcement("desk", announced)])[0]
    if not refused and not any(each.interest for each in plain.routes):
        assert carried(old, plain).version == old.version
