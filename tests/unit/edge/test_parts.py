"""What a build says about a part that it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import parts
from edge.command_line import main
from edge.errors import SettingsError
from edge.parts import PARTS, NoAnswers, PartMissingError, has_part, require_part
from edge.settings import load_settings
from eventplane.contract import Contract
from eventplane.conversation.questions import (
    HandlersQuestion,
    StateQuestion,
    read_handlers_answer,
    read_state_answer,
)
from eventplane.envelope import write_event
from tests.unit.edge.fakes import contract as home_contract

SETTINGS = """
thing = "home-1"
contract = "contract.json"
spool = "spool.db"
[cloud]
host = "127.0.0.1"
tls = false
rule = "events"
"""


@pytest.fixture
def _no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.PathFinder, "find_spec", lambda *_: None)


def test_a_checkout_has_all_parts() -> None:
    assert all(map(has_part, PARTS))
    for part in PARTS:
        require_part(part)


@pytest.mark.usefixtures("_no_parts")
@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ('[local]\nprofile = "mosquitto.conf"\n', {"local.profile": "discovery"}),
        (
            '[local]\nprofile = "mosquitto.conf"\n[announcement]\ninterfaces = "eth0"\n',
            {"local.profile": "discovery", "announcement": "discovery"},
        ),
        (
            '[provisioning]\ntemplate = "fleet"\nclaim_certificate = "c.pem"\nclaim_key = "k.pem"\n',
            {"provisioning": "provisioning"},
        ),
    ],
)
def test_a_setting_without_its_part_is_refused_by_name(
    tmp_path: Path, table: str, settings: dict[str, str]
) -> None:
    file = tmp_path / "forwarder.toml"
    file.write_text(SETTINGS + table)
    with pytest.raises(SettingsError) as refused:
        load_settings(file, {})
    found = {each.setting: each.problem for each in refused.value.problems if "leaves out" in each.problem}
    assert found.keys() == settings.keys()
    assert all(f"part {part!r}" in found[name] for name, part in settings.items())


@pytest.mark.usefixtures("_no_parts")
def test_settings_that_need_no_part_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "forwarder.toml"
    file.write_text(SETTINGS)
    assert load_settings(file, {}).thing == "home-1"


@pytest.mark.usefixtures("_no_parts")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["provision", "--settings", "absent.toml"], "provisioning"),
        (["announce", "--settings", "absent.toml"], "discovery"),
        (["discovery", "--profile", "absent.conf"], "discovery"),
        (["discovery", "find", "--interfaces", "lo"], "discovery"),
    ],
)
def test_a_command_without_its_part_names_it(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 78
    assert str(PartMissingError(part)) in capsys.readouterr().err


def test_questions_are_answered_with_the_reason() -> None:
    contract: Contract = home_contract()
    answers = NoAnswers(contract, "home-1")
    inbox = contract.participants["call"].inbox.address
    topic, payload = answers.to(StateQuestion("1", "a/b/c", inbox))
    state = read_state_answer(payload)
    assert (topic, state.id, state.json) == ("eventplane/call/state/answer", "1", None)
    event = write_event({"id": "1", "source": "/a", "type": "t"}, {})
    topic, payload = answers.to(HandlersQuestion("2", event, inbox))
    handlers = read_handlers_answer(payload)
    assert (topic, handlers.id, handlers.thing) == ("eventplane/call/handlers/answer", "2", "home-1")
    assert state.problem == handlers.problem == str(PartMissingError("questions"))
