"""The account of an event at each inbox, and the reach of a type, against what routers decide."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contract.checks import check
from contract.explain import outcomes
from edge.decision import SequenceNumber
from eventplane.account import EVERY_INBOX, Account, Fate, accounts, by_dead_letter, by_router
from eventplane.contract import Contract, ParticipantKind
from eventplane.downlink.addressing import addressed
from eventplane.downlink.rights import DownlinkRights
from eventplane.downlink.wire import DownlinkError
from eventplane.envelope import THE_PLANE, Envelope, Sender, parse_event, write_event
from eventplane.reach import Reachability
from eventplane.reasons import REDRIVE, Outcome
from tests.plane import shipped_contract
from tests.routing import decider, framed, routed
from tests.small_contract import small_contract

CONTRACT = shipped_contract()
INBOXES = st.sampled_from(["alarm-centre.inbox", "family-app.inbox", "carers.inbox"])
FACTS = st.builds(
    Account,
    INBOXES | st.just(EVERY_INBOX),
    st.sampled_from(Fate),
    st.sampled_from(["", "alarm-centre"]),
    st.sampled_from(["", "payload_invalid", REDRIVE]),
    st.none() | st.integers(0, 9),
)
NOT_PUT = {Fate.REFUSED, Fate.LOST, Fate.WAITING, Fate.UNKNOWN}


@given(due=st.sets(INBOXES), facts=st.lists(FACTS), order=st.randoms(use_true_random=False))
def test_no_event_vanishes(due: set[str], facts: list[Account], order: Random) -> None:
    found = {each.inbox: each for each in accounts(due, facts)}
    named = due | {each.inbox for each in facts}
    assert set(found) == (named - {EVERY_INBOX} or {EVERY_INBOX})
    order.shuffle(facts)
    assert {each.inbox: each for each in accounts(due, [*facts, *facts])} == found
    for inbox, account in found.items():
        about = [each for each in facts if each.inbox in (inbox, EVERY_INBOX)]
        # What no record says is unknown and names what is missing; what is lost is proven by a fact.
        assert account in [replace(each, inbox=inbox) for each in about] or (
            (not about) and (account.fate, bool(account.why)) == (Fate.UNKNOWN, True)
        )
        fates = {each.fate for each in about}
        assert account.fate not in NOT_PUT or not fates & {Fate.HANDLED, Fate.IN_INBOX}
        assert (account.fate is Fate.HANDLED) == (Fate.HANDLED in fates)
        assert account.fate is not Fate.LOST or Fate.REFUSED not in fates
        assert accounts([inbox] if inbox else [], about) == (account,)


@given(given_up_ms=st.integers(0, 9), again_ms=st.integers(0, 9), copy_ms=st.integers(0, 9))
def test_what_was_given_up_stays_so(given_up_ms: int, again_ms: int, copy_ms: int) -> None:
    put = Account("carers.inbox", Fate.IN_INBOX, at_ms=0)
    given_up = Account("carers.inbox", Fate.GIVEN_UP, "carers", "TimeoutError", given_up_ms)
    copy = replace(put, at_ms=copy_ms)
    assert accounts([], [put, given_up, copy]) == (given_up,)
    again = replace(put, why=REDRIVE, at_ms=again_ms)
    (account,) = accounts([], [put, given_up, copy, again])
    assert account.fate is (Fate.GIVEN_UP if given_up_ms >= again_ms else Fate.IN_INBOX)


@given(st.sampled_from(Outcome), st.sampled_from([None, "a", REDRIVE]), st.sampled_from([None, "operator"]))
def test_decisions_have_an_account(outcome: Outcome, reason: str | None, put_back_by: str | None) -> None:
    record = {
        "outcome": str(outcome), "reason": reason, "put_back_by": put_back_by, "decided_at_ms": 1,
        "destination": "carers.inbox", "route": "r", "entered_by": "device.outbox",
    }  # fmt: skip
    account = by_router(record)
    assert (account.inbox, account.at_ms, account.is_by_reader) == ("carers.inbox", 1, False)
    assert account.fate not in (Fate.LOST, Fate.UNKNOWN)
    assert reason is None or outcome is Outcome.DELIVERED or account.why == reason


SERVICES = [Sender(service=each) for each in ("", "carers", "downlink")]
WRITERS = st.sampled_from([THE_PLANE, Sender("home-1", "device"), *SERVICES])


@given(WRITERS, st.sampled_from([each.address for each in CONTRACT.channels] + ["gone.inbox", "replay", ""]))
def test_a_dead_letter_speaks_only_for_the_inboxes_of_who_wrote_it(writer: Sender, channel: str) -> None:
    account = by_dead_letter(CONTRACT, writer, channel, None, "r", 1)
    owner, _, box = channel.partition(".")
    if account is not None and box == "inbox":
        participant, reader = CONTRACT.participants[owner], "downlink" if owner == "device" else owner
        assert (account.fate, account.inbox, account.by) == (Fate.GIVEN_UP, channel, reader)
        assert participant.kind.is_on_device if writer.device else writer.service == reader
    elif account is not None:
        assert (account.fate, account.inbox) == (Fate.REFUSED, EVERY_INBOX)
        assert writer.device or writer == THE_PLANE or writer.service == owner


TYPES = ["a.x", "a.y", "b.x", "org.eventplane.conversation.reply.v1"]
NUMBER = SequenceNumber(1, uptime_ms=5)
CONDITIONS = [
    *({"exact": {"type": each}} for each in TYPES),
    *({"exact": {"senderservice": each}} for each in ("lamp", "bell", "desk", "device")),
    {"prefix": {"type": "a."}},
    {"suffix": {"type": ".x"}},
    {"exact": {"senderdevice": "home-1"}},
    {"sql": "NOT EXISTS senderdevice"},
    {"sql": "type LIKE 'a.%' AND EXISTS subject"},
    {"sql": "1 / 0 = 1 OR NOT (type LIKE 'a%')"},
    {"sql": "subject XOR type = 'a.x'"},
    {"sql": "1 / 0 = 1 OR type = 'a.y'"},
    {"exact": {"subject": "k"}},
]
FILTERS = st.recursive(
    st.sampled_from(CONDITIONS),
    lambda inner: (
        st.fixed_dictionaries({"all": st.lists(inner, min_size=2, max_size=2)})
        | st.fixed_dictionaries({"any": st.lists(inner, min_size=2, max_size=2)})
        | st.fixed_dictionaries({"not": inner})
    ),
    max_leaves=3,
)
SENDS = st.sampled_from([[], ["a.x"], ["a.*"], ["a.x", "b.x"]])
ON_DEVICE = st.fixed_dictionaries(
    {"kind": st.just("device_service"), "description": st.just("d")},
    optional={"sends": SENDS, "asks": st.just(["a.y"])},
)
IN_CLOUD = st.fixed_dictionaries(
    {"kind": st.just("cloud_service"), "description": st.just("d")},
    optional={
        "sends": SENDS,
        "asks": st.just(["b.x"]),
        "may_address": st.sampled_from(["one", "everyone", ["g"]]),
    },
)
PARTICIPANTS = st.fixed_dictionaries(
    {
        "device": st.fixed_dictionaries(
            {"kind": st.just("device"), "description": st.just("d")}, optional={"sends": SENDS}
        ),
        "lamp": ON_DEVICE,
        "bell": ON_DEVICE,
        "desk": IN_CLOUD,
        "shop": IN_CLOUD,
        "downlink": st.just({"kind": "cloud_service", "description": "d", "sends": []}),
    }
)
RELAYS = ["device.outbox", "device.outbox", "device.inbox"]
ENDS = ["lamp.inbox", "bell.inbox", "desk.inbox", "shop.inbox"]
ROUTES = st.lists(
    st.fixed_dictionaries({"filter": FILTERS, "to": st.sampled_from([*RELAYS, *ENDS])}),
    min_size=1,
    max_size=7,
)
EVENTS = st.fixed_dictionaries(
    {"id": st.just("1"), "source": st.just("/a"), "type": st.sampled_from(TYPES)},
    optional={
        "subject": st.sampled_from(["k", "z"]),
        "todevice": st.sampled_from(["home-1", "*", "a b"]),
        "togroup": st.sampled_from(["g", "h"]),
        "replyto": st.sampled_from(["lamp", "desk"]),
        "downkey": st.just("x"),
    },
)


@given(participants=PARTICIPANTS, routes=ROUTES, attributes=EVENTS)
def test_explain_and_reach_agree_with_forwarder_and_routers(
    participants: dict[str, Any], routes: list[dict[str, Any]], attributes: dict[str, Any]
) -> None:
    named = {f"route-{at}": each for at, each in enumerate(routes)}
    contract = small_contract(participants, named, {each: {} for each in TYPES})
    check(contract)
    reach = Reachability(contract)
    event = write_event(attributes)
    for participant in reach.rights.senders(event.type):
        name = participant.name
        (found,) = outcomes(contract, event, f"home-1/{name}" if participant.kind.is_on_device else name)
        assert {each.channel.address for each in found.receipts} == receivers(contract, name, event)
        came = {tuple(hop.route.name for hop in each.hops) for each in found.receipts}
        ways = {tuple(each.name for each in way.routes): way for way in reach.ways(event.type, participant)}
        assert came <= ways.keys()
        if not found.not_down:
            assert {names for names, way in ways.items() if way.is_certain} <= came
            assert bool(found.problem) is not bool(came)


def receivers(contract: Contract, sender: str, event: Envelope) -> set[str]:
    """The channels that an `event` of `sender` comes into by what forwarder, routers and downlink decide."""
    participant = contract.participants[sender]
    uplink, inbox = contract.device.outbox.address, contract.device.inbox
    device = decider(contract)
    if participant.kind is ParticipantKind.CLOUD_SERVICE:
        delivered = by_cloud(contract, participant.outbox.address, event.json)
        down = delivered.pop(inbox.address, None)
        if down is not None and not is_refused(contract, down):
            decided = device.decide_downlink(down, inbox, NUMBER)
            return {
                inbox.address,
                *delivered,
                *decided.expiries,
                *(each.address for each in decided.volatile),
            }
        return {*delivered}
    if participant.kind is ParticipantKind.DEVICE:
        stored = device.own(event, NUMBER)
    else:
        arrival = device.accept(event.json.encode(), participant.outbox, NUMBER).arrival
        assert arrival is not None
        stored = arrival
    if parse_event(stored.json).type != event.type:  # a dead letter about it
        return set()
    found = {*stored.destinations}
    if uplink in found:
        found |= by_cloud(contract, uplink, framed(parse_event(stored.json))).keys()
    return found - {uplink}


def by_cloud(contract: Contract, channel: str, body: str) -> dict[str, Envelope]:
    """What the cloud's router delivers of the message `body`, by its destination, without dead letters."""
    return {
        str(each.record.destination): each.event
        for each in routed(contract, channel, body)
        if each.event is not None and each.record.outcome is Outcome.DELIVERED and each.record.type in TYPES
    }


def is_refused(contract: Contract, event: Envelope) -> bool:
    """Whether the downlink refuses an event, where each device is in group g."""
    try:
        wanted = addressed(event, contract.downlink(event.type), accepted_at_ms=1_000_000_000_000)
    except DownlinkError:
        return True
    return DownlinkRights(contract).refusal(event, wanted, ["g"]) is not None
