"""`eventplane contract`: what it prints and writes, and how it fails."""

from pathlib import Path
from typing import Any

import pytest

from contract.acl import FORWARDER
from contract.diagram import diagram
from contract.diff import Change, diff
from contract.summary import summary
from eventplane.contract import Contract, ContractError, ParticipantKind, compile_contract, contract_document
from eventplane.topics import OUTBOXES, URGENT_CLIENT_SUFFIX
from operations.command_line import main
from tests.plane import shipped_contract

GOLDEN = Path(__file__).parent / "golden" / "format-1.json"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return shipped_contract()


def changed(contract: Contract, **parts: Any) -> Contract:
    """The contract with members of its document replaced, a part deep."""
    document = contract_document(contract)
    for part, entries in parts.items():
        document[part] = {
            name: entry for name, entry in {**document[part], **entries}.items() if entry is not None
        }
    return compile_contract(document, "changed")


def test_compile_writes_the_compiled_form(
    tmp_path: Path, contract: Contract, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "contract.json"
    assert main(["contract", "compile", "--output", str(output)]) == 0
    assert output.read_bytes() == contract.canonical
    printed = capsys.readouterr().out
    assert contract.version in printed
    assert "warning" not in printed


@pytest.mark.parametrize("command", [["check"], ["diagram"], ["diff", "other.json"]])
def test_problems_go_to_stderr_with_status_1(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text("format: 1\n")
    assert main(["contract", *command, "--contract", str(file)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    # The commands that find problems print all of them, the others the first.
    assert output.err.startswith(f"{file}: {'3 problem(s)' if command == ['check'] else 'name: '}")
    assert output.err.count("\n") == (4 if command == ["check"] else 1)


def test_the_diagram_has_every_participant_and_every_route(contract: Contract) -> None:
    text = diagram(contract)
    assert text.startswith("flowchart LR\n")
    assert all(f'"{name}"' in text for name in contract.participants)
    assert all(f'"{route.name}"' in text for route in contract.routes)
    assert 'device_router == "alarms-to-call-service" ==> p_call_service' in text
    assert 'p_activity_service -- "org.eventplane.activity.*" --> device_router' in text
    assert "p_alarm_centre --" not in text


def test_who_does_not_say_what_it_sends_has_an_arrow_without_a_name(contract: Contract) -> None:
    desk = contract_document(contract)["participants"]["operations"] | {"sends": None}
    assert "  p_operations --> cloud_router" in diagram(changed(contract, participants={"operations": desk}))


def test_best_effort_is_dotted_and_the_downlink_ends_at_the_home(contract: Contract) -> None:
    desk = contract_document(contract)["participants"]["family-app"]
    desk["inbox"]["delivery_guarantee"] = "best_effort"
    down = {"filter": {"exact": {"type": "org.example.desired"}}, "to": "device.inbox"}
    text = diagram(changed(contract, participants={"family-app": desk}, routes={"down": down}))
    assert 'cloud_router -. "daily-life-to-family" .-> p_family_app' in text
    assert 'cloud_router -- "down" --> home' in text


@pytest.mark.source("P4")
def test_the_guarantee_of_a_route_and_of_a_type_is_in_the_diagram_and_the_summary(contract: Contract) -> None:
    document = contract_document(contract)
    name, sender = "daily-life-to-family", "org.eventplane.activity.motion.v1"
    lively = document["routes"][name] | {"delivery_guarantee": "best_effort"}
    sure = document["event_types"][sender] | {"delivery_guarantee": "at_least_once"}
    declared = changed(contract, routes={name: lively}, event_types={sender: sure})
    assert f'cloud_router -. "{name}" .-> p_family_app' in diagram(declared)
    assert f"  {name} -> family-app.inbox, best effort\n" in summary(declared)
    assert "; at least once, unless its route declares otherwise\n" in summary(declared)


def test_nothing_changed(contract: Contract, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(contract, contract) == ()
    other = tmp_path / "other.json"
    other.write_bytes(contract.canonical)
    assert main(["contract", "diff", str(other)]) == 0
    assert capsys.readouterr().out == (
        f"care-at-home {contract.version} -> care-at-home {contract.version}: nothing changed\n"
    )


def test_changes_are_named_field_by_field(contract: Contract) -> None:
    document = contract_document(contract)
    family = document["participants"]["family-app"]
    family["inbox"] |= {"max_receives": 9, "expiry_s": 60}
    motion = document["event_types"]["org.eventplane.activity.motion.v1"]
    old_id = "https://schemas.eventplane.org/activity.v1.json"
    new_id = "https://schemas.eventplane.org/activity.v1.1.json"
    (old_schema,) = motion["schemas"]
    # Both types that have the schema have the same.
    door = document["event_types"]["org.eventplane.activity.door.v1"]
    changed_schema = {key: value for key, value in old_schema.items() if key != "required"}
    motion["schemas"] = [changed_schema | {"additionalProperties": False}, {"$id": new_id}]
    motion["schema_check"] = "strict"
    door["schemas"] = motion["schemas"][:1]
    calls = {"filter": {"prefix": {"type": "org."}}, "to": "call-service.inbox"}
    new = changed(
        contract,
        participants={"family-app": family, "neighbour": {"kind": "cloud_service", "description": "x"}},
        event_types={
            "org.eventplane.activity.motion.v1": motion,
            "org.eventplane.activity.door.v1": door,
        },
        routes={"alarms-to-call-service": calls, "dead-letters-to-operations": None},
    )
    changes = diff(contract, new)
    texts = [str(each) for each in changes]
    assert "+ participants.neighbour" in texts
    assert "~ participants.family-app.inbox.max_receives: 5 -> 9" in texts
    assert "~ participants.family-app.inbox.expiry_s: null -> 60" in texts
    assert "- routes.dead-letters-to-operations" in texts
    assert (
        '~ routes.alarms-to-call-service.filter: {"prefix": {"type": "org.eventplane.alarm."}} -> '
        '{"prefix": {"type": "org."}}'
    ) in texts
    motion_path = "event_types.org.eventplane.activity.motion.v1"
    assert f'~ {motion_path}.schemas: ["{old_id}"] -> ["{old_id}", "{new_id}"]' in texts
    assert f'+ {motion_path}.schemas[{new_id}]: {{"$id": "{new_id}"}}' in texts
    assert f"~ {motion_path}.schemas[{old_id}].additionalProperties: true -> false" in texts
    assert f'~ {motion_path}.schema_check: "known" -> "strict"' in texts
    assert any(each.startswith(f"- {motion_path}.schemas[{old_id}].required: ") for each in texts)
    assert {each.path for each in diff(new, contract)} == {each.path for each in changes}


def test_a_change_of_kind_of_value_is_one_change() -> None:
    assert str(Change("a.b", "null", '{"x": 1}')) == '~ a.b: null -> {"x": 1}'


def test_diff_reads_both_yaml_and_compiled_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], contract: Contract
) -> None:
    file = tmp_path / "other.yaml"
    file.write_bytes(GOLDEN.read_bytes())
    for other in (GOLDEN, file):
        assert main(["contract", "diff", str(other)]) == 0
        assert '~ name: "golden" -> "care-at-home"' in capsys.readouterr().out


def test_a_missing_other_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "diff", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_access_rules_give_each_service_its_own_topics_and_the_forwarder_the_other_ends(
    contract: Contract, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contract", "acl"]) == 0
    rights: dict[str, set[str]] = {}
    user = ""
    for line in capsys.readouterr().out.splitlines():
        word, _, rest = line.partition(" ")
        if word == "user":
            user = rest
            rights[user] = set()
        elif word == "topic":
            rights[user].add(rest)
    services = [each.name for each in contract.of_kind(ParticipantKind.DEVICE_SERVICE)]
    urgent = FORWARDER + URGENT_CLIENT_SUFFIX
    assert list(rights) == [FORWARDER, urgent, *services]
    assert rights[urgent] == {f"read {OUTBOXES}"}
    for name in services:
        boxes = ["outbox", "outbox/receipts", "inbox", "inbox/receipts", "state", "state/answer"]
        boxes += ["interest", "handlers", "handlers/answer"]
        topics = [f"eventplane/{name}/{box}" for box in boxes]
        words = ["write", "read", "read", "write", "write", "read", "write", "write", "read"]
        rule = list(zip(words, topics, strict=True))
        if contract.participants[name].asks:
            rule += [
                ("read", f"eventplane/{name}/replies"),
                ("write", f"eventplane/{name}/replies/receipts"),
            ]
        assert rights[name] == {f"{right} {topic}" for right, topic in rule}
        other = {"read": "write", "write": "read"}
        assert {f"{other[right]} {topic}" for right, topic in rule} <= rights[FORWARDER]
    asking = [each for each in services if contract.participants[each].asks]
    assert len(rights[FORWARDER]) == 9 * len(services) + 2 * len(asking) + 1
    patterns = [each for lines in rights.values() for each in lines if set("+#") & set(each)]
    assert set(patterns) == {f"read {OUTBOXES}"}  # the forwarder's, to find unknown outboxes


def test_no_service_can_have_the_forwarders_name(contract: Contract) -> None:
    document = contract_document(contract)
    document["participants"][FORWARDER] = document["participants"]["voice-service"]
    with pytest.raises(ContractError, match=FORWARDER):
        compile_contract(document, "changed")
