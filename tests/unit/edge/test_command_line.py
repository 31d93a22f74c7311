"""The command line: its commands and their options, and exit status 2 for everything else."""

import os
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from edge.command_line import EX_WRONG_COMMAND_LINE, main
from edge.commands import USAGE
from edge.daemon import _warn_of_limits
from edge.errors import DeviceSettingsError, SpoolError
from edge.parts import PROGRAM, PartMissingError
from edge.settings import Settings, load_settings
from eventplane import __version__
from lab.tools.device_image import PACKAGING
from tests.unit.edge.fakes import contract as home_contract

COMMANDS = (
    *("run", "check", "provision", "discovery", "discovery find", "announce"),
    *("broker-database", "broker-profile", "manifest"),
)


@pytest.mark.source("P13")
@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["provision"], ["discovery"], ["announce"]])
def test_settings_before_or_after_a_name(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
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
def test_wrong_use_is_final(capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str) -> None:
    assert main(arguments) == EX_WRONG_COMMAND_LINE == 2
    said = capsys.readouterr().err
    assert said.startswith(problem)
    assert said.endswith(USAGE)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["provision", "--help"]])
def test_help_names_every_command(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == os.EX_OK
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {PROGRAM} ")
    assert [each for each in COMMANDS if f"\n  {each}  " not in text] == []


def test_bad_spool(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def run(settings: Settings, *_: object) -> None:
        raise SpoolError(settings.spool, "another forwarder uses it", "stop that one")

    (folder / "c").write_bytes(home_contract().canonical)
    monkeypatch.setattr("edge.daemon.run", run)
    monkeypatch.setattr("edge.systemd.start_logging", lambda *_: None)
    assert main(["--settings", "plain.toml"]) == os.EX_IOERR
    assert "another forwarder" in caplog.text


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == os.EX_OK
    assert capsys.readouterr().out == f"{PROGRAM} {__version__} (source)\n"


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
    for file in ("announced.toml", "plain.toml"):
        assert main(["discovery", "--settings", file]) == os.EX_OK
    shown = capsys.readouterr().out
    assert "lo: nothing is announced: lo: it is the loopback interface" in shown
    assert "absent0: nothing is announced: absent0: No such device" in shown
    assert "the broker is at 127.0.0.1:1883" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--settings", "plain.toml"], "setting 'contract'"),
        (["discovery", "--profile", "absent.conf"], "absent.conf: No such file"),
        (["discovery", "--settings", "absent.toml"], "absent.toml: No such file"),
        (["broker-profile", "--profile", "absent.conf"], "absent.conf: No such file"),
        (["announce", "--settings", "profile.toml"], "setting 'announcement': the table is missing; add it"),
        (["provision", "--settings", "plain.toml"], "setting 'provisioning': the table is missing; add it"),
        (["discovery", "find", "--interfaces", "lo"], "lo: it is the loopback interface"),
    ],
)
def test_a_failure_has_a_reason(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(arguments) == os.EX_CONFIG
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("persistence 1\nlog_dest file /a\nlog_type error\nconnection_messages true # a\n", []),
        ("connection cloud\naddress cloud.example\n", []),
        ("persistence false\n", [1]),
        ("# listener 1\r\n\r\nlistener 1884 0.0.0.0\r\nallow_anonymous true\r\n", [3]),
        ("listener 0 /run/mqtt.sock\nallow_anonymous false\n", [1, 2]),
        (
            "per_listener_settings true\nlistener 1883\nlistener 8883\ncertfile a\nkeyfile b\n",
            [1, 2, 3, 4, 5],
        ),
        ("port 1883\nbind_address 127.0.0.1\n", [1, 2]),
        ("password_file /a\nacl_file /b\nplugin /c\n", [1, 2, 3]),
        ("max_connections 9\n", [1]),
        ("max_queued_messages 0\nmax_queued_bytes 67108864\n", [1]),
    ],
)
@pytest.mark.parametrize("name", ["a.conf", "mosquitto.conf", "z.conf"])
def test_what_an_added_file_overrides_is_named_with_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, lines: list[int]
) -> None:
    included = folder / "conf.d"
    included.mkdir()
    added = included / "eventplane.conf"
    added.symlink_to(PACKAGING / "mosquitto.conf")
    broker = folder / "mosquitto.conf"
    broker.write_text("")
    file = included / name if name != broker.name else broker
    file.write_bytes(text.encode())
    with broker.open("a", newline="") as opened:
        opened.write(f"include_dir {included}\n")
    asked = ["broker-profile", "--profile", str(broker), "--added", str(added)]
    assert main(asked) == (1 if lines else os.EX_OK)
    named = [each.partition(": ")[0] for each in capsys.readouterr().out.splitlines()]
    assert not lines or named == [f"{file}:{each}" for each in lines]
    added.unlink()
    assert main(asked) == 1
    assert f"{broker}: it does not include {added}" in capsys.readouterr().out


def test_a_start_warns_of_wrong_limits(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings(folder / "profile.toml", {})
    _warn_of_limits(settings)
    assert "mosquitto.conf: messages that come while the forwarder restarts are dropped" in caplog.text
    (folder / "mosquitto.conf").unlink()
    _warn_of_limits(settings)
    assert "No such file" in caplog.text


@pytest.fixture
def _no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)


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
def test_a_setting_needs_its_part(tmp_path: Path, table: str, settings: dict[str, str]) -> None:
    file = tmp_path / "forwarder.toml"
    file.write_text(SETTINGS)
    assert load_settings(file, {}).thing == "home-1"
    file.write_text(SETTINGS + table)
    with pytest.raises(DeviceSettingsError) as refused:
        load_settings(file, {})
    found = {each.setting: each.problem for each in refused.value.problems if "leaves out" in each.problem}
    assert found.keys() == settings.keys()
    assert all(f"part {part!r}" in found[name] for name, part in settings.items())


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
def test_a_command_names_a_part(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 78
    assert str(PartMissingError(part)) in capsys.readouterr().err
