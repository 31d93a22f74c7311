"""Mappings in a contract: what is checked, compiled, warned of, and given as access rules."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contract.acl import FORWARDER, acl
from contract.checks import check
from contract.loader import load_contract
from contract.schema import contract_schema
from eventplane.alarm_floor import floor_problems
from eventplane.contract import ContractError, compile_contract, contract_document, load_compiled
from eventplane.contract.mapping import MAX_MAPPINGS
from eventplane.contract.mapping_reader import ALLOWED
from eventplane.topics import OUTBOXES, URGENT_CLIENT_SUFFIX
from operations.command_line import main
from tests.small_contract import MAPPINGS, MOTION, ROOM, mapped, put
from tests.unit.contract.small import written_format
from tests.unit.edge.fakes import ALARM, contract

PLANE = mapped(contract(), ALARM)
LIST = "participants.zigbee.mappings"


def faults(changes: dict[str, Any]) -> dict[str, str]:
    """The message at each place, once the mappings have these changes."""
    with pytest.raises(ContractError) as caught:
        mapped(contract(), ALARM, changes)
    assert all(each.remedy for each in caught.value.problems)
    return {each.path: each.message for each in caught.value.problems}


def test_a_contract_with_mappings_needs_format_9() -> None:
    # Devices of 0.3.0 read 8: they refuse it by its number, and keep their own (edge/contract_updates.py).
    assert written_format(PLANE) == 9
    assert written_format(contract()) == 8


def test_a_compiled_contract_has_its_mappings() -> None:
    loaded = load_compiled(PLANE.canonical)
    assert loaded == PLANE
    assert [each.name for each in loaded.mappings] == sorted(MAPPINGS)
    assert contract_document(loaded)["participants"]["zigbee"]["mappings"]["motion"] == MAPPINGS["motion"]
    assert compile_contract(json.loads(PLANE.canonical), "again", is_derived=True).version == PLANE.version


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"motion/topic": "eventplane/{room}/outbox"}, "motion.topic", "topics of the plane"),
        ({"motion/topic": None}, "motion.topic", "is not a topic"),
        (
            {"motion/topic": "tele/{room}/#"},
            "sensor.topic",
            "a topic can match tele/{room}/# of zigbee.motion as",
        ),
        ({"motion/type": None}, "motion.type", "None is not a type"),
        ({"motion/type": "org.eventplane.mtion.v1"}, "motion.type", "no event type of the contract"),
        ({"motion/type": "org.eventplane.device.heartbeat.v1"}, "motion.type", "own programs send it"),
        ({"motion/type": "org.eventplane.chore.v1"}, "motion.type", "`sends` of zigbee does not name it"),
        ({"motion/payload": "xml"}, "motion.payload", "'xml' is not known"),
        ({"motion/id": "Time"}, "motion.id", "not a JSON Pointer"),
        ({"motion/when": ["/occupancy"]}, "motion.when", "it is not a mapping"),
        ({"motion/when": {"occupancy": True}}, "motion.when.occupancy", "not a JSON Pointer"),
        ({"motion/when": {"/a": {"pointer": "/b"}}}, "motion.when./a", "not a constant"),
        ({"motion/data": {"a": [1]}}, "motion.data.a", "neither a constant nor"),
        ({"motion/data": {"a": {"pointr": "/b"}}}, "motion.data.a", "neither a constant nor"),
        ({"motion/data": {"a": float("nan")}}, "motion.data.a", "neither a constant nor"),
        ({"motion/attributes": {"subject": "{rom}"}}, "motion.attributes.subject", "no level rom"),
        ({"motion/attributes": {"subject": "{room"}}, "motion.attributes.subject", "a brace"),
        ({"motion/attributes": {"subject": ""}}, "motion.attributes.subject", "it is empty"),
        ({"motion/attributes": {"Room": 1}}, "motion.attributes.Room", "lower-case"),
        ({"motion/atributes": {}}, "motion.atributes", "this setting is unknown"),
    ],
)
def test_a_wrong_mapping_is_refused(changes: dict[str, Any], place: str, message: str) -> None:
    found = faults({f"mappings/{path}": value for path, value in changes.items()})
    assert message in found[f"{LIST}.{place}"]


def test_an_editor_knows_mappings() -> None:
    schema = jsonschema.Draft202012Validator(contract_schema())
    assert not list(schema.iter_errors(contract_document(PLANE)))
    wrong = {"topic": None, "payload": "xml", "id": "Time", "when": {"a": 1}, "data": {"a": [1]}, "topc": "a"}
    for path, value in wrong.items():
        document = json.loads(PLANE.canonical)
        put(document, f"participants/zigbee/mappings/motion/{path}", value)
        assert list(schema.iter_errors(document)), path


def test_no_mapping_sets_what_the_plane_sets() -> None:
    names = [line.partition(" ")[0] for line in Path("lab/tools/attributes.toml").read_text().splitlines()]
    known = [each for each in names if each.isalnum()]
    assert {*known} > ALLOWED
    for name in {*known, "data"} - ALLOWED:
        place = f"{LIST}.motion.attributes.{name}"
        assert "the plane sets it" in faults({"mappings/motion/attributes": {name: "1"}})[place], name


def test_mappings_are_bounded() -> None:
    many = {f"mappings/m{at}": {"topic": f"a/{at}", "type": MOTION} for at in range(MAX_MAPPINGS)}
    assert "260 mappings" in faults(many)["participants"]


def test_only_a_service_on_the_device_has_mappings() -> None:
    document = contract_document(contract())
    put(document, "participants/app/mappings", {"m": {"topic": "a/b", "type": ALARM}})
    with pytest.raises(ContractError, match="only programs at the home's broker"):
        compile_contract(document, "x")


@pytest.mark.parametrize("damage", [{"topic": "#"}, {"tpic": "a/b"}, {"id": 5}, 5])
def test_a_damaged_mapping_is_refused(damage: Any) -> None:
    document = json.loads(PLANE.canonical)
    mappings = document["participants"]["zigbee"]["mappings"]
    mappings["motion"] = {**mappings["motion"], **damage} if isinstance(damage, dict) else damage
    with pytest.raises(ContractError, match="damaged"):
        load_compiled(json.dumps(document))


def test_a_program_may_publish_where_it_is_mapped() -> None:
    users = {each.splitlines()[0]: each.splitlines()[1:] for each in acl(PLANE).split("\n\n")}
    received = {f"topic read {each.filter}" for each in PLANE.mappings}
    assert received < {*users[f"user {FORWARDER}"]}
    assert {f"topic read {OUTBOXES}", *received} == {*users[f"user {FORWARDER}{URGENT_CLIENT_SUFFIX}"]}
    sent = {f"topic write {each.filter}" for each in PLANE.mappings}
    assert {name for name, rules in users.items() if sent.intersection(rules)} == {"user zigbee"}
    assert sent < {*users["user zigbee"]}


def test_an_alarm_s_mapping_is_part_of_the_floor() -> None:
    def taken(changes: dict[str, Any]) -> list[str]:
        return [each.path for each in floor_problems(PLANE, mapped(contract(), ALARM, changes))]

    assert taken({}) == taken({"mappings/motion": None}) == []
    assert taken({"mappings/smoke": None}) == [f"{LIST}.smoke"]
    assert taken({"mappings/smoke/when": {"/smoke": 1}}) == [f"{LIST}.smoke"]


def test_doubtful_mappings_are_warned_of() -> None:
    schema = {"$id": "https://example.org/motion.json", "required": ["state", "room"]}
    seen = {"mappings/smoke/attributes": {"time": {"pointer": "/last_seen"}, "subject": "{room}"}}
    plane = mapped(contract(), ALARM, {"mappings/smoke/when": None, **seen})
    document = contract_document(plane)
    put(document, f"event_types/{MOTION}/schemas", [schema])
    found = {each.path: each.message for each in check(compile_contract(document, "x"))}
    assert "every message" in found[f"{LIST}.smoke"]
    alarms = [each for each in found if each.startswith(f"{LIST}.smoke.attributes")]
    assert alarms == [f"{LIST}.smoke.attributes.time"]
    assert "requires room," in found[f"{LIST}.motion.data"]
    assert not [each for each in check(PLANE) if each.path.startswith(LIST)]


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str, payload: str) -> tuple[int, str]:
    (tmp_path / "plane.json").write_bytes(PLANE.canonical)
    (tmp_path / "payload").write_text(payload)
    words = ["contract", "map", topic, str(tmp_path / "payload"), "--contract", str(tmp_path / "plane.json")]
    status = main(words)
    said = capsys.readouterr()
    return status, said.out + said.err


def test_the_command_shows_the_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = run(tmp_path, capsys, "zigbee2mqtt/kitchen/smoke", '{"smoke": true}')
    assert status == 0
    assert '"source": "/devices/home-1/zigbee/zigbee2mqtt/kitchen/smoke"' in said
    assert "call" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("topic", "payload", "expected"),
    [
        ("zigbee2mqtt/kitchen/smoke", '{"smoke": false}', "no event by `when` of zigbee.mappings.smoke"),
        ("zigbee2mqtt/kitchen/smoke", "ON", "the dead letter not_json"),
        ("zigbee2mqtt/kitchen/smoke", "", "an empty message is no event"),
        ("zigbee2mqtt/kitchen", "{}", ROOM),
    ],
)
def test_the_command_says_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str, payload: str, expected: str
) -> None:
    status, said = run(tmp_path, capsys, topic, payload)
    assert status == 1
    assert expected in said


@pytest.mark.parametrize("topic", ["", "zigbee2mqtt/+/smoke", "zigbee2mqtt/#", "zigbee2mqtt/\udcff/smoke"])
def test_the_command_takes_topics_of_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path, capsys, topic, '{"smoke": true}')
    assert "argument TOPIC" in capsys.readouterr().err


SMART_HOME = Path(__file__).parents[3] / "docs" / "examples" / "smart-home" / "event_plane.yaml"


@pytest.mark.parametrize(
    ("topic", "payload", "data"),
    [
        (
            "zigbee2mqtt/kitchen/motion",
            {"occupancy": True, "battery": 90},
            {"room": "kitchen", "battery": 90},
        ),
        ("zigbee2mqtt/kitchen/smoke", {"smoke": True}, {"smoke": True}),
        (
            "tele/plug/SENSOR",
            {"Time": "T", "DS18B20": {"Temperature": 21.5}},
            {"plug": "plug", "celsius": 21.5},
        ),
        ("homeassistant/binary_sensor/door/state", "on", {"state": "on"}),
    ],
)
def test_the_example_maps_three_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str, payload: Any, data: Any
) -> None:
    file = tmp_path / "payload"
    file.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    assert main(["contract", "map", topic, str(file), "--contract", str(SMART_HOME), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["event"]["data"] == data
    file.write_text('{"Time": "T", "DS18B20": {"Temperature": "warm"}}')
    assert main(["contract", "map", "tele/plug/SENSOR", str(file), "--contract", str(SMART_HOME)]) == 1
    assert check(load_contract(SMART_HOME)) == ()
