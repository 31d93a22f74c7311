"""The contract: compiled once, the same everywhere, and every fault named with its place and remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import CONTRACT_FILE, load_contract
from contract.summary import summary
from eventplane.contract import (
    Contract,
    ContractError,
    DeliveryGuarantee,
    Place,
    Priority,
    SchemaCheck,
    Transport,
    WhenFull,
    compile_contract,
    contract_document,
    load_compiled,
)
from eventplane.dead_letter import Refusal, dead_letter
from eventplane.envelope import write_event
from eventplane.router import Router
from tests.plane import shipped_contract

RING = "org.example.ring.v1"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return shipped_contract()


def small() -> dict[str, Any]:
    return {
        "format": 2,
        "name": "small",
        "participants": {
            "device": {"kind": "device", "description": "a device"},
            "bell": {"kind": "device_service", "description": "rings"},
            "desk": {"kind": "cloud_service", "description": "listens"},
        },
        "event_types": {RING: {"description": "it rang", "priority": "urgent"}},
        "routes": {
            "up": {"filter": {"prefix": {"type": "org."}}, "to": "device.outbox"},
            "to-desk": {"filter": {"prefix": {"type": "org."}}, "to": "desk.inbox"},
        },
    }


def test_the_compiled_form_gives_the_same_contract(contract: Contract) -> None:
    again = load_compiled(contract.canonical)
    assert again == contract
    assert again.version == contract.version


def test_the_version_follows_the_content_not_the_writing() -> None:
    document = small()
    reordered = {key: document[key] for key in reversed(document)}
    reordered["participants"]["desk"]["inbox"] = {"max_receives": 5}
    changed = small()
    changed["participants"]["desk"]["inbox"] = {"max_receives": 6}
    version = compile_contract(small(), "a").version
    assert compile_contract(reordered, "b").version == version
    assert compile_contract(changed, "c").version != version


@pytest.mark.source("P3")
def test_defaults_are_the_safe_ones() -> None:
    channel = compile_contract(small(), "small").channel("desk.inbox")
    assert channel.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert channel.transport is Transport.SQS
    assert channel.priority is Priority.NORMAL
    assert (channel.max_receives, channel.retention_s) == (5, 14 * 86_400)


def test_what_routers_read_is_not_given_up_for_a_function_that_dies() -> None:
    document = small()
    document["participants"]["desk"]["outbox"] = {}
    contract = compile_contract(document, "small")
    assert contract.device.outbox.max_receives == contract.channel("desk.outbox").max_receives == 50


@pytest.mark.source("P1")
def test_a_route_is_decided_where_its_destination_is_written() -> None:
    contract = compile_contract(small(), "small")
    assert [route.name for route in contract.routes_at(Place.DEVICE)] == ["up"]
    assert [route.name for route in contract.routes_at(Place.CLOUD)] == ["to-desk"]


def test_priority_is_the_types_and_otherwise_the_channels() -> None:
    contract = compile_contract(small(), "small")
    outbox = contract.channel("bell.outbox")
    ring = write_event({"id": "1", "source": "/a", "type": "org.example.ring.v1"})
    other = write_event({"id": "1", "source": "/a", "type": "org.example.other.v1"})
    assert contract.priority(ring, outbox) is Priority.URGENT
    assert contract.priority(other, outbox) is Priority.NORMAL


@pytest.mark.parametrize("place", list(Place))
def test_dead_letters_of_the_plane_are_routed_everywhere(contract: Contract, place: Place) -> None:
    letter = dead_letter(
        id="1",
        source="/devices/d/router",
        time="2026-01-01T00:00:00Z",
        refusal=Refusal("not_json", "x"),
        channel="voice-service.outbox",
        original=b"\xff",
        contract_version=contract.version,
    )
    assert Router(contract, place).route(letter)


@pytest.mark.source("P10")
def test_the_alarm_reaches_the_call_service_and_the_alarm_centre(contract: Contract) -> None:
    """Fig. 3 of the router paper."""
    alarm = write_event({"id": "1", "source": "/homes/1/voice", "type": "org.eventplane.alarm.keyword.v1"})
    on_device = [route.destination for route in Router(contract, Place.DEVICE).route(alarm)]
    in_cloud = [route.destination for route in Router(contract, Place.CLOUD).route(alarm)]
    assert {"call-service.inbox", "device.outbox"} <= {*on_device}
    assert {"alarm-centre.inbox", "family-app.inbox"} <= {*in_cloud}


@pytest.mark.source("P-W3")
def test_unrouted_events_have_no_route(contract: Contract) -> None:
    stranger = write_event({"id": "1", "source": "/a", "type": "com.example.unknown"})
    assert Router(contract, Place.CLOUD).route(stranger) == ()


def test_the_summary_names_every_participant_and_route(contract: Contract) -> None:
    text = summary(contract)
    assert all(name in text for name in contract.participants)
    assert all(route.name in text for route in contract.routes)


Change = Callable[[dict[str, Any]], None]


def put(path: str, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        for name in parents:
            document = document.setdefault(name, {})
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (put("format", 0), "format"),
        (put("format", "1"), "format"),
        (put("format", True), "format"),
        (put("name", ""), "name"),
        (put("surprise", 1), "surprise"),
        (put("participants/Desk", {"kind": "cloud_service", "description": "x"}), "participants.Desk"),
        (put("participants/desk/kind", "robot"), "participants.desk.kind"),
        (put("participants/desk/kind", None), "participants.desk.kind"),
        (put("participants/desk/description", 7), "participants.desk.description"),
        (put("participants/desk/inbox", []), "participants.desk.inbox"),
        (put("participants/desk/inbox/colour", "red"), "participants.desk.inbox.colour"),
        (
            put("participants/desk/inbox/delivery_guarantee", "exactly_once"),
            "participants.desk.inbox.delivery_guarantee",
        ),
        (put("participants/desk/outbox/ordering", "source"), "participants.desk.outbox.ordering"),
        (put("participants/desk/inbox/transport", "mqtt"), "participants.desk.inbox.transport"),
        (put("participants/bell/outbox/transport", "sqs_fifo"), "participants.bell.outbox.transport"),
        (put("participants/desk/inbox/max_receives", 4), "participants.desk.inbox.max_receives"),
        (put("participants/desk/inbox/retention_s", 59), "participants.desk.inbox.retention_s"),
        (put("participants/desk/inbox/expiry_s", 0), "participants.desk.inbox.expiry_s"),
        (put("participants/desk/inbox/batching_delay_ms", True), "participants.desk.inbox.batching_delay_ms"),
        (put("participants/desk/inbox/receipts", "yes"), "participants.desk.inbox.receipts"),
        (put("participants/device/outbox/transport", "sqs_fifo"), "participants.device.outbox.transport"),
        (put("participants/device/outbox/ordering", "source"), "participants.device.outbox.ordering"),
        (put("participants/second", {"kind": "device", "description": "x"}), "participants"),
        (put("event_types/org.example.ring.v1/priority", "asap"), "event_types.org.example.ring.v1.priority"),
        (put(f"event_types/{RING}/schema", {"$id": "https://a.example/1"}), f"event_types.{RING}.schema"),
        (put(f"event_types/{RING}/schemas", {"$id": "https://a.example/1"}), f"event_types.{RING}.schemas"),
        (put(f"event_types/{RING}/schemas", ["file.json"]), f"event_types.{RING}.schemas[0]"),
        (put(f"event_types/{RING}/schemas", [{"$id": 1}]), f"event_types.{RING}.schemas[0]"),
        (put(f"event_types/{RING}/schemas", [{"$id": "ring.json"}]), f"event_types.{RING}.schemas[0]"),
        (
            put(f"event_types/{RING}/schemas", [{"$id": "a:1#b"}]),
            f"event_types.{RING}.schemas[0]",
        ),
        (put(f"event_types/{RING}/schemas", [{"$id": "a:1"}, {}]), f"event_types.{RING}.schemas[1]"),
        (put(f"event_types/{RING}/schemas", [{"$id": "a:1"}] * 2), f"event_types.{RING}.schemas[1]"),
        (put(f"event_types/{RING}/schema_check", "known"), f"event_types.{RING}.schema_check"),
        (put(f"event_types/{RING}/schema_check", "always"), f"event_types.{RING}.schema_check"),
        (put("participants/desk/sends", RING), "participants.desk.sends"),
        (put("participants/desk/sends", [7]), "participants.desk.sends[0]"),
        (put("participants/desk/sends", [RING, "org.*.ring"]), "participants.desk.sends[1]"),
        (put("participants/desk/sends", ["*"]), "participants.desk.sends[0]"),
        (put("participants/bell/outbox/when_full", "explode"), "participants.bell.outbox.when_full"),
        (put("participants/bell/inbox/when_full", "drop_oldest"), "participants.bell.inbox.when_full"),
        (put("participants/desk/outbox/when_full", "drop_oldest"), "participants.desk.outbox.when_full"),
        (put(f"event_types/{RING}/delivery_guarantee", "sure"), f"event_types.{RING}.delivery_guarantee"),
        (
            put("routes/to-desk/delivery_guarantee", "exactly_once"),
            "routes.to-desk.delivery_guarantee",
        ),
        (put("routes/to-desk/to", "nobody.inbox"), "routes.to-desk.to"),
        (put("routes/to-desk/to", "desk.outbox"), "routes.to-desk.to"),
        (put("routes/to-desk/to", "bell.cupboard"), "routes.to-desk.to"),
        (put("routes/to-desk/filter", {"exakt": {"type": "a"}}), "routes.to-desk.filter.exakt"),
        (put("routes", {}), "routes"),
    ],
)
def test_a_fault_is_named_with_its_place_and_remedy(change: Change, path: str) -> None:
    document = small()
    change(document)
    with pytest.raises(ContractError) as caught:
        compile_contract(document, "some.yaml")
    assert [problem.path for problem in caught.value.problems] == [path]
    assert caught.value.problems[0].remedy
    assert "some.yaml" in str(caught.value)


@pytest.mark.source("P3")
@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (
            put("participants/desk/inbox/delivery_guarantee", "exactly_once"),
            "drops repeated `source` and `id`",
        ),
        (put("participants/device/outbox/transport", "sqs_fifo"), "`ordering: source`"),
        (put("participants/desk/outbox/ordering", "source"), "sqs_fifo"),
    ],
)
def test_what_no_transport_can_give_is_answered_with_what_it_can(change: Change, remedy: str) -> None:
    document = small()
    change(document)
    with pytest.raises(ContractError) as caught:
        compile_contract(document, "some.yaml")
    assert remedy in caught.value.problems[0].remedy


def test_two_types_may_share_a_schema_but_not_its_name() -> None:
    document = small()
    schema = {"$id": "https://a.example/1", "type": "object"}
    put(f"event_types/{RING}/schemas", [schema])(document)
    put("event_types/other", {"description": "x", "schemas": [dict(schema)]})(document)
    compile_contract(document, "shared")
    put("event_types/other/schemas", [schema | {"type": "array"}])(document)
    with pytest.raises(ContractError, match="another schema has the `\\$id`") as caught:
        compile_contract(document, "two of a name")
    assert [each.path for each in caught.value.problems] == ["event_types.other.schemas[0]"]


@pytest.mark.source("P11")
def test_versions_keep_their_order_and_the_first_is_the_one_of_old_events() -> None:
    document = small()
    put(f"event_types/{RING}/schemas", [{"$id": "a:2"}, {"$id": "a:1"}])(document)
    put(f"event_types/{RING}/schema_check", "known")(document)
    contract = compile_contract(document, "versions")
    again = load_compiled(contract.canonical)
    assert again.version == contract.version
    for each in (contract, again):
        assert list(each.event_types[RING].schemas) == ["a:2", "a:1"]
        assert each.event_types[RING].schema_check is SchemaCheck.KNOWN
    document["event_types"][RING]["schemas"].reverse()
    assert compile_contract(document, "versions").version != contract.version


def test_what_is_sent_is_a_type_or_a_family() -> None:
    document = small()
    put("participants/bell/sends", ["org.example.door.*", RING, RING])(document)
    contract = compile_contract(document, "sends")
    bell, desk = contract.participants["bell"], contract.participants["desk"]
    assert (bell.sends, desk.sends) == (("org.example.door.*", RING), None)
    assert [bell.may_send(each) for each in (RING, "org.example.door.v1", "org.example.doors.v1")] == [
        True,
        True,
        False,
    ]
    assert not desk.may_send(RING)
    assert load_compiled(contract.canonical) == contract


def test_a_full_store_refuses_unless_the_channel_says_otherwise() -> None:
    document = small()
    assert compile_contract(document, "small").channel("bell.outbox").when_full is WhenFull.REFUSE
    put("participants/bell/outbox/when_full", "drop_oldest")(document)
    assert compile_contract(document, "small").channel("bell.outbox").when_full is WhenFull.DROP_OLDEST


def test_all_faults_are_reported_at_once() -> None:
    document = small()
    put("name", "")(document)
    put("participants/desk/kind", "robot")(document)
    put("routes/up/to", "nowhere.inbox")(document)
    with pytest.raises(ContractError) as caught:
        compile_contract(document, "some.yaml")
    assert {problem.path for problem in caught.value.problems} == {
        "name",
        "participants.desk.kind",
        "routes.up.to",
    }


def test_a_damaged_compiled_contract_is_refused(contract: Contract) -> None:
    with pytest.raises(ContractError, match="compile the contract again"):
        load_compiled(contract.canonical[:-1])


def test_nesting_without_end_is_damage_as_well() -> None:
    with pytest.raises(ContractError, match="compile the contract again"):
        load_compiled("[" * 100_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "not YAML"),
        ("a: 1\nb: 2\na: 2", "a: the name is there twice, in line 1 and line 3"),
        ("routes:\n  - {x: {to: a, to: b}}", r"routes\[0\].x.to: the name is there twice"),
        ("[1, 2]", "not a mapping"),
        ("event_types: {t: {description: x, schema: missing.json}}", "missing.json"),
        ("event_types: {t: {description: x, schema: broken.json}}", "broken.json"),
        ("event_types: {t: {description: x, schema: wrong.json}}", "wrong.json"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "broken.json").write_text("{")
    (tmp_path / "schemas" / "wrong.json").write_text('{"type": "no such type"}')
    file = tmp_path / "plane.yaml"
    file.write_text(content)
    with pytest.raises(ContractError, match=message) as caught:
        load_contract(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="cannot be read"):
        load_contract(tmp_path / "none.yaml")


def test_faults_of_the_files_and_of_the_contract_come_together(tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text(
        "format: 1\nname: x\nname: y\nevent_types:\n  t: {description: x, schema: none.json}\n"
        "participants:\n  home: &home {kind: device, description: x}\n  same: *home\n"
        "routes: {up: {filter: {sql: 'type = '}, to: home.outbox}}\n"
    )
    with pytest.raises(ContractError) as caught:
        load_contract(file)
    assert [each.path for each in caught.value.problems] == [
        "name",
        "event_types.t.schema",
        "routes.up.filter.sql",
        "participants",
    ]


@pytest.mark.source("P11")
def test_every_event_type_of_the_plane_has_a_schema(contract: Contract) -> None:
    assert [each.name for each in contract.event_types.values() if not each.schemas] == []


def test_the_file_is_in_the_lowest_format_that_says_it_all(contract: Contract) -> None:
    assert yaml.safe_load(CONTRACT_FILE.read_text())["format"] == contract_document(contract)["format"]
