"""`eventplane contract`: what it prints and writes, and how it fails."""

import json
import re
import shlex
import shutil
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from contract.acl import FORWARDER
from contract.diagram import diagram
from contract.diff import Difference, diff
from eventplane.contract import Contract, ParticipantKind
from eventplane.topics import OUTBOXES, URGENT_CLIENT_SUFFIX
from lab.tools import tables
from operations.command_line import main
from tests.plane import shipped_contract
from tests.unit.contract.small import RING, small

GOLDEN = Path(__file__).parent / "golden" / "format-2.json"
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "contract.md").read_text()
"""The reference page, whose examples are run."""


@pytest.fixture(scope="module")
def contract() -> Contract:
    return shipped_contract()


def test_compile_writes(tmp_path: Path, contract: Contract, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "new" / "contract.json"
    assert main(["contract", "compile", "--output", str(output)]) == 0
    assert output.read_bytes() == contract.canonical
    printed = capsys.readouterr().out
    assert contract.version in printed
    assert "warning" not in printed


def test_a_variable_names_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ROOT / "docs" / "examples" / "doorbell.yaml"
    for folder, variable, words, name in (
        (ROOT, own, [], "doorbell"),
        (own.parent, own, [], "doorbell"),
        (ROOT, own, ["--contract", "contract/event_plane.yaml"], "care-at-home"),
        (ROOT, "", [], "care-at-home"),
    ):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("EVENTPLANE_CONTRACT", str(variable))
        assert main(["contract", "check", *words]) == 0
        assert capsys.readouterr().out.startswith(f"{name}, version ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENTPLANE_CONTRACT", str(tmp_path / "gone" / "plane.yaml"))
    assert main(["contract", "check"]) == 1
    assert capsys.readouterr().err.startswith("gone/plane.yaml: ")


@pytest.mark.parametrize("command", [["check"], ["diagram"], ["diff", "other.json"]])
def test_problems_exit_with_1(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plane.yaml"
    file.write_text("format: 8\n")
    assert main(["contract", *command, "--contract", str(file)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    # The commands that find problems print all of them, the others the first.
    assert output.err.startswith(f"{file}: {'3 problem(s)' if command == ['check'] else 'name: '}")
    assert output.err.count("\n") == (4 if command == ["check"] else 1)


def test_schemas_that_nothing_reads_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "docs" / "examples" / "schemas", tmp_path / "schemas")
    text = (ROOT / "docs" / "examples" / "doorbell.yaml").read_text()

    def warnings(text: str) -> set[str]:
        # A pipe can be read once.
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))
        assert main(["contract", "check", "--contract", "-", "--json"]) == 0
        return {each["path"] for each in json.loads(capsys.readouterr().out)["warnings"]}

    before = warnings(text)
    assert warnings(text.replace("schema_check: known", "schema_check: none")) == before
    shutil.copytree(tmp_path / "schemas", tmp_path / "schemas" / "new")
    unread = warnings(text.replace("    schema_check: known\n", "")) - before
    assert unread == {"event_types.org.example.ring.v1.schema_check", "schemas/new/ring.v1.json"}


def test_the_diagram_has_every_participant_and_every_route(contract: Contract) -> None:
    text = diagram(contract)
    assert text.startswith("flowchart LR\n")
    assert all(f'"{name}"' in text for name in contract.participants)
    assert all(f'"{route.name}"' in text for route in contract.routes)
    assert 'device_router == "alarms-to-call-service" ==> p_call_service' in text
    assert 'p_activity_service -- "org.eventplane.activity.*" --> device_router' in text
    assert "p_alarm_centre --" not in text


@pytest.mark.source("P4")
def test_the_diagram_shows_guarantees() -> None:
    plain = diagram(small())
    assert "  p_desk --> cloud_router" in plain
    assert 'cloud_router == "to-desk" ==> p_desk' in plain or 'cloud_router -- "to-desk" --> p_desk' in plain
    best_effort = {"routes/to-desk/delivery_guarantee": "best_effort"}
    down = {"routes/down": {"filter": {"exact": {"type": "org.example.desired"}}, "to": "device.inbox"}}
    for changes in (best_effort, {"participants/desk/inbox/delivery_guarantee": "best_effort"}):
        text = diagram(small(changes | down))
        assert 'cloud_router -. "to-desk" .-> p_desk' in text
        assert 'cloud_router -- "down" --> home' in text


def test_a_diff_names_each_changed_field() -> None:
    schemas = f"event_types/{RING}/schemas"
    first = {"$id": "a:1", "required": ["x"], "additionalProperties": True}
    old = small({schemas: [first], "routes/gone": {"filter": {"sql": "TRUE"}, "to": "desk.inbox"}})
    new = small(
        {
            schemas: [{"$id": "a:1", "additionalProperties": False}, {"$id": "a:2"}],
            f"event_types/{RING}/schema_check": "strict",
            "participants/desk/inbox": {"max_receives": 9, "expiry_s": 60},
            "participants/neighbour/sends": [],
            "routes/up/filter": {"prefix": {"type": "o"}},
        }
    )
    path = f"event_types.{RING}"
    changes = diff(old, new)
    assert {str(each) for each in changes} == {
        "+ participants.neighbour",
        "~ participants.desk.inbox.max_receives: 5 -> 9",
        "~ participants.desk.inbox.expiry_s: null -> 60",
        "- routes.gone",
        '~ routes.up.filter: {"prefix": {"type": "org."}} -> {"prefix": {"type": "o"}}',
        f'~ {path}.schemas: ["a:1"] -> ["a:1", "a:2"]',
        f'+ {path}.schemas[a:2]: {{"$id": "a:2"}}',
        f"~ {path}.schemas[a:1].additionalProperties: true -> false",
        f'- {path}.schemas[a:1].required: ["x"]',
        f'~ {path}.schema_check: "none" -> "strict"',
    }
    assert {each.path for each in diff(new, old)} == {each.path for each in changes}
    assert str(Difference("a.b", "null", '{"x": 1}')) == '~ a.b: null -> {"x": 1}'


def test_diff_reads_both(tmp_path: Path, contract: Contract, capsys: pytest.CaptureFixture[str]) -> None:
    own, yaml = tmp_path / "own.json", tmp_path / "other.yaml"
    own.write_bytes(contract.canonical)
    yaml.write_bytes(GOLDEN.read_bytes())
    named = ["--contract", str(own)]
    assert main(["contract", "diff", str(own), *named]) == 0
    version = f"care-at-home {contract.version}"
    assert capsys.readouterr().out == f"{version} -> {version}: nothing changed\n"
    for other in (GOLDEN, yaml):
        assert main(["contract", "diff", str(other), *named]) == 0
        assert '~ name: "golden-2" -> "care-at-home"' in capsys.readouterr().out
    assert main(["contract", "diff", str(tmp_path / "none.json"), *named]) == 1
    assert "cannot be read" in capsys.readouterr().err


READ_AND_WRITTEN = {
    "write": ("outbox", "inbox/receipts", "state", "interest", "handlers"),
    "read": ("outbox/receipts", "inbox", "state/answer", "handlers/answer"),
}
"""The topics of a service, below its name, by its right."""


def test_each_service_has_its_topics(contract: Contract, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "acl"]) == 0
    rights: dict[str, set[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        word, _, rest = line.partition(" ")
        if word == "user":
            own = rights.setdefault(rest, set())
        elif word == "topic":
            own.add(rest)
    services = [each.name for each in contract.of_kind(ParticipantKind.DEVICE_SERVICE)]
    urgent = FORWARDER + URGENT_CLIENT_SUFFIX
    assert list(rights) == [FORWARDER, urgent, *services]
    assert rights[urgent] == {f"read {OUTBOXES}"}
    expected = {f"read {OUTBOXES}"}  # to find unknown outboxes
    for name in services:
        rule = {(right, topic) for right, topics in READ_AND_WRITTEN.items() for topic in topics}
        if contract.participants[name].asks:
            rule |= {("read", "replies"), ("write", "replies/receipts")}
        assert rights[name] == {f"{right} eventplane/{name}/{topic}" for right, topic in rule}
        other = {"read": "write", "write": "read"}
        expected |= {f"{other[right]} eventplane/{name}/{topic}" for right, topic in rule}
    assert rights[FORWARDER] == expected


def examples() -> str:
    """The text of all console blocks: commands, and what they print."""
    return "\n".join(re.findall(r"```console\n(.*?)\n```", PAGE, re.DOTALL))


def test_every_example_of_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    printed = []
    for command in re.findall(r"^\$ (.*)", examples(), re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "eventplane"
        main(arguments)
        output = capsys.readouterr()
        printed.append(f"$ {command}\n{output.out}{output.err}")
    assert len(printed) == 2
    assert "".join(printed).rstrip() == examples()


def test_the_contract_on_the_page_is_the_example() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (ROOT / "docs" / "examples" / "doorbell.yaml").read_text()


def test_the_table_of_settings_is_current() -> None:
    assert tables.current(PAGE) == PAGE
