"""`eventplane new`: what it adds to a contract's file, what it keeps, and what it refuses."""

import argparse
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from contract import load_contract
from contract.checks import check
from contract.edit import ContractEditError, add_entry, append_item
from contract.loader import load_checked
from contract.scaffold import Scaffold, ScaffoldError, receivers_of
from eventplane.__main__ import main
from eventplane.contract import Contract, ParticipantKind
from eventplane.envelope import write_event
from eventplane.filters import Prefix
from operations import contract_command

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
DONE = "com.example.laundry.done.v1"
START = "com.example.laundry.start.v1"


@pytest.fixture
def plane(tmp_path: Path) -> Path:
    """A copy of the example of a contract, and of its schemas."""
    shutil.copytree(EXAMPLES / "schemas", tmp_path / "schemas")
    return Path(shutil.copy(EXAMPLES / "doorbell.yaml", tmp_path))


def new(plane: Path, text: str) -> Contract:
    assert main(["new", *text.split(), "--contract", str(plane)]) == 0
    return load_contract(plane)


def test_a_service_from_nothing_to_a_delivered_type(plane: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = plane.read_text().splitlines()
    warnings = check(load_contract(plane))
    new(plane, "participant laundry-service --kind device-service")
    new(plane, "participant laundry-app --kind cloud-service --receives org.example.*")
    contract = new(
        plane, f"event-type {DONE} --sender laundry-service --receiver laundry-app --receiver desk"
    )

    service = contract.participants["laundry-service"]
    assert (service.kind, service.sends) == (ParticipantKind.DEVICE_SERVICE, (DONE,))
    assert set(receivers_of(contract, DONE)) == {"laundry-app", "desk"}
    assert "laundry-app" in receivers_of(contract, "org.example.ring.v1")
    # The uplink's route took nothing of this domain, so there is one more.
    assert "laundry-done-to-cloud" in {each.name for each in contract.routes}
    assert [each for each in check(contract) if each not in warnings] == []
    # The schema is a stub at the type's own host.
    schema = json.loads((plane.parent / "schemas" / "laundry-done.v1.json").read_text())
    assert schema["$id"] == "https://schemas.example.com/laundry-done.v1.json"
    assert dict(contract.event_types[DONE].schemas) == {schema["$id"]: schema}
    assert schema["examples"]
    printed = capsys.readouterr().out
    assert f"added participants.laundry-service.sends: {DONE}" in printed
    assert "received by desk, laundry-app" in printed
    assert "next:" in printed
    # Everything else stays as it was.
    after = iter(plane.read_text().splitlines())
    assert all(any(line == each for each in after) for line in before)


@pytest.mark.long
@pytest.mark.parametrize(
    ("variable", "words", "environment", "deployed_by"),
    [
        ("", "", "dev", "make deploy ENV=dev"),
        ("local", "", "local", "make publish"),
        ("local", "--env prod --region eu-west-1", "prod", "make deploy ENV=prod"),
    ],
)
def test_the_next_steps_are_right_in_the_shell_they_are_printed_in(
    plane: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    words: str,
    environment: str,
    deployed_by: str,
) -> None:
    monkeypatch.setenv("EVENTPLANE_ENV", variable)
    monkeypatch.setenv("EVENTPLANE_BROKER", "mqtt://127.0.0.1:18830")
    published: set[tuple[str, Path]] = set()

    def publish(options: argparse.Namespace) -> int:
        published.add((options.env, options.contract))
        return 0

    monkeypatch.setattr(contract_command, "_publish", publish)
    event = plane.parent / "EVENT.json"
    event.write_text(write_event({"id": "1", "source": "/s", "type": DONE}, {}).json)
    monkeypatch.chdir(plane.parent)
    steps: list[str] = []
    for each in (
        "participant app --kind cloud-service --contract doorbell.yaml",
        "participant machine --kind device-service --contract doorbell.yaml",
        f"event-type {DONE} --sender machine --receiver app --contract doorbell.yaml",
        "contract own",
    ):
        assert main(["new", *each.split(), *words.split(), "--json"]) == 0
        steps += json.loads(capsys.readouterr().out)["next"]
    commands = re.findall(r"eventplane (.+?)(?:, or |$)", "\n".join(steps), re.MULTILINE)
    for number, line in enumerate(commands):
        typed = re.sub(r"(sender|receiver) NAME", r"\1 bell", line).replace("NAME", f"name{number}")
        assert main(shlex.split(typed.replace("TYPE", f"com.example.x{number}.v1"))) == 0, line
    assert published == ({(environment, Path("doorbell.yaml"))} if environment != "local" else set())
    assert any(deployed_by in each for each in steps)
    programs = [each.partition(", of")[0] for each in steps if "connect(" in each]
    assert programs == [
        f'receive: connect("sqs:{environment}", "app")',
        'send: connect("mqtt://127.0.0.1:18830", "machine")',
    ]


def test_a_type_for_a_device_gets_its_route_down(plane: Path) -> None:
    contract = new(plane, f"event-type {START} --sender desk --receiver chime")
    assert receivers_of(contract, START) == ["chime"]
    assert "laundry-start-to-devices" in {each.name for each in contract.routes}


def test_a_route_of_the_same_name_stays(plane: Path) -> None:
    new(plane, f"event-type {DONE} --sender bell --receiver desk")
    contract = new(plane, f"event-type {DONE.replace('v1', 'v2')} --sender bell --receiver desk")
    names = {each.name for each in contract.routes}
    assert {"laundry-done-to-desk", "laundry-done-to-desk-2", "laundry-done-to-cloud-2"} <= names


def test_a_schema_that_exists_is_used_and_an_id_can_be_given(plane: Path) -> None:
    file = plane.parent / "schemas" / "laundry-done.v1.json"
    file.write_text('{"$id": "urn:mine", "examples": [1]}')
    assert set(new(plane, f"event-type {DONE} --sender desk").event_types[DONE].schemas) == {"urn:mine"}
    assert file.read_text() == '{"$id": "urn:mine", "examples": [1]}'
    given = new(plane, f"event-type {START} --sender desk --schema-id urn:start")
    assert set(given.event_types[START].schemas) == {"urn:start"}


def test_a_webhook_prints_its_setting_and_a_description_is_any_text(
    plane: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = "a: 'b' # {c}\n\"ä 😀\u2028"
    given = ["new", "participant", "hook", "--kind", "cloud-service", "--webhook"]
    assert main([*given, "--description", description, "--contract", str(plane)]) == 0
    contract = load_contract(plane)
    assert contract.channel("hook.inbox").webhook is not None
    assert contract.participants["hook"].description == description
    assert 'webhook_urls.hook = "https://..."' in capsys.readouterr().out


def test_a_linked_contract_stays_a_link(plane: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(plane)
    assert "a" in new(link, "participant a --kind cloud-service").participants
    assert link.is_symlink()
    assert "a" in load_contract(plane).participants


def written(plane: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in plane.parent.rglob("*") if each.is_file()}


def test_a_dry_run_writes_nothing(plane: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(plane)
    new(plane, f"event-type {DONE} --sender desk --dry-run")
    assert "(not written)" in capsys.readouterr().out
    assert written(plane) == before


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("participant desk --kind cloud-service", "the participant desk exists; choose another name"),
        ("participant Desk --kind cloud-service", "'Desk' is not a name; use lower-case letters"),
        ("participant desk2 --kind device-service --webhook", "participants.desk2.inbox"),
        ("event-type org.example.ring.v1 --sender desk", "exists; choose another name"),
        (f"event-type {DONE} --sender nobody", "no participant is called nobody; name one of: device"),
        (
            f"event-type {DONE} --sender desk --receiver no",
            "no participant is called no; name one of: device",
        ),
        (f"event-type {DONE} --sender desk --schema-id x", "is not an absolute URI"),
        ("event-type * --sender desk", "it contains `*`; write `.*` at the end only"),
    ],
)
def test_a_refused_entry_changes_nothing(
    plane: Path, given: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(plane)
    assert main(["new", *given.split(), "--contract", str(plane)]) == 1
    assert problem in capsys.readouterr().err
    assert written(plane) == before


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("none.yaml", None, "cannot be read: No such file or directory; name an existing file"),
        ("contract.json", "{}", "a compiled contract; name the YAML file that it was compiled from"),
        ("bad.yaml", "a: [", "not YAML"),
    ],
)
def test_a_contract_that_cannot_be_edited_is_named(
    tmp_path: Path, name: str, content: str | None, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    assert main(["new", "participant", "a", "--kind", "cloud-service", "--contract", str(file)]) == 1
    error = capsys.readouterr().err
    assert str(file) in error
    assert problem in error


def test_a_contract_is_found_from_below_and_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "participant", "a", "--kind", "cloud-service"]) == 1
    assert "start with `eventplane new contract`" in capsys.readouterr().err
    assert main(["new", "contract"]) == 0
    assert main(["new", "contract"]) == 1
    assert "contract: cannot be made: File exists; name a new folder" in capsys.readouterr().err
    own = tmp_path / "own" / "event_plane.yaml"
    own.parent.mkdir()
    own.write_text("somebody's")
    assert main(["new", "contract", "own"]) == 1
    assert own.read_text() == "somebody's"
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    receives = ["--receives", "org.eventplane.alarm.*"]
    assert main(["new", "participant", "a", "--kind", "cloud-service", *receives]) == 0
    added = load_contract(tmp_path / "contract" / "event_plane.yaml").participants["a"]
    assert added.may_subscribe == Prefix("type", "org.eventplane.alarm.")


