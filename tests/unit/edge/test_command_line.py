"""The command line: its commands and their options, and exit status 2 for everything else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edge.command_line import EX_WRONG_COMMAND_LINE, PROGRAM, USAGE, main
from eventplane import __version__
from tools.device_image import ROOT

COMMANDS = ("run", "check", "provision", "discovery", "discovery find", "announce", "manifest")


@pytest.mark.source("P13")
@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["provision"], ["discovery"], ["announce"]])
def test_a_command_takes_its_settings_before_or_after_its_name(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for arguments in ([*command, "--settings", "absent.toml"], ["--settings=absent.toml", *command]):
        assert main(arguments) == os.EX_CONFIG
        assert "absent.toml: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "'run' needs --settings"),
        (["check"], "'check' needs --settings"),
        (["--settings"], "option --settings requires argument"),
        (["--settings", "a", "b"], "there is no command 'b'"),
        (["--settings", "a", "--quiet"], "option --quiet not recognized"),
        (["run", "--settings", "a", "--profile", "b"], "'run' needs --settings"),
        (["discovery"], "'discovery' needs --settings or --profile"),
        (["discovery", "find"], "'discovery find' needs --interfaces or --interfaces --seconds"),
        (["discovery", "find", "--interfaces", "a", "--seconds", "long"], "--seconds long: "),
        (["announce", "--profile", "mosquitto.conf"], "'announce' needs --settings"),
        (["manifest", "--settings", "a"], "'manifest' needs no option"),
    ],
)
def test_anything_else_ends_with_the_status_that_systemd_does_not_try_again(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(arguments) == EX_WRONG_COMMAND_LINE == 2
    said = capsys.readouterr().err
    assert said.startswith(problem)
    assert said.endswith(USAGE)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["provision", "--help"]])
def test_help_names_the_program_and_every_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == os.EX_OK
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {PROGRAM} ")
    assert [each for each in COMMANDS if f"\n  {each}  " not in text] == []


def test_the_version_is_the_packages() -> None:
    asked = [sys.executable, "-m", "edge", "--version"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert said == f"{PROGRAM} {__version__} (source)\n"
