"""Every command, called wrongly: one line that says what to do, exit status 1 or 2, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from eventplane.__main__ import main
from operations.command_line import tree
from operations.completion import words

ROOT = Path(__file__).parents[3]
CONTRACT = str(ROOT / "contract" / "event_plane.yaml")
EVENT = {
    "specversion": "1.0",
    "id": "17",
    "source": "urn:test",
    "type": "org.eventplane.home.message.v1",
    "data": {"text": "hello"},
}

FILE = "FILE"
"""Stands for a file that has what the command reads."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "audit list": (),
    "audit run": (),
    "audit show": ("2026-03-01",),
    "completion": ("bash",),
    "contract acl": (),
    "contract catalogue": (),
    "contract check": (),
    "contract compile": ("--output", os.devnull),
    "contract diagram": (),
    "contract diff": (CONTRACT,),
    "contract explain": (FILE,),
    "contract floor": (CONTRACT,),
    "contract publish": (),
    "dead-letters list": (),
    "dead-letters redrive": ("17", "--letters"),
    "dead-letters show": (),
    "desired list": ("home-1",),
    "desired reset": ("kind/space/name", "--all"),
    "desired show": ("kind/space/name",),
    "fleet allow-replacement": ("home-1",),
    "fleet decommission": ("home-1",),
    "fleet groups": ("home-1",),
    "fleet list": (),
    "fleet quarantine": ("home-1",),
    "fleet register": ("home-1",),
    "fleet release": ("home-1",),
    "fleet show": ("home-1",),
    "inbox": ("carers",),
    "interest publish": (),
    "interest show": (),
    "interest withdraw": (),
    "new contract": (),
    "new event-type": ("com.example.laundry.done.v1", "--sender", "carers"),
    "new participant": ("laundry-service", "--kind", "cloud-service"),
    "replay": ("--date", "2026-03-01"),
    "send": (FILE, "--as", "carers"),
    "smoke": (),
    "subscriptions delete": ("carers", "news"),
    "subscriptions history": (),
    "subscriptions key": ("carers", "news"),
    "subscriptions list": ("carers",),
    "subscriptions put": ("carers", "news", FILE),
    "subscriptions show": ("carers", "news"),
    "trace": ("17",),
}
"""Each command with words that are right."""

NEW = {name for name in COMMANDS if name.startswith("new ")}
"""Commands that write into the folder they are typed in."""

LOCAL = {name for name in COMMANDS if name.startswith("contract ")} - {"contract publish"} | {
    *NEW,
    "completion",
}
"""Commands that need no cloud."""

CLOUD = sorted(set(COMMANDS) - LOCAL - {"interest publish"})
"""Those that do. By the contract here devices send everything: there is no interest to publish."""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line: its exit status, what it printed, what it reported."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Leave no settings of AWS, of this machine or its environment."""
    for name in os.environ:
        if name.startswith(("AWS_", "EVENTPLANE_")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)
    return


def line(name: str, file: object = FILE) -> list[str]:
    """The words of the command `name` that are right, with `file`."""
    return [*name.split(), *(str(file) if each == FILE else each for each in COMMANDS[name])]


@pytest.fixture
def event(tmp_path: Path) -> Path:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(EVENT))
    return file


def is_one_line(err: str) -> bool:
    """Whether it is one line with a remedy after a semicolon."""
    return err.endswith("\n") and err.count("\n") == 1 and "; " in err and "Traceback" not in err


