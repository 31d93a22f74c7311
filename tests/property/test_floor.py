"""No contract that passes the floor's check loses an alarm of the image's contract, whatever was changed."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from os import urandom
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edge.decision import Decider, SequenceNumber
from edge.interest import Interest
from edge.spool import StoredEvent
from eventplane.alarm_floor import floor_problems
from eventplane.contract import Contract, ContractError, Forward, ParticipantKind, Priority, compile_contract
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.envelope import write_event
from eventplane.filters import Any as AnyOf
from eventplane.names import REPLY_TYPE
from tests.examples import sampled
from tests.plane import shipped_contract
from tests.routing import decider
from tests.small_contract import small_contract

Document = dict[str, Any]
Change = Callable[[Document], object]


def odd_image() -> Contract:
    """Alarms by type, by family, by their outbox and by their destination; services that say nothing."""
    service = {"kind": "device_service"}
    return small_contract(
        {
            "home": {"kind": "device", "sends": ["dev.*"], "outbox": {"expiry_s": 600}},
            "button": {**service, "sends": ["a.ring", "b.*"], "outbox": {"expiry_s": 60, "priority": "low"}},
            "smoke": {**service, "sends": ["s.*", "t.plain"], "outbox": {"priority": "urgent"}},
            "mute": {**service, "inbox": {"receipts": True}},
            "siren": {**service, "sends": [], "inbox": {"priority": "urgent"}},
            "lamp": {**service, "sends": [], "inbox": {"expiry_s": 30, "delivery_guarantee": "best_effort"}},
            "desk": {"kind": "cloud_service", "sends": []},
        },
        {
            "rings": ({"exact": {"type": "a.ring"}}, "siren.inbox"),
            "loud": ({"exact": {"loud": "yes"}}, "siren.inbox"),
            "smoke": {
                "filter": {"sql": "type LIKE 's.%' AND subject <> 'test'"},
                "to": "mute.inbox",
                "delivery_guarantee": "at_least_once",
            },
            "lights": ({"suffix": {"type": ".ring"}}, "lamp.inbox"),
            "up": ({"not": {"prefix": {"type": "t."}}}, "home.outbox"),
            "desk": ({"exact": {"type": "a.ring"}}, "desk.inbox"),
        },
        {
            "a.ring": {"priority": "urgent"},
            "t.plain": {"priority": "normal"},
            "b.low": {"priority": "low"},
            "b.lively": {"delivery_guarantee": "best_effort"},
        },
    )


def shipped_image() -> Contract:
    """The shipped contract without its schemas, which are most of its text and say nothing of deliveries."""
    document = json.loads(shipped_contract().canonical)
    for each in document["event_types"].values():
        each |= {"schemas": [], "schema_check": "none"}
    return compile_contract(document, "shipped")


IMAGES = {"shipped": shipped_image(), "odd": odd_image()}

GUARANTEES = ["best_effort", "at_least_once", None]

SETTINGS: dict[str, list[Any]] = {
    "delivery_guarantee": GUARANTEES[:2],
    "priority": ["urgent", "normal", "low"],
    "expiry_s": [None, 1, 45, 31_000_000],
    "when_full": ["refuse", "drop_oldest"],
    "receipts": [True, False],
    "forward": ["all", "wanted"],
    "batching_delay_ms": [0, 300_000],
}
"""Of a channel."""


def types_in(document: Document) -> list[str]:
    named = [each for one in document["participants"].values() for each in (one.get("sends") or [])]
    exact = [each.replace(".*", ".made-up") for each in named]
    return sorted({*document["event_types"], *exact})


def filters(document: Document) -> Iterator[Document]:
    urgent = [name for name, one in document["event_types"].items() if one.get("priority") == "urgent"]
    for each in (*urgent, "s.made-up"):
        yield {"exact": {"type": each}}
        yield {"not": {"exact": {"type": each}}}
        yield {"prefix": {"type": each.rpartition(".")[0] + "."}}
    yield from ({"sql": "TRUE"}, {"sql": "FALSE"}, {"exact": {"loud": "yes"}}, {"prefix": {"subject": "x"}})


def changes(document: Document) -> Iterator[Change]:
    """Every single change of the device's side that an attacker, or an operator, could think of."""
    home = {name: one for name, one in document["participants"].items() if one["kind"] != "cloud_service"}
    for name, one in home.items():
        at = ("participants", name)
        yield partial(rename, name=name)
        yield from puts((*at, "kind"), [each.value for each in ParticipantKind])
        said = [[each] for each in one.get("sends") or []]
        yield from puts((*at, "sends"), [None, [], ["x"], ["a.*"], ["org.eventplane.*"], *said])
        yield from puts((*at, "asks"), [[]])
        for box, (setting, values) in product(("inbox", "outbox"), SETTINGS.items()):
            yield from puts((*at, box, setting), values)
    for name in types_in(document):
        at = ("event_types", name)
        yield from puts((*at, "priority"), ["urgent", "normal", "low", None])
        yield from puts((*at, "downlink"), ["state"])
        yield from puts((*at, "delivery_guarantee"), GUARANTEES)
    channels = [f"{name}.{'outbox' if one['kind'] == 'device' else 'inbox'}" for name, one in home.items()]
    for name, one in document["routes"].items():
        if one["to"].partition(".")[0] not in home:
            continue
        at = ("routes", name)
        yield from puts((*at, "to"), channels)
        yield from puts((*at, "interest"), [[]])
        yield from puts((*at, "delivery_guarantee"), GUARANTEES)
        for filter in filters(document):
            both = [one["filter"], filter]
            yield from puts((*at, "filter"), [filter, {"all": both}, {"any": both}])
    for part in ("participants", "event_types", "routes"):
        for name in document[part]:
            yield partial(remove, part=part, name=name)