def test_a_project_has_a_clean_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "care-bell"
    folder.mkdir()  # an empty one is used
    assert main(["init", str(folder), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert sorted(str(each) for each in folder.rglob("*") if each.is_file()) == sorted(files)
    contract, warnings = load_checked(folder / "contract" / "event_plane.yaml")
    assert (contract.name, warnings, list(check(contract))) == ("care-bell", [], [])
    texts = [Path(each).read_text() for each in files]
    assert not any(each in text for text in texts for each in ("@NAME", "@VERSION"))
    assert max(each.count("\n") for each in texts) < 50
    (folder / "README.md").write_text("mine")
    assert main(["init", str(folder)]) == 1
    assert capsys.readouterr().err == f"{folder}: the folder is not empty; name a new or an empty folder\n"
    assert (folder / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Care", "'Care' is not a name; use lower-case letters"),
        ("a b", "'a b' is not a name"),
        ("..", "'Up' is not a name"),
        ("file", "file: cannot be made: File exists; name a new folder"),
        ("file/below", "file/below: cannot be made: Not a directory"),
        ("loop", "loop: "),
    ],
)
def test_a_project_needs_a_name_and_a_place(
    tmp_path: Path,
    name: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "Up" / "at").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "Up" / "at")
    Path("file").touch()
    Path("loop").symlink_to("loop")
    assert main(["init", name]) == 1
    assert problem in capsys.readouterr().err
    there = "Up", "Up/at", "Up/at/file", "Up/at/loop"
    assert sorted(tmp_path.rglob("*")) == [tmp_path / each for each in there]


