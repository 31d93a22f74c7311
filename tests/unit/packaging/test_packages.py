"""The Debian package, its units, its broker's profile, and the tutorial that installs it."""

import configparser
import os
import re
import subprocess
import tomllib
from pathlib import Path

import jsonschema
import pytest

import eventplane.__main__
from edge.command_line import EX_WRONG_COMMAND_LINE
from edge.health_server import PATIENCE_S
from edge.settings import load_settings
from edge.spool.recovery import SALVAGE_S
from edge.spool.tables import RECENT_EVENTS
from eventplane.envelope import parse_event
from eventplane.topics import local_topic
from eventplane_client.mqtt import MAX_MESSAGE_BYTES
from eventplane_mqtt.endpoint import MAX_PACKET_BYTES
from eventplane_mqtt.profile import limit_warnings
from lab.tools.debian_package import DEBIAN, NAME, PROGRAM, files, write_package
from lab.tools.device_image import PACKAGING, ROOT, VERSION, units
from parts.simulate.broker import PROFILE, profile_number
from tests.plane import shipped_contract

UNIT_FILES = units()
UNITS = {each.name for each in UNIT_FILES}
SCRIPTS = ("postinst", "postrm", "prerm")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("deb") / "package.deb"
    write_package(output, b"#!/bin/true\n")
    return output


