"""The command that shows where the broker is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edge.command_line import EX_WRONG_COMMAND_LINE
from edge.discovery.__main__ import main

SETTINGS = (
    'thing = "home-1"\ncontract = "c"\nspool = "s"\n[cloud]\nhost = "h"\nrule = "r"\n'
    'ca = "a"\ncertificate = "b"\nkey = "k"\n'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mosquitto.conf").write_text("listener 1884\nlistener 9001\nprotocol websockets\n")
    (tmp_path / "plain.toml").write_text(SETTINGS)
    (tmp_path / "profile.toml").write_text(f'{SETTINGS}[local]\nprofile = "mosquitto.conf"\n')
    (tmp_path / "announced.toml").write_text(
        f'{SETTINGS}[local]\nprofile = "mosquitto.conf"\n[announcement]\ninterfaces = "lo,absent0"\n'
    )
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["edge.discovery", *arguments])
    return main()


def test_it_shows_every_listener_and_the_one_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked in (["--profile", "mosquitto.conf"], ["show", "--settings", "profile.toml"]):
        assert run(monkeypatch, *asked) == os.EX_OK
        assert capsys.readouterr().out.splitlines() == [
            "listener 1884 on every address: 127.0.0.1:1884",
            "listener 9001 on every address: uses websockets, not plain MQTT",
            "the broker is at 127.0.0.1:1884",
        ]


def test_it_shows_what_would_be_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "show", "--settings", "announced.toml") == os.EX_OK
    shown = capsys.readouterr().out
    assert "lo: nothing is announced: lo: it is the loopback interface" in shown
    assert "absent0: nothing is announced: absent0: No such device" in shown


def test_without_a_profile_the_settings_say_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--settings", "plain.toml") == os.EX_OK
    assert "the broker is at 127.0.0.1:1883" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "absent.conf"], "absent.conf: No such file"),
        (["--settings", "absent.toml"], "absent.toml: No such file"),
        (["announce", "--settings", "profile.toml"], "the settings have no [announcement]"),
        (["find", "--interfaces", "lo"], "lo: it is the loopback interface"),
    ],
)
def test_what_it_cannot_do_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(monkeypatch, *arguments) == os.EX_CONFIG
    assert said in capsys.readouterr().err


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    monkeypatch.delitem(sys.modules, "edge.discovery.dns_sd", raising=False)
    assert run(monkeypatch, "announce", "--settings", "announced.toml") == os.EX_CONFIG
    assert "install python3-zeroconf" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["show"], ["find"], ["sing"], ["--what"], ["show", "--profile", "a", "b"],
     ["find", "--interfaces", "a", "--seconds", "long"], ["announce", "--profile", "mosquitto.conf"]],
)  # fmt: skip
def test_a_wrong_command_line_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(monkeypatch, *arguments) == EX_WRONG_COMMAND_LINE
    assert "usage: python -m edge.discovery" in capsys.readouterr().err


def test_help_is_given(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--help") == os.EX_OK
    assert "find" in capsys.readouterr().out