@pytest.mark.parametrize(
    "text",
    [
        "a:\r\n  b: 1\r\nc: 2\r\n",
        "a:\n  b:\n    c: 1 # said\n    # of c\n\n# of d\nd: 2\n",
        "a:\nd: 2\n",
        "d: 2",
        "a: {b: 1} # all\nd: 2\n",
        "a:\n    b: |\n      text\n\n\nd: 2\n",
        "a:\n  b: &x {c: 1}\n  d: *x\ne: 2\n",
        "a:\n  b:\n  - 1\n  - [2,\n     3]\nc: 4\n",
        "a:\n  b: 'ä 😀 # no comment'\nc: 4\n",
        "---\na:\n  b: 1\n...\n",
    ],
)
def test_an_entry_is_added_whatever_the_layout(text: str) -> None:
    entry = {"kind": "x", "filter": {"any": [{"exact": {"type": "t"}}]}}
    new = add_entry(text, ("a",), "new-one", entry)
    expected = yaml.safe_load(text)
    expected["a"] = {**(expected.get("a") or {}), "new-one": entry}
    assert yaml.safe_load(new) == expected
    kept = iter(new.splitlines())
    assert "{b" in text or all(any(line == each for each in kept) for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "p:\n  sends: [a, b] # both\n",
        "p:\n  sends:\n    - a # one\n    - b\n  q: 1\n",
        "p:\n  sends:\n    [a,\n     b,\n    ]\n",
        "p:\n  kind: x\nq: 1\n",
        'p: {kind: x, sends: ["a"]}\n',
    ],
)
def test_an_item_is_added_whatever_the_layout(text: str) -> None:
    for item in ("org.example.x.v1", "*", "&", "!x", "[", "%"):  # some are no plain scalar
        expected = yaml.safe_load(text)
        expected["p"].setdefault("sends", []).append(item)
        assert yaml.safe_load(append_item(text, ("p", "sends"), item)) == expected


@pytest.mark.parametrize(
    "text", ["x: &x [a]\np:\n  sends: *x\n", "base: &b {sends: [a]}\np: *b\n", "p:\n  kind: >+\n   x\n\n"]
)
def test_what_would_change_more_is_refused_with_the_entry(text: str) -> None:
    with pytest.raises(ContractEditError, match=r"add this by hand:\n"):
        append_item(text, ("p", "sends"), "b")


def test_a_concurrent_edit_is_not_overwritten(plane: Path) -> None:
    first, second = Scaffold.of(plane), Scaffold.of(plane)
    first.add("participants", "one", {"kind": "cloud_service", "description": "The first."})
    second.add("participants", "two", {"kind": "cloud_service", "description": "The second."})
    first.write()
    written = plane.read_bytes()
    with pytest.raises(ScaffoldError, match=r"has changed since .*; nothing was added: repeat the command"):
        second.write()
    assert plane.read_bytes() == written


@pytest.mark.parametrize("name", ["true", "null", "no", "on", "eventplane", "test"])
def test_a_project_may_have_any_name(name: str, tmp_path: Path) -> None:
    """Of these YAML takes four for something else than a text."""
    assert main(["init", str(tmp_path / name)]) == 0
    assert load_contract(tmp_path / name / "contract" / "event_plane.yaml").name == name