def dpkg_deb(*arguments: object) -> str:
    return subprocess.run(
        ["dpkg-deb", *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.source("P7")
def test_debian_reads_it_and_finds_who_it_needs(package: Path) -> None:
    assert dpkg_deb("--field", package, "Package", "Version", "Architecture").splitlines() == [
        f"Package: {NAME}",
        f"Version: {VERSION}",
        "Architecture: all",
    ]
    needed = dpkg_deb("--field", package, "Depends")
    assert {"python3 (>= 3.11)", "mosquitto (>= 2.0)"} <= {each.strip() for each in needed.split(",")}


def test_builds_are_reproducible(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    write_package(tmp_path / "again.deb", b"#!/bin/true\n")
    assert (tmp_path / "again.deb").read_bytes() == package.read_bytes()


def test_it_installs_every_unit_the_program_and_its_command(package: Path, tmp_path: Path) -> None:
    dpkg_deb("--extract", package, tmp_path)
    system = tmp_path / "usr/lib/systemd/system"
    assert {each.name for each in system.iterdir()} == UNITS | {"mosquitto.service.d"}
    check = (system / "mosquitto.service.d/eventplane.conf").read_text()
    # A check that fails is no reason (-) not to start the broker.
    assert f"ExecStartPre=-/usr/bin/python3 -I -S /{PROGRAM} broker-database" in check
    assert (tmp_path / "usr/bin" / NAME).resolve() == tmp_path / PROGRAM
    assert (tmp_path / PROGRAM).stat().st_mode & 0o777 == 0o755
    owners = {line.split()[1] for line in dpkg_deb("--contents", package).splitlines()}
    assert owners == {"root/root"}


def test_a_build_without_a_part_has_no_unit_of_it() -> None:
    installed = {
        Path(path).name
        for path in files(b"", ["discovery", "provisioning", "questions", "telemetry"])
        if "/system/" in path
    }
    assert installed == {"eventplane-forwarder.service", "eventplane.conf"}


def test_what_an_administrator_edits_is_a_conffile(package: Path, tmp_path: Path) -> None:
    dpkg_deb("--control", package, tmp_path)
    conffiles = (tmp_path / "conffiles").read_text().split()
    assert conffiles == ["/etc/eventplane/forwarder.toml", "/etc/mosquitto/eventplane.conf"]
    assert set(conffiles) == {f"/{path}" for path in files(b"") if path.startswith("etc/")}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_shell_and_name_units_that_exist(name: str) -> None:
    script = DEBIAN / name
    subprocess.run(["sh", "-n", str(script)], check=True)
    named = set(re.findall(r"eventplane-\w+\.(?:service|timer)", script.read_text()))
    assert named <= UNITS
    assert named


def test_the_changelog_is_of_this_version() -> None:
    assert (DEBIAN / "changelog").read_text().startswith(f"{NAME} ({VERSION}) ")


SERVICES = [each for each in UNIT_FILES if each.suffix == ".service"]
EXPOSURE = 15
"""Highest exposure that is accepted, in tenths of systemd's scale from 0 to 10; the network is most of it."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "SYSTEMD_UNIT_PATH": ":".join([*{str(each.parent) for each in UNIT_FILES}, ""]),
        },  # ours, then the system's own
    )


def section(unit: Path, name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser[name]


@pytest.mark.source("P7")
@pytest.mark.parametrize("unit", UNIT_FILES, ids=lambda unit: unit.name)
def test_systemd_understands_every_line(unit: Path) -> None:
    verdict = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    assert (verdict.returncode, verdict.stderr) == (0, "")


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_exposure_stays_low(unit: Path) -> None:
    verdict = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert verdict.returncode == 0, verdict.stdout[-200:]


def test_a_careless_unit_would_be_found(tmp_path: Path) -> None:
    unit = tmp_path / "careless.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nRestartt=always\n")
    assert "Restartt" in analyze("verify", "--man=no", str(unit)).stderr
    assert analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit)).returncode == 1


def test_the_forwarder_always_restarts() -> None:
    unit = PACKAGING / "eventplane-forwarder.service"
    order, service = section(unit, "Unit"), section(unit, "Service")
    assert order["After"].split() == ["mosquitto.service"]
    assert not {"Requires", "BindsTo", "PartOf"} & set(order)
    assert (order["StartLimitIntervalSec"], service["Restart"]) == ("0", "always")
    assert service["RestartPreventExitStatus"].split() == [str(EX_WRONG_COMMAND_LINE), str(os.EX_CONFIG)]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")


def test_provisioning_does_not_start_again_where_it_cannot() -> None:
    """Status 243: systemd found no file of the claim."""
    service = section(ROOT / "parts/provisioning/eventplane-provisioning.service", "Service")
    fruitless = [str(EX_WRONG_COMMAND_LINE), str(os.EX_CONFIG), "243"]
    assert (service["Restart"], service["RestartPreventExitStatus"].split()) == ("on-failure", fruitless)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_nothing_installed_beside_python_gets_into_a_service(unit: Path) -> None:
    python, *options = section(unit, "Service")["ExecStart"].split()
    assert python == "/usr/bin/python3"
    # The announcement needs a package; it is off by default.
    assert options[:2] == ["-I", "-S"] or (options[0] == "-I" and options[2] == "announce")


def test_the_forwarder_has_time_to_start() -> None:
    service = section(PACKAGING / "eventplane-forwarder.service", "Service")
    assert int(service["TimeoutStartSec"]) > 2 * SALVAGE_S
    assert int(service["TimeoutStopSec"]) > 5
    assert int(service["WatchdogSec"]) > 2 * PATIENCE_S
    assert service["Environment"] == "MALLOC_ARENA_MAX=1 LC_ALL=C"


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_services_share_one_user_and_one_private_directory(unit: Path) -> None:
    service = section(unit, "Service")
    assert (service["User"], service["StateDirectory"]) == ("eventplane", "eventplane")
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0700", "0077")
    assert (PACKAGING / "eventplane.sysusers").read_text().count("\nu eventplane ") == 1


LINES = [line.split(maxsplit=1) for line in (PACKAGING / "mosquitto.conf").read_text().splitlines()]
SETTINGS = [(words[0], words[1]) for words in LINES if len(words) == 2 and words[0] != "#"]


def test_only_programs_on_the_device_reach_it() -> None:
    assert [value for name, value in SETTINGS if name == "listener"] == ["1883 127.0.0.1"]
    assert (
        not {"port", "bind_address", "bind_interface", "connection", "bridge_cafile"} & dict(SETTINGS).keys()
    )


def test_nobody_is_outside_the_rules() -> None:
    lines = (PACKAGING / "mosquitto-access.conf").read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    assert (settings["allow_anonymous"], settings["use_username_as_clientid"]) == ("false", "true")
    assert {"password_file", "acl_file"} <= settings.keys()
    # The one line that they replace.
    assert [pair for pair in SETTINGS if pair[0] == "allow_anonymous"] == [("allow_anonymous", "true")]


def test_it_keeps_what_waits_and_wears_out_no_flash() -> None:
    settings = dict(SETTINGS)
    assert settings["persistence"] == "true"
    assert int(settings["autosave_interval"]) >= 10
    assert "autosave_on_changes" not in settings
    # 0 is "no limit" in one version of Mosquitto and "drop everything" in another.
    assert int(settings["max_queued_messages"]) > 1_000
    assert int(settings["max_queued_bytes"]) > 0
    assert settings["queue_qos0_messages"] == "true"


def test_the_broker_bounds_packets() -> None:
    assert MAX_MESSAGE_BYTES < profile_number("max_packet_size") < MAX_PACKET_BYTES
    assert "message_size_limit" not in dict(SETTINGS)


def test_the_forwarder_has_nothing_to_say_against_the_limits(tmp_path: Path) -> None:
    assert limit_warnings(PROFILE, RECENT_EVENTS, MAX_PACKET_BYTES) == []
    assert RECENT_EVENTS >= 65_535  # the packet ids of one session
    profile = tmp_path / "mosquitto.conf"
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "old.conf").write_text("persistent_client_expiration 7d\n")
    profile.write_text(
        f"max_inflight_messages 0\nmessage_size_limit 262144\ninclude_dir {tmp_path}/conf.d\nlistener 1883\n"
    )
    found = limit_warnings(profile, RECENT_EVENTS, MAX_PACKET_BYTES)
    named = ("max_inflight_messages", "message_size_limit", "max_packet_size", "max_queued_messages")
    assert [name in each for name, each in zip(("old.conf:1", *named), found, strict=True)] == [True] * 5


PAGE = (ROOT / "docs" / "tutorials" / "raspberry-pi.md").read_text()
TYPED = re.findall(r"^(?:pi|you)\$ (?:sudo )?(.*)$", PAGE, re.MULTILINE)


def typed(start: str) -> list[str]:
    """Return the commands that begin with `start`."""
    return [line for line in TYPED if line.startswith(start)]


@pytest.mark.source("P7")
def test_its_lines_complete_the_settings_of_the_package(tmp_path: Path) -> None:
    block = re.search(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    table = ""
    text = (PACKAGING / "forwarder.toml").read_text()
    for line in block[1].splitlines():
        if line.startswith("["):
            table = line
            text = re.sub(rf"^#?{re.escape(line)}$", line, text, flags=re.MULTILINE)
        elif line:
            head, _, rest = text.partition(f"\n{table}\n") if table else ("", "", text)
            name = line.partition(" = ")[0]
            changed = re.sub(rf"^#?{name} = .*$", line, rest, count=1, flags=re.MULTILINE)
            assert changed != rest, f"{line}: the file has no such line to change"
            text = f"{head}\n{table}\n{changed}" if table else changed
    file = tmp_path / "forwarder.toml"
    file.write_text(text)
    settings = load_settings(file, {})
    assert tomllib.loads(block[1])["thing"] == settings.thing
    paths = [settings.contract, settings.provisioning.claim_certificate, settings.provisioning.claim_key]
    put = " ".join(typed("install"))
    assert [
        path.name for path in paths if path.name not in put or path.parent != Path("/etc/eventplane")
    ] == []


def test_its_event_is_valid_and_its_service_may_send_it() -> None:
    (line,) = typed("mosquitto_pub")
    found = re.fullmatch(r"mosquitto_pub -q 1 -t (\S+) -m '(.*)'", line)
    event = parse_event(found[2])
    service = shipped_contract().participants["health-service"]
    assert found[1] == local_topic("health-service", "outbox")
    assert event.type in (service.sends or ())
    # A router checks an event without `dataschema` against the first schema of its type.
    schema = next(iter(shipped_contract().event_types[event.type].schemas.values()))
    jsonschema.validate(event.data(), schema)
    (trace,) = typed("eventplane trace")
    assert trace.split()[2:4] == [event.source, event.id]


def test_its_commands_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on the computer; tests/device runs the Pi's."""
    monkeypatch.chdir(ROOT)
    for line in typed("eventplane "):
        commands = [each for each in line.split()[1:3] if re.fullmatch(r"[a-z]+", each)]
        with pytest.raises(SystemExit) as ended:
            eventplane.__main__.main([*commands, "--help"])
        assert ended.value.code == 0, line
    assert f"{NAME}_{VERSION}_all.deb" in PAGE
    assert f"usr/bin/{NAME}" in files(b"")
