"""The contract: its compiled form, and every fault named with its place and remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract import CONTRACT_FILE, load_contract
from contract.acl import FORWARDER
from eventplane.attributes import AttributeValue
from eventplane.contract import (
    Contract,
    ContractError,
    DeliveryGuarantee,
    Place,
    Priority,
    SchemaCheck,
    Transport,
    WhenFull,
    check_compiled,
    compile_contract,
    contract_document,
    load_compiled,
)
from eventplane.contract.rules import MAX_PARTICIPANT_NAME, RESERVED_NAMES
from eventplane.dead_letter import DEAD_LETTER_TYPE
from eventplane.device_reports import MANIFEST
from eventplane.envelope import write_event
from eventplane.names import NOTICE
from eventplane.router import Router
from tests.plane import shipped_contract
from tests.small_contract import put
from tests.unit.contract.small import RING, document, problems, small


@pytest.fixture(scope="module")
def contract() -> Contract:
    return shipped_contract()


def test_the_compiled_form_gives_the_same_contract(contract: Contract) -> None:
    again = load_compiled(contract.canonical)
    assert again == contract == compile_contract(contract_document(contract), "again")
    assert again.version == contract.version


def test_the_version_depends_on_the_content_not_the_layout() -> None:
    written = document({"participants/desk/inbox": {"max_receives": 5}})
    reordered = {key: written[key] for key in reversed(written)}
    assert compile_contract(reordered, "b").version == small().version
    assert small({"participants/desk/inbox": {"max_receives": 6}}).version != small().version


@pytest.mark.source("P3")
def test_defaults_are_the_safe_ones() -> None:
    contract = small({"participants/desk/outbox": {}})
    channel = contract.channel("desk.inbox")
    assert channel.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert (channel.transport, channel.priority) == (Transport.SQS, Priority.NORMAL)
    assert (channel.max_receives, channel.retention_s, channel.give_up_after_s) == (5, 7 * 86_400, None)
    assert channel.webhook is None
    assert contract.channel("bell.outbox").when_full is WhenFull.REFUSE
    # What routers read is not given up for a function that dies.
    for outbox in (contract.device.outbox, contract.channel("desk.outbox")):
        assert (outbox.max_receives, outbox.retention_s) == (50, 14 * 86_400)


@pytest.mark.source("P1")
def test_a_route_is_decided_where_its_destination_is_written() -> None:
    assert [route.name for route in small().routes_at(Place.DEVICE)] == ["up"]
    assert [route.name for route in small().routes_at(Place.CLOUD)] == ["to-desk"]


PRIORITIES = {
    "participants/bell/outbox": {"priority": "low"},
    f"event_types/{RING}/priority": "normal",
    "event_types/org.open/description": "Its priority is its events'.",
}


@pytest.mark.parametrize(
    ("type", "attributes", "expected"),
    [
        # The contract decides, otherwise the severity, otherwise the channel.
        *((RING, {"severitynumber": each}, Priority.NORMAL) for each in (1, 24)),
        *(
            (type, {"severitynumber": severity}, expected)
            for type in ("org.open", "org.undeclared")
            for expected, those in (
                (Priority.LOW, (1, 8)),
                (Priority.NORMAL, (9, 16)),
                (Priority.URGENT, (17, 24)),
            )
            for severity in those
        ),
        ("org.open", {"severitytext": "FATAL"}, Priority.LOW),
        ("org.undeclared", {}, Priority.LOW),
    ],
)
def test_priority_by_type_first(type: str, attributes: dict[str, AttributeValue], expected: Priority) -> None:
    contract = small(PRIORITIES)
    event = write_event({"id": "1", "source": "/a", "type": type, **attributes})
    assert contract.priority(event, contract.channel("bell.outbox")) is expected


@pytest.mark.source("P10")
def test_the_alarm_reaches_the_call_service_and_the_alarm_centre(contract: Contract) -> None:
    """Fig. 3 of the router paper."""
    alarm = write_event({"id": "1", "source": "/homes/1/voice", "type": "org.eventplane.alarm.keyword.v1"})
    on_device = [route.destination for route in Router(contract, Place.DEVICE).route(alarm)]
    in_cloud = [route.destination for route in Router(contract, Place.CLOUD).route(alarm)]
    assert {"call-service.inbox", "device.outbox"} <= {*on_device}
    assert {"alarm-centre.inbox", "family-app.inbox"} <= {*in_cloud}


SCHEMAS = f"event_types/{RING}/schemas"
SERVICE = {"kind": "cloud_service", "description": "x"}
ON_DEVICE = {"kind": "device_service", "description": "x"}
LONGEST = "n" * MAX_PARTICIPANT_NAME
REFUSED_NAMES = {"device-urgent", "urgentingest", f"{LONGEST}n", "eventplane"}
BEST_EFFORT = "best_effort"
ASKS = {"participants/bell/asks": ["a"]}


def route(to: str) -> dict[str, Any]:
    return {"filter": {"exact": {"a": "b"}}, "to": to}


# Each is named at its own path.
VALUES: list[tuple[str, object, str]] = [
    *(("format", each, "") for each in (0, "1", True)),
    ("name", "", ""),
    ("surprise", 1, ""),
    ("routes", {}, ""),
    ("participants/Desk", SERVICE, ""),
    ("participants/eventplane", ON_DEVICE, "the plane itself"),
    (f"participants/{FORWARDER}", ON_DEVICE, ""),
    # Names that AWS would refuse, or that would be one resource of two.
    *((f"participants/{name}", SERVICE, "") for name in sorted(RESERVED_NAMES - {"device"} | REFUSED_NAMES)),
    *(("participants/desk/kind", each, "") for each in ("robot", None)),
    ("participants/desk/description", 7, ""),
    ("participants/bell/retired", True, ""),
    # Channels.
    ("participants/desk/inbox", [], ""),
    ("participants/desk/inbox/colour", "red", ""),
    ("participants/desk/inbox/delivery_guarantee", "exactly_once", "drops repeated `source` and `id`"),
    ("participants/desk/outbox/ordering", "source", "sqs_fifo"),
    ("participants/desk/inbox/transport", "mqtt", ""),
    ("participants/desk/inbox/transport", "Carrier Pigeon", ""),
    ("participants/bell/outbox/transport", "sqs_fifo", ""),
    ("participants/device/outbox/transport", "sqs_fifo", "`ordering: source`"),
    *((f"participants/{box}/transport", "pigeon", "") for box in ("device/outbox", "bell/inbox")),
    ("participants/subscribers/inbox/transport", "pigeon", ""),
    ("participants/device/outbox/ordering", "source", ""),
    ("participants/desk/inbox/max_receives", 4, ""),
    ("participants/desk/inbox/retention_s", 59, ""),
    ("participants/desk/inbox/expiry_s", 0, ""),
    ("participants/bell/outbox/batching_delay_ms", True, ""),
    ("participants/desk/inbox/batching_delay_ms", 1, "only events that leave a device"),
    ("participants/desk/inbox/receipts", "yes", ""),
    ("participants/bell/outbox/when_full", "explode", ""),
    *((f"participants/{box}/when_full", "drop_oldest", "") for box in ("bell/inbox", "desk/outbox")),
    ("participants/bell/outbox/forward", "wanted", ""),
    *(
        (f"participants/{box}/downlink", "state", "set it on the inbox of the device, or on an event type")
        for box in ("bell/inbox", "desk/inbox", "device/outbox")
    ),
    *(
        (f"participants/{box}/events_per_message", value, message)
        for box, value, message in (
            ("desk/inbox", 0, "0 is out of range"),
            ("desk/inbox", 1_001, "1001 is out of range"),
            ("desk/outbox", 2, "only a cloud service's inbox"),
            ("bell/inbox", 2, "only a cloud service's inbox"),
            ("downlink/inbox", 2, "a function of the plane reads"),
        )
    ),
    # Webhooks.
    ("participants/desk/inbox/webhook", "https://desk.example", "not a mapping"),
    *(
        (f"participants/desk/inbox/webhook/{setting}", value, message)
        for setting, value, message in (
            ("mode", "carrier-pigeon", "'carrier-pigeon' is not known"),
            ("timeout_s", 31, "31 is out of range; give seconds from 1 to 30"),
            ("give_up_after_s", 90_000, "90000 is out of range"),
            ("requests_per_minute", 0, "0 is out of range"),
            ("retries", 3, "this setting is unknown; remove it or use one of: give_up_after_s"),
            ("url", "https://desk.example", "it differs between environments"),
            ("secret", "s", "the stacks make one"),
        )
    ),
    *(
        (f"participants/{box}/webhook", {}, "only the inbox of a cloud_service can lead to an HTTPS endpoint")
        for box in ("desk/outbox", "bell/inbox")
    ),
    # Rights.
    ("participants/desk/sends", RING, ""),
    ("participants/bell/asks", "x", ""),
    ("participants/device/asks", ["a"], ""),
    ("participants/bell/replies", {}, ""),
    *(("participants/desk/may_address", each, "") for each in ("all", [])),
    ("participants/desk/may_subscribe", [], ""),
    ("participants/bell/may_subscribe", {"sql": "TRUE"}, ""),
    ("participants/bell/may_address", "one", ""),
    # Event types.
    (f"event_types/{RING}/priority", "asap", ""),
    (f"event_types/{RING}/schema", {"$id": "https://a.example/1"}, ""),
    (SCHEMAS, {"$id": "https://a.example/1"}, ""),
    *((f"event_types/{RING}/schema_check", each, "") for each in ("known", "always")),
    *(
        (path, "wish", "choose one of: state, command")
        for path in ("participants/device/inbox/downlink", f"event_types/{RING}/downlink")
    ),
    (f"event_types/{RING}/delivery_guarantee", "sure", ""),
    *(
        (f"{path}/delivery_guarantee", BEST_EFFORT, "own reports")
        for path in (
            "participants/downlink/outbox",
            *(f"event_types/{each}" for each in (MANIFEST, NOTICE, DEAD_LETTER_TYPE)),
        )
    ),
    ("participants/device/inbox/delivery_guarantee", BEST_EFFORT, "goes down to devices"),
    # Routes.
    *(("routes/to-desk/to", each, "") for each in ("nobody.inbox", "desk.outbox", "bell.cupboard")),
    ("routes/to-desk/delivery_guarantee", "exactly_once", ""),
    ("routes/up/interest", "everything", ""),
]

# Each is named somewhere below, or follows from several changes.
CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"participants/second": {"kind": "device", "description": "x"}}, "participants", ""),
    (
        {
            "participants/device": SERVICE,
            "participants/home": {**SERVICE, "kind": "device"},
            "routes/up/to": "home.outbox",
        },
        "participants.device",
        "",
    ),
    ({"participants/a-1": SERVICE, "participants/a1": SERVICE}, "participants.a1", ""),
    (
        {"participants/desk/asks": ["org.example.*"], "participants/desk-replies": SERVICE},
        "participants.desk-replies",
        "",
    ),
    (
        {"participants/desk/inbox/webhook": {}, "participants/desk-webhook": SERVICE},
        "participants.desk-webhook",
        "",
    ),
    ({"participants/desk/sends": [7]}, "participants.desk.sends[0]", ""),
    ({"participants/desk/sends": [RING, "org.*.ring"]}, "participants.desk.sends[1]", ""),
    ({"participants/desk/sends": ["*"]}, "participants.desk.sends[0]", ""),
    ({"participants/bell/asks": ["a*b"]}, "participants.bell.asks[0]", ""),
    ({"participants/desk/may_address": ["a b"]}, "participants.desk.may_address[0]", ""),
    ({"participants/desk/may_address": [1]}, "participants.desk.may_address[0]", ""),
    ({"participants/desk/may_subscribe": {"sql": "("}}, "participants.desk.may_subscribe.sql", ""),
    ({"routes/to-desk/filter": {"exakt": {"type": "a"}}}, "routes.to-desk.filter.exakt", ""),
    *(({SCHEMAS: [each]}, f"event_types.{RING}.schemas[0]", "") for each in ("f.json", {"$id": 1})),
    *(({SCHEMAS: [{"$id": id}]}, f"event_types.{RING}.schemas[0]", "") for id in ("ring.json", "a:1#b")),
    *(
        ({SCHEMAS: [{"$id": "a:1"}, each]}, f"event_types.{RING}.schemas[1]", "")
        for each in ({}, {"$id": "a:1"})
    ),
    # The compiler writes the ways of replies.
    ({**ASKS, "routes/replies-to-bell": route("desk.inbox")}, "routes.replies-to-bell", ""),
    ({**ASKS, "routes/x": route("bell.replies")}, "routes.x.to", ""),
    ({"routes/x": route("bell.replies")}, "routes.x.to", ""),
    # Settings that do not go together.
    *(
        ({"participants/desk/inbox": settings}, f"participants.desk.inbox.{at}", message)
        for settings, at, message in (
            (
                {"events_per_message": 2, "transport": "sqs_fifo"},
                "events_per_message",
                "use `transport: sqs`",
            ),
            ({"events_per_message": 2, "transport": "nats"}, "events_per_message", "use `transport: sqs`"),
            ({"events_per_message": 2, "ordering": "source"}, "events_per_message", "use `ordering: none`"),
            ({"transport": "pigeon", "ordering": "source"}, "ordering", ""),
            ({"transport": "pigeon", "webhook": {}}, "transport", ""),
            *(
                ({**inbox, "retention_s": 3_600}, path, "the queue deletes an event after 3600 s")
                for inbox, path in (
                    ({"webhook": {"give_up_after_s": 3_600}}, "webhook.give_up_after_s"),
                    ({"webhook": {}, "give_up_after_s": 3_600}, "give_up_after_s"),
                    ({"give_up_after_s": 3_600}, "give_up_after_s"),
                )
            ),
            (
                {"webhook": {"give_up_after_s": 600}, "give_up_after_s": 600},
                "webhook.give_up_after_s",
                "the inbox has this setting too; remove it here",
            ),
        )
    ),
    (
        {"participants/bell/outbox": {"batching_delay_ms": 60_000, "expiry_s": 60}},
        "participants.bell.outbox.batching_delay_ms",
        "an event expires after 60 s, before it has waited 60000 ms",
    ),
    (
        {
            "participants/desk/inbox/delivery_guarantee": BEST_EFFORT,
            "routes/to-desk/delivery_guarantee": "at_least_once",
        },
        "routes.to-desk.delivery_guarantee",
        "desk.inbox is a best-effort channel",
    ),
    (
        {"routes/down": {**route("device.inbox"), "delivery_guarantee": BEST_EFFORT}},
        "routes.down.delivery_guarantee",
        "goes down to devices",
    ),
    (
        {f"event_types/{RING}/downlink": "state", f"event_types/{RING}/delivery_guarantee": BEST_EFFORT},
        f"event_types.{RING}.delivery_guarantee",
        "goes down to devices",
    ),
    ({"participants/desk/retired": True}, "routes.to-desk.to", ""),
    (
        {"participants/downlink/retired": True, "routes/down": route("device.inbox")},
        "routes.down.to",
        "'downlink', which brings events there, is retired",
    ),
]

FAULTS = [*(({path: value}, path.replace("/", "."), words) for path, value, words in VALUES), *CHANGES]


@pytest.mark.source("P3", "P4", "P13", "C1")
@pytest.mark.parametrize(("changes", "path", "message"), FAULTS)
def test_a_fault_is_named_with_its_place_and_remedy(changes: dict[str, Any], path: str, message: str) -> None:
    found = problems(changes)
    assert path in [each.path for each in found]
    assert {each.path.partition("[")[0] for each in found} == {path.partition("[")[0]}
    assert any(message in f"{each.message}; {each.remedy}" for each in found)


def test_a_name_is_allowed_where_no_resource_has_it() -> None:
    longest = {f"participants/{LONGEST}": SERVICE, f"participants/{LONGEST}n": ON_DEVICE}
    small({**longest, "participants/tap": ON_DEVICE})
    small({f"participants/{each}": SERVICE for each in ("desk-replies", "desk-webhook")})
    assert len(f"eventplane-{12 * 'e'}-router-{LONGEST}-urgent") == 64
    # What was compiled before a name was reserved stays readable.
    compiled = small({"participants/tapped": SERVICE}).canonical
    assert "tap" in load_compiled(compiled.replace(b'"tapped"', b'"tap"')).participants


def test_two_types_may_share_a_schema_but_not_its_name() -> None:
    schema = {"$id": "https://a.example/1", "type": "object"}
    shared = {SCHEMAS: [schema], "event_types/other/schemas": [dict(schema)]}
    small(shared)
    (problem,) = problems(shared | {"event_types/other/schemas": [schema | {"type": "array"}]})
    assert problem.path == "event_types.other.schemas[0]"
    assert "another schema has the `$id`" in problem.message


@pytest.mark.source("P11")
def test_schema_versions_keep_their_order() -> None:
    ids = [{"$id": "a:2"}, {"$id": "a:1"}]
    known = {f"event_types/{RING}/schema_check": "known"}
    contract = small({SCHEMAS: ids, **known})
    again = load_compiled(contract.canonical)
    assert again.version == contract.version
    for each in (contract, again):
        assert list(each.event_types[RING].schemas) == ["a:2", "a:1"]
        assert each.event_types[RING].schema_check is SchemaCheck.KNOWN
    assert small({SCHEMAS: ids[::-1], **known}).version != contract.version


def test_a_participant_sends_types_and_families() -> None:
    contract = small({"participants/bell/sends": ["org.example.door.*", RING, RING]})
    bell, desk = contract.participants["bell"], contract.participants["desk"]
    assert (bell.sends, desk.sends) == (("org.example.door.*", RING), None)
    sent = [bell.may_send(each) for each in (RING, "org.example.door.v1", "org.example.doors.v1")]
    assert sent == [True, True, False]
    assert not desk.may_send(RING)


def test_what_is_no_compiled_contract_is_refused(contract: Contract) -> None:
    for damaged in (contract.canonical[:-1], "[" * 100_000, "[]", '{"format":1,"name":"\\ud800"}'):
        with pytest.raises(ContractError):
            load_compiled(damaged)


@pytest.mark.parametrize(
    ("member", "value", "path"),
    [
        ("format", 0, "(document)"),
        ("name", None, "(document)"),
        ("title", "small", "(document)"),
        ("participants/device/kind", "device_service", "(document)"),
        ("participants/desk/kind", "cloud_servant", "participants.desk"),
        ("participants/bell/inbox/ordering", None, "participants.bell"),
        ("participants/bell/inbox/receipts", 0, "participants.bell"),
        ("participants/bell/inbox/retention_s", "7", "participants.bell"),
        ("participants/bell/inbox/when_empty", "refuse", "participants.bell"),
        (f"event_types/{RING}/schemas", {}, f"event_types.{RING}"),
        ("routes/to-desk/to", "desk.drawer", "routes.to-desk"),
        ("routes/to-desk/to", "nobody.inbox", "routes.to-desk"),
        ("routes/to-desk/filter", {"exact": {"type": 1}}, "routes.to-desk"),
        ("routes/to-desk/filter", {"any": []}, "routes.to-desk"),
        ("routes/to-desk/filter", {"sql": "id = ("}, "routes.to-desk"),
        ("routes/to-desk/filter", {"sql": "UNKNOWN(id)"}, "routes.to-desk"),
    ],
)
def test_a_damaged_or_foreign_compiled_contract_is_refused(member: str, value: object, path: str) -> None:
    written = json.loads(small().canonical)
    put(written, member, value)
    with pytest.raises(ContractError) as refused:
        load_compiled(json.dumps(written), "device.json")
    (problem,) = refused.value.problems
    assert (refused.value.origin, problem.path) == ("device.json", path)
    assert "compile the contract again" in problem.remedy


def test_a_foreign_contract_is_checked() -> None:
    written = json.loads(small().canonical)
    written["participants"]["desk"]["inbox"]["when_full"] = "drop_oldest"
    loaded = load_compiled(json.dumps(written))
    with pytest.raises(ContractError, match=r"participants.desk.inbox.when_full: only an event"):
        check_compiled(loaded, "device.json")
    check_compiled(small(), "device.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "not YAML"),
        ("a: 1\nb: 2\na: 2", "a: the name is there twice, in line 1 and line 3"),
        ("routes:\n  - {x: {to: a, to: b}}", r"routes\[0\].x.to: the name is there twice"),
        ("[1, 2]", "not a mapping"),
        ("event_types: {t: {description: x, schemas: [broken.json]}}", "broken.json"),
        (None, "cannot be read"),
    ],
)
def test_a_wrong_or_missing_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "broken.json").write_text("{")
    file = tmp_path / "plane.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ContractError, match=message) as caught:
        load_contract(file)
    assert str(file) in str(caught.value)


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text(
        "format: 8\nname: x\nname: y\nevent_types:\n  t: {description: x, schemas: [none.json]}\n"
        "participants:\n  home: &home {kind: device, description: x}\n  same: *home\n"
        "routes: {up: {filter: {sql: 'type = '}, to: home.outbox}}\n"
    )
    with pytest.raises(ContractError) as caught:
        load_contract(file)
    assert [each.path for each in caught.value.problems] == [
        "name",
        "event_types.t.schemas[0]",
        "routes.up.filter.sql",
        "participants",
    ]


@pytest.mark.source("P11")
def test_every_event_type_of_the_plane_has_a_schema(contract: Contract) -> None:
    assert [each.name for each in contract.event_types.values() if not each.schemas] == []


def test_the_file_has_the_lowest_format_that_it_needs(contract: Contract) -> None:
    assert yaml.safe_load(CONTRACT_FILE.read_text())["format"] == contract_document(contract)["format"]
