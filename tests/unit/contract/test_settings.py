"""Each optional setting of a contract: its effect, its format, its words for people."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.checks import check
from contract.diff import diff_text
from contract.loader import load_contract
from contract.publish import Baseline, ContractPublisher, DestinationsNotDeployedError
from contract.summary import duration, settings_text, special_text, summary
from eventplane.contract import (
    AddressScope,
    ContractError,
    Downlink,
    Forward,
    ParticipantKind,
    Place,
    Priority,
    Webhook,
    WebhookMode,
    compile_contract,
    load_compiled,
)
from eventplane.contract.channels import SETTINGS, read_channel
from eventplane.contract.publication import cloud_inboxes
from eventplane.contract.reader import Section, Word
from eventplane.contract.schedules import schedule_of
from eventplane.contract.subscription import new_subscription, with_subscriptions
from eventplane.conversation.messages import Replier, Reply, Status, write_reply
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.names import SENDERS
from eventplane.router import Router
from operations import system
from parts.discovery_api.build import endpoint
from tests.packages import install
from tests.small_contract import with_changes
from tests.unit.contract.small import RING, document, small, written_format
from tests.unit.eventplane.conversation import worlds
from tests.unit.eventplane.conversation.test_envelopes import NOW, request

BEST_EFFORT = "best_effort"
DESK, DEVICE = "participants/desk", "participants/device"
WEBHOOK = {"mode": "binary", "timeout_s": 3, "give_up_after_s": 600, "requests_per_minute": 90}


@pytest.mark.source("P4", "P13", "C1")
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (f"{DESK}/inbox/events_per_message", 1, ""),
        (f"{DESK}/inbox/receipts", True, "confirmed after handling"),
        (f"{DESK}/inbox/events_per_message", 250, "up to 250 events a message"),
        (f"{DESK}/inbox/webhook", None, ""),
        (f"{DESK}/inbox/webhook", WEBHOOK, "inbox: a webhook, binary"),
        (f"{DESK}/inbox/delivery_guarantee", BEST_EFFORT, "best effort"),
        (f"{DESK}/inbox/transport", "pigeon", ""),
        (f"{DESK}/may_address", "one", ""),
        (
            f"{DESK}/may_address",
            ["south", "north"],
            "may address: the groups north, south and the devices",
        ),
        (f"{DESK}/may_subscribe", {"exact": {"type": "x"}}, 'may subscribe: type is "x"'),
        (f"{DESK}/asks", ["org.example.*"], "asks"),
        (f"{DEVICE}/inbox/downlink", "command", ""),
        (f"{DEVICE}/inbox/downlink", "state", "inbox: events go down as state"),
        (f"{DEVICE}/outbox/forward", "wanted", ""),
        (f"event_types/{RING}/downlink", "state", "; goes down as state"),
        (f"event_types/{RING}/delivery_guarantee", "at_least_once", "; at least once, unless its route"),
        ("routes/to-desk/delivery_guarantee", BEST_EFFORT, "to-desk -> desk.inbox, best effort"),
    ],
)
def test_a_setting_survives_the_compiled_form(path: str, value: object, words: str) -> None:
    plain, contract = small(), small({path: value})
    assert load_compiled(contract.canonical) == contract
    # Devices of 0.3.0 go on reading a contract that does not need the newer format.
    assert (written_format(plain), written_format(contract)) == (8, 9 if path.endswith("receipts") else 8)
    assert words in summary(contract)
    assert not words or words not in summary(plain)


def test_addresses_are_a_scope_or_sorted_groups() -> None:
    def may_address(value: object) -> object:
        return small({f"{DESK}/may_address": value}).participants["desk"].may_address

    assert may_address(["north", "all.of-them", "north"]) == ("all.of-them", "north")
    assert may_address("everyone") is AddressScope.EVERYONE


def test_the_uplink_forwards_what_is_wanted_or_everything() -> None:
    assert small({f"{DEVICE}/outbox/forward": "wanted"}).device.outbox.forward is Forward.WANTED
    assert small().device.outbox.forward is not Forward.WANTED


def test_an_empty_webhook_has_defaults() -> None:
    channel = small({f"{DESK}/inbox/webhook": {}}).channel("desk.inbox")
    assert channel.webhook == Webhook(WebhookMode.STRUCTURED, 10, None)
    assert channel.give_up_after_s == 86_400


@pytest.mark.parametrize("urgent", [True, False])
def test_a_setting_says_when_to_give_up(urgent: bool) -> None:
    priority = Priority.URGENT if urgent else Priority.NORMAL

    def given_up(**inbox: object) -> int:
        return schedule_of(small({f"{DESK}/inbox": inbox}).channel("desk.inbox"), priority).give_up_after_s

    assert given_up() == (86_400 if urgent else 43_200)
    assert given_up(ordering="source") == given_up(transport="sqs_fifo", ordering="source") == 900
    assert given_up(retention_s=3_600) == given_up(webhook={}, retention_s=3_600) == 1_800
    assert given_up(give_up_after_s=7_200, ordering="source") == 7_200
    # The place before format 9.
    former, now = (
        {f"{DESK}/inbox": each} for each in ({"webhook": {"give_up_after_s": 700}}, {"webhook": {}})
    )
    assert small({**now, f"{DESK}/inbox/give_up_after_s": 700}).version == small(former).version


@pytest.mark.parametrize(
    ("inbox", "type", "expected", "undeclared"),
    [
        (None, None, "command", "command"),
        ("state", None, "state", "state"),
        (None, "state", "state", "command"),
        ("state", "command", "command", "state"),
    ],
)
def test_downlink_kind_by_type(inbox: str | None, type: str | None, expected: str, undeclared: str) -> None:
    changes = {f"{DEVICE}/inbox/downlink": inbox, f"event_types/{RING}/downlink": type}
    contract = small({path: each for path, each in changes.items() if each})
    assert contract.downlink(RING) is Downlink(expected)
    assert contract.downlink("org.example.undeclared.v1") is Downlink(undeclared)


@pytest.mark.parametrize(
    ("path", "value"),
    [("desk/inbox/batching_delay_ms", 250), ("device/inbox/delivery_guarantee", BEST_EFFORT)],
)
def test_an_archived_contract_is_read_by_the_rules_of_its_time(path: str, value: object) -> None:
    written = json.loads(small().canonical)
    participant, box, setting = path.split("/")
    written["participants"][participant][box][setting] = value
    channel = load_compiled(json.dumps(written)).channel(f"{participant}.{box}")
    assert getattr(channel, setting) == value


def test_dead_letters_routed_to_a_webhook_are_warned_of() -> None:
    letters = {"routes/letters": {"filter": {"exact": {"type": DEAD_LETTER_TYPE}}, "to": "desk.inbox"}}

    def warned(**inbox: object) -> list[str]:
        found = check(small({**letters, f"{DESK}/inbox": inbox, "routes/to-desk": letters["routes/letters"]}))
        return [each.path for each in found if "webhook" in each.message]

    assert "routes.letters" in warned(webhook={})
    assert warned() == []


@pytest.mark.source("P13")
def test_an_unknown_protocol_has_its_name() -> None:
    contract = small({f"{DESK}/inbox": {"transport": "pigeon", "retention_s": 3_600}})
    inbox, outbox = contract.channel("desk.inbox"), contract.channel("desk.outbox")
    assert (inbox.transport, inbox.is_added_protocol) == ("pigeon", True)
    assert (outbox.transport, outbox.is_added_protocol) == ("sqs", False)
    assert settings_text(inbox) == "pigeon, at least once, priority normal"
    described = endpoint(contract.participants["desk"], inbox, carries=[], messagegroup="g")
    assert (described["protocol"], described["protocoloptions"]) == ("PIGEON", {"deployed": False})


@pytest.mark.source("P13")
def test_a_protocol_needs_its_package_to_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    changes = {f"{DESK}/inbox/transport": "pigeon", "event_types": {}}
    file.write_text(yaml.safe_dump(document(changes)))
    with pytest.raises(ContractError) as refused:
        load_contract(file)
    assert [each.path for each in refused.value.problems] == ["participants.desk.inbox.transport"]
    install(monkeypatch, tmp_path, "pigeon_compiled", {SENDERS: {"pigeon": "pigeon_compiled:Sender"}}, "")
    assert load_contract(file).channel("desk.inbox").transport == "pigeon"


@pytest.mark.source("P13")
@pytest.mark.parametrize(
    ("transport", "url", "fits"),
    [
        ("pigeon", "pigeon://loft/desk", True),
        ("pigeon", "https://queue", False),
        ("sqs", "pigeon://loft/desk", False),
        ("sqs", "https://queue", True),
        ("sqs_fifo", "https://queue", False),
        ("sqs_fifo", "https://queue.fifo", True),
    ],
)
def test_a_protocol_has_to_be_deployed(transport: str, url: str, fits: bool) -> None:
    contract = small({f"{DESK}/inbox/transport": transport})
    urls = {"desk.inbox": url} | dict.fromkeys(("downlink.inbox", "device.inbox"), "https://queue")
    publisher = ContractPublisher(Baseline("base", urls, "table"), None, system.now)
    if fits:
        publisher.check(contract)
    else:
        with pytest.raises(DestinationsNotDeployedError):
            publisher.check(contract)


def test_a_retired_participant_keeps_its_queues_without_routes() -> None:
    gone = {"routes/to-desk": {"filter": {"exact": {"type": RING}}, "to": "downlink.inbox"}}
    before, after = small(gone), small({**gone, f"{DESK}/retired": True})
    assert "participants.desk.inbox" in {each.path for each in check(before)}
    assert "participants.desk.inbox" not in {each.path for each in check(after)}
    assert after.participants["desk"].retired
    assert "(retired) listens" in summary(after)
    assert "+ participants.desk.retired: true" in diff_text(before, after)
    assert load_compiled(after.canonical) == after
    assert b"retired" not in before.canonical
    # Without a downlink no replies go down either.
    asking = small({"participants/bell/asks": ["a"], "participants/downlink/retired": True})
    assert {each.name for each in asking.routes} == {"up", "to-desk", "replies-to-bell"}


def test_who_asks_has_routes_for_replies() -> None:
    contract = worlds.plane()
    on_device = contract.channel("button.replies")
    assert (on_device.receipts, on_device.expiry_s, on_device.box) == (True, 600, "replies")
    assert contract.channel("desk.replies").retention_s == 600
    with pytest.raises(KeyError):
        contract.channel("lamp.replies")
    asks = [contract.participants["button"].may_ask(each) for each in (worlds.ASK, "org.example.tell.v1")]
    assert asks == [True, False]
    routes = {each.name: (each.destination, each.place) for each in contract.routes}
    assert {name: each for name, each in routes.items() if name.startswith("replies")} == {
        "replies-to-button": ("button.replies", Place.DEVICE),
        "replies-to-button-down": ("device.inbox", Place.CLOUD),
        "replies-to-desk": ("desk.replies", Place.CLOUD),
        "replies-to-desk-up": ("device.outbox", Place.DEVICE),
    }
    reply = write_reply(request(), Reply(Replier("lamp"), Status.HANDLED), NOW)
    taken = [[each.destination for each in Router(contract, place).route(reply)] for place in Place]
    assert taken == [["button.replies"], ["device.inbox"]]
    mine = new_subscription("porter", "x", {"exact": {"subject": "x"}}, NOW)
    subscribed, refused = with_subscriptions(contract, [mine])
    assert not refused
    assert {*load_compiled(contract.canonical).routes} < {*subscribed.routes}


def test_without_a_downlink_no_reply_goes_down() -> None:
    some = worlds.document()
    del some["participants"]["downlink"], some["routes"]["to-downlink"]
    contract = compile_contract(some, "talk")
    assert "replies-to-button-down" not in {each.name for each in contract.routes}
    assert contract.device.inbox not in cloud_inboxes(contract)


def test_checks_ignore_the_compilers_routes() -> None:
    assert not [each for each in check(worlds.plane()) if "replies" in each.path]
    other = with_changes(worlds.plane(), {"event_types": {"org.example.other.v1": {"description": "d"}}})
    assert "participants.button.asks" in {each.path for each in check(other)}


def test_rights_that_are_undeclared_or_unused_are_warned_of() -> None:
    tell: dict[str, Any] = {"event_types/tell/downlink": "state", f"{DESK}/sends": ["tell"]}
    tell["participants/subscribers/sends"] = []
    tell["routes/down"] = {"filter": {"exact": {"type": "tell"}}, "to": "device.inbox"}

    def warned(**desk: object) -> set[str]:
        found = check(small({**tell, **{f"{DESK}/{name}": each for name, each in desk.items()}}))
        return {each.path.rpartition(".")[2] for each in found if each.path.startswith("participants.desk")}

    assert "may_subscribe" in warned()
    assert "may_subscribe" not in warned(may_subscribe={"exact": {"type": "ring"}})
    assert "may_address" in warned(may_address="everyone", sends=["ring"])
    assert "may_address" not in warned(may_address="everyone")
    assert "sends" in warned(sends=None, outbox={"max_receives": 9})
    assert "sends" not in warned()


USUAL = read_channel("bell", ParticipantKind.DEVICE_SERVICE, Section("outbox", {}, []))
# How long a queue keeps what, and how often it is read, is no promise to senders or receivers; a share of
# receipts needs receipts.
NOT_NAMED = {"retention_s", "max_receives", "receipts_percent"}
UNUSUAL: list[tuple[str, Any]] = [
    (name, value)
    for name, each in SETTINGS.items()
    if name not in NOT_NAMED
    for value in (each.options if isinstance(each, Word) else [each.high])
    if value != each.default
]


@pytest.mark.parametrize("given", [None, True, False])
@pytest.mark.parametrize("priority", Priority)
@pytest.mark.parametrize("box", ["inbox", "outbox"])
@pytest.mark.parametrize("kind", ParticipantKind)
def test_urgent_has_receipt(kind: ParticipantKind, box: str, priority: Priority, given: bool | None) -> None:
    settings = {"priority": priority} | ({} if given is None else {"receipts": given})
    channel = read_channel("bell", kind, Section(box, settings, []))
    default = (kind, box, priority) == (ParticipantKind.DEVICE_SERVICE, "outbox", Priority.URGENT)
    assert channel.receipts is (default if given is None else given)


@pytest.mark.parametrize(("setting", "value"), [*UNUSUAL, ("receipts", True)])
def test_every_unusual_setting_is_named(setting: str, value: Any) -> None:
    channel = replace(USUAL, **{setting: value})
    assert special_text(USUAL) == ""
    assert special_text(channel)
    assert settings_text(channel) != settings_text(USUAL)


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "1 d"), (7_200, "2 h"), (90, "90 s"), (300, "5 min"), (90_000, "25 h")]
)
def test_durations_are_exact(seconds: int, text: str) -> None:
    assert duration(seconds) == text