def test_the_list_has_every_command() -> None:
    paths = {" ".join(path) for path, _ in words(tree())}
    assert set(COMMANDS) == {
        each for each in paths if each and not any(p.startswith(f"{each} ") for p in paths)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_neither_cloud_nor_file(run: Run, name: str) -> None:
    status, out, err = run(*name.split(), "--help")
    assert (status, err) == (0, "")
    assert "--env NAME" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_named(run: Run, name: str, event: Path) -> None:
    status, out, err = run(*line(name, event), "--nonsense")
    assert (status, out) == (2, "")
    assert is_one_line(err), err
    assert "--nonsense" in err
    assert f"{name} --help" in err


@pytest.mark.parametrize("name", [each for each, more in COMMANDS.items() if more])
def test_missing_words_are_named(run: Run, name: str) -> None:
    status, out, err = run(*name.split())
    assert (status, out) == (2, "")
    assert is_one_line(err) or "say " in err, err


@cache
def known_words() -> dict[str, list[str]]:
    return {" ".join(path): found for path, found in words(tree())}


def has_option(name: str, option: str) -> bool:
    return option in known_words()[name]


@pytest.mark.parametrize("content", [None, "{", "[]", "\xff"])
@pytest.mark.parametrize("name", [each for each in COMMANDS if has_option(each, "--contract")])
def test_a_bad_contract_is_one_line(
    run: Run, name: str, content: str | None, event: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content.encode("latin-1"))
    status, out, err = run(*line(name, event), "--contract", str(bad))
    assert (status, out) == (1, "")
    # The commands that find problems print all of them.
    assert is_one_line(err) or (name in ("contract check", "contract compile") and "problem(s)" in err), err
    assert str(bad) in err


@pytest.mark.parametrize("content", [None, "{", "[]", "\xff"])
@pytest.mark.parametrize("name", [each for each, more in COMMANDS.items() if FILE in more])
def test_a_bad_file_is_one_line(run: Run, name: str, content: str | None, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content.encode("latin-1"))
    status, out, err = run(*line(name, bad))
    assert (status, out) == (1, "")
    assert is_one_line(err), err
    assert str(bad) in err


@pytest.mark.parametrize("option", ["--date", "--from", "--to"])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_day_is_one_line(run: Run, name: str, option: str, event: Path) -> None:
    if not has_option(name, option):
        return
    status, out, err = run(*line(name, event), option, "2026-99-99")
    assert (status, out) == (2, "")
    assert is_one_line(err), err
    assert "2026-99-99" in err


@pytest.mark.parametrize("name", CLOUD)
def test_without_credentials_it_says_how_to_log_in(run: Run, name: str, event: Path) -> None:
    status, out, err = run(*line(name, event), "--region", "eu-central-1")
    assert (status, out) == (1, "")
    assert is_one_line(err), err
    assert "log in" in err


@pytest.mark.parametrize("name", CLOUD)
def test_without_a_region_it_says_how_to_choose_one(
    run: Run, name: str, event: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    status, out, err = run(*line(name, event))
    assert (status, out) == (1, "")
    assert is_one_line(err), err
    assert "AWS_REGION" in err


@pytest.mark.parametrize("settings", ["variable", "option", "option first"])
@pytest.mark.parametrize("name", CLOUD)
def test_every_command_takes_region_and_endpoint(
    run: Run, name: str, event: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("operations.cloud._CONFIG", None)
    options = ["--region", "eu-central-1", "--endpoint-url", "http://127.0.0.1:1"]
    if settings == "variable":
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        options = []
    words = line(name, event)
    status, out, err = run(*(options + words if settings == "option first" else words + options))
    assert (status, out) == (1, "")
    assert is_one_line(err), err
    # It has come as far as the endpoint.
    assert "127.0.0.1:1" in err


@pytest.mark.parametrize("name", sorted(LOCAL - NEW - {"completion"}))
def test_every_local_command_prints_json(run: Run, name: str, event: Path) -> None:
    for arguments in (["--json", *line(name, event)], [*line(name, event), "--json"]):
        status, out, err = run(*arguments)
        assert (status, err) == (0, "")
        assert isinstance(json.loads(out), dict)


def test_a_profile_that_does_not_exist_is_named(run: Run) -> None:
    status, _, err = run("fleet", "list", "--profile", "nobody")
    assert status == 1
    assert is_one_line(err)
    assert "nobody" in err


def test_a_named_profile_wins_over_keys_in_the_environment(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    (tmp_path / "config").write_text("[profile desk]\nregion = eu-west-1\n")
    (tmp_path / "keys").write_text("[desk]\naws_access_key_id = of-the-profile\naws_secret_access_key = x\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    seen = []

    def look(*_: object) -> int:
        import boto3

        session = boto3.Session()
        seen.append((session.get_credentials().access_key, session.region_name))
        return 0

    monkeypatch.setattr("operations.fleet.command._list", look)
    monkeypatch.setattr("operations.fleet.command.fleet_of", lambda *_: None)
    monkeypatch.setattr("operations.fleet.command.enter", lambda: None)
    assert run("fleet", "list", "--profile", "desk")[0] == 0
    assert run("fleet", "list")[0] == 0
    assert seen[0] == ("of-the-profile", "eu-west-1")
    # What an option set is gone with its command.
    assert seen[1][0] == "of-the-environment"


def test_an_address_that_would_show_the_signature_is_refused(run: Run) -> None:
    status, _, err = run("subscriptions", "list", "carers", "--url", "http://api.example")
    assert status == 2
    assert is_one_line(err)
    assert "https://HOST" in err


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_knows_every_command(run: Run, shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0
    assert all(word in out for name in COMMANDS for word in name.split())


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("eventplane fl", ["fleet"]),
        ("eventplane fleet qua", ["quarantine"]),
        ("eventplane contract diff --contr", ["--contract"]),
        ("eventplane --env dev dead-letters red", ["redrive"]),
        ("eventplane completion z", ["zsh"]),
    ],
)
def test_bash_completes(run: Run, typed: str, expected: list[str]) -> None:
    script = run("completion", "bash")[1]
    typing = typed.split(" ")
    program = f"""{script}
COMP_WORDS=({typed}); COMP_CWORD={len(typing) - 1}; _eventplane; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_it_runs_as_a_program_whose_reader_has_seen_enough() -> None:
    program = f"{sys.executable} -m eventplane contract check | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("care-at-home")
