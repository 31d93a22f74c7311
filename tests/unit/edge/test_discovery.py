"""The commands that show where the broker is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edge.command_line import main

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


def test_it_shows_every_listener_and_the_one_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["--profile", "mosquitto.conf"], ["--settings", "profile.toml"]):
        assert main(["discovery", *asked]) == os.EX_OK
        assert capsys.readouterr().out.splitlines() == [
            "listener 1884 on every address: 127.0.0.1:1884",
            "listener 9001 on every address: uses websockets, not plain MQTT",
            "the broker is at 127.0.0.1:1884",
        ]


def test_it_shows_what_would_be_announced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discovery", "--settings", "announced.toml"]) == os.EX_OK
    shown = capsys.readouterr().out
    assert "lo: nothing is announced: lo: it is the loopback interface" in shown
    assert "absent0: nothing is announced: absent0: No such device" in shown


def test_without_a_profile_the_settings_say_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["discovery", "--settings", "plain.toml"]) == os.EX_OK
    assert "the broker is at 127.0.0.1:1883" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["discovery", "--profile", "absent.conf"], "absent.conf: No such file"),
        (["discovery", "--settings", "absent.toml"], "absent.toml: No such file"),
        (["announce", "--settings", "profile.toml"], "setting 'announcement': the table is missing; add it"),
        (["discovery", "find", "--interfaces", "lo"], "lo: it is the loopback interface"),
    ],
)
def test_what_it_cannot_do_it_says(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(arguments) == os.EX_CONFIG
    assert said in capsys.readouterr().err


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    monkeypatch.delitem(sys.modules, "eventplane_mqtt.discovery.dns_sd", raising=False)
    assert main(["announce", "--settings", "announced.toml"]) == os.EX_CONFIG
    assert "install python3-zeroconf" in capsys.readouterr().err