def puts(path: tuple[str, ...], values: Iterable[Any]) -> Iterator[Change]:
    return (partial(put, path=path, value=value) for value in values)


def put(document: Document, path: tuple[str, ...], value: object) -> None:
    """Change a value in what there is; an event type that is not declared is then."""
    *above, last = path
    if path[0] == "event_types":
        document["event_types"].setdefault(path[1], {"description": "d"})
    for each in above:
        document = document.get(each, {})
    document[last] = value


def remove(document: Document, part: str, name: str) -> None:
    document[part].pop(name, None)


def rename(document: Document, name: str) -> None:
    if name not in document["participants"]:
        return
    document["participants"]["other"] = document["participants"].pop(name)
    for each in document["routes"].values():
        each["to"] = each["to"].replace(f"{name}.", "other.")


def offered(image: Contract, chosen: list[Change]) -> Contract | None:
    """The contract after the changes; None where it is none, or the device refuses it."""
    document = json.loads(image.canonical)
    # The compiler writes these again.
    document["routes"] = {
        name: each for name, each in document["routes"].items() if not name.startswith("replies-to-")
    }
    for each in chosen:
        each(document)
    try:
        contract = compile_contract(document, "offered")
    except (ContractError, KeyError):
        return None
    return None if floor_problems(image, contract) else contract


Sent = tuple[str, int]
"""A sender, and which of `EVENTS` it sends."""


def intake_of(contract: Contract) -> Decider:
    """The device's own decisions under a contract, where the cloud wants as little as it can."""
    interest = Interest(urandom)
    if contract.device.outbox.forward is Forward.WANTED:
        interest.wanted_up(contract.device.outbox.address, AnyOf(()))
    return decider(contract, interest)


def arrival(contract: Contract, intake: Decider, sent: Sent) -> StoredEvent | None:
    """What the device stores of an event; None where it refuses it, or does not know its sender."""
    service = contract.participants.get(sent[0])
    if service is None or service.kind is not ParticipantKind.DEVICE_SERVICE:
        return None
    verdict = intake.accept(PAYLOADS[sent[1]], service.outbox, SequenceNumber(1, 0))
    return None if verdict.refused else verdict.arrival


@cache
def alarms(name: str) -> dict[Sent, StoredEvent]:
    """The calls for help that the device stores under an image's contract."""
    image, found = IMAGES[name], {}
    intake = intake_of(image)
    for service in image.of_kind(ParticipantKind.DEVICE_SERVICE):
        for number in range(len(PAYLOADS)):
            stored = arrival(image, intake, (service.name, number))
            if stored is not None and is_alarm(image, stored):
                found[service.name, number] = stored
    return found


OF_EVERYBODY = {REPLY_TYPE, DEAD_LETTER_TYPE}
"""No calls for help."""

TYPES = sorted(
    {name for each in IMAGES.values() for name in types_in(json.loads(each.canonical))} - OF_EVERYBODY
    | {"unknown.ring"}
)
EVENTS = [
    {"type": type, **more}
    for type in TYPES
    for more in ({}, {"loud": "yes"}, {"subject": "test"}, {"subject": "x/bedroom"})
]


PAYLOADS = [
    write_event({"id": str(number), "source": "/s", **each}).json.encode()
    for number, each in enumerate(EVENTS)
]


def is_alarm(contract: Contract, arrival: StoredEvent) -> bool:
    urgent = {each.address for each in contract.channels if each.priority is Priority.URGENT}
    return arrival.rank == Priority.URGENT.rank or bool(urgent & arrival.destinations.keys())


def lost(name: str, after: Contract) -> list[str]:
    """The alarms of the image that fare worse after an update."""
    intake, losses = intake_of(after), []
    up = IMAGES[name].device.outbox
    image, waits_longer = IMAGES[name].participants, set[str]()
    for each in image.values():
        now_waits = after.participants[each.name].outbox if each.name in after.participants else each.outbox
        if now_waits.batching_delay_ms > each.outbox.batching_delay_ms:
            waits_longer.add(each.name)
    for sent, before in alarms(name).items():
        now = arrival(after, intake, sent)
        if now is None or now.rank > before.rank:
            losses.append(f"{sent}: {now}")
            continue
        is_gathered = up.address in before.destinations and now.rank > Priority.URGENT.rank
        if is_gathered and {up.participant, sent[0]} & waits_longer:
            losses.append(f"{sent} waits longer for a batch")
        for address, expires_ms in before.destinations.items():
            expires_now = now.destinations.get(address, 0)
            if expires_now is not None and (expires_ms is None or expires_now < expires_ms):
                losses.append(f"{sent} to {address}: {now}")
    return losses


CHANGES = {name: list(changes(json.loads(image.canonical))) for name, image in IMAGES.items()}


@pytest.mark.parametrize("name", IMAGES)
def test_each_image_has_alarms_to_lose(name: str) -> None:
    assert len({address for each in alarms(name).values() for address in each.destinations}) >= 2
    assert floor_problems(IMAGES[name], IMAGES[name]) == ()


@pytest.mark.parametrize("name", IMAGES)
def test_no_single_change_that_a_device_takes_loses_an_alarm(name: str) -> None:
    every = sampled(CHANGES[name])
    taken = [contract for each in every if (contract := offered(IMAGES[name], [each])) is not None]
    assert len(every) // 10 < len(taken) < len(every) * 9 // 10
    for each in {each.version: each for each in taken}.values():
        assert lost(name, each) == []


@given(st.data())
def test_no_combination_loses_an_alarm(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(IMAGES)))
    chosen = data.draw(st.lists(st.sampled_from(CHANGES[name]), min_size=2, max_size=4))
    contract = offered(IMAGES[name], chosen)
    assume(contract is not None)
    assert contract is not None
    assert lost(name, contract) == []
