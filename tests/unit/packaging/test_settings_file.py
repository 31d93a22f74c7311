"""The packages' forwarder.toml: complete, correct, and it decides only where files are."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from edge.errors import DeviceSettingsError
from edge.settings import TABLES, Settings, load_settings
from eventplane_client import ClientSettings
from lab.tools.device_image import PACKAGING, ROOT
from lab.tools.settings_file import PACKAGED
from stacks.config import read
from stacks.settings import EnvironmentSettingError

FILE = PACKAGING / "forwarder.toml"
PRODUCT = {
    "thing": "home-1",
    "host": "broker.example.org",
    "rule": "ingest",
    "template": "fleet",
    "interfaces": "eth0",
    "profile": "/etc/mosquitto/mosquitto.conf",
    "username": "forwarder",
    "password_file": "/etc/eventplane/forwarder.password",
    "proxy_host": "proxy.example.org",
    "proxy_username": "ward-3",
    "proxy_password_file": "/etc/eventplane/proxy.password",
}
"""What a product fills in where the file has an empty text."""


def completed(folder: Path, *, lines: str) -> Path:
    """Return the file with its empty texts filled in, and its tables and settings `lines` uncommented."""

    def fill(empty: re.Match[str]) -> str:
        return f'{empty[1]} = "{PRODUCT[empty[1]]}"'

    text = re.sub(r'^#(\w+) = ""$', fill, FILE.read_text(), flags=re.MULTILINE)
    text = re.sub(rf"^#(\[\w+\]|{lines} = )", r"\1", text, flags=re.MULTILINE)
    file = folder / "forwarder.toml"
    file.write_text(text)
    return file


@pytest.mark.source("P13")
def test_it_has_every_setting_and_each_default(tmp_path: Path) -> None:
    everything = completed(tmp_path, lines=r"\w+")
    document = tomllib.loads(everything.read_text())
    for table, kind in {"": Settings, **TABLES}.items():
        names = [each.name for each in dataclasses.fields(kind) if "accepts" in each.metadata]
        given = document[table] if table else document
        assert [name for name in given if name not in TABLES] == names
    expected = load_settings(everything, {})
    assert load_settings(completed(tmp_path, lines=r"claim_\w+"), {}) == expected


def schema(file: Path) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(file.read_text()))


SCHEMA = schema(PACKAGING / "forwarder.schema.json")
ENVIRONMENTS_FILE = ROOT / "stacks" / "environments.toml"
ENVIRONMENTS = schema(ENVIRONMENTS_FILE.with_suffix(".schema.json"))
CLIENT = schema(ROOT / "docs" / "reference" / "client.schema.json")


def test_the_complete_file_fits_its_schema(tmp_path: Path) -> None:
    document = tomllib.loads(completed(tmp_path, lines=r"\w+").read_text())
    assert list(SCHEMA.iter_errors(document)) == []


@pytest.mark.parametrize(
    "line",
    [
        "things = 1",
        "thing = 1",
        'thing = "a b"',
        'spool = ""',
        "spool_capacity_bytes = 1",
        "heartbeat_s = 0.5",
        "[local]\nports = 1",
        "[local]\nport = 65536",
        '[local]\nprotocol = "4"',
        '[cloud]\ntls = "yes"',
        "local = 1",
    ],
)
def test_an_editor_marks_what_the_forwarder_refuses(tmp_path: Path, line: str) -> None:
    file = tmp_path / "forwarder.toml"
    file.write_text(line)
    assert list(SCHEMA.iter_errors(tomllib.loads(line))) != []
    with pytest.raises(DeviceSettingsError) as caught:
        load_settings(file, {})
    named = [each for each in caught.value.problems if "missing" not in each.problem]
    assert len(named) == 1


def test_the_environments_fit_their_schema() -> None:
    assert list(ENVIRONMENTS.iter_errors(tomllib.loads(ENVIRONMENTS_FILE.read_text()))) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("devicez = 1", "dev.devicez is unknown; remove it, or did you mean dev.devices?"),
        ('name = "prod"', "dev.name is the name of the table dev; remove it"),
        ("devices = 0", "dev.devices is 0; give devices from 1 to"),
        ("devices = true", "dev.devices is True"),
        ('keeps_data = "perhaps"', "dev.keeps_data is 'perhaps'; give true or false"),
        ('log_retention = "a while"', "dev.log_retention is 'a while'; give one of one_day"),
        ("router = { memory_mib = 64 }", "dev.router.memory_mib is 64; give MiB from 128"),
        ("router = { memory = 512 }", "dev.router.memory is unknown"),
        ("router = 1", "dev.router is 1, and no FunctionSize"),
        ("sink_ports = ['x']", "dev.sink_ports[0] is 'x'"),
        ("webhook_urls = { a = 1 }", "dev.webhook_urls.a is 1"),
        ("presence = { quota = { frames = 0 } }", "dev.presence.quota.frames is 0"),
        (
            'protocols = [{ package = "x", url = "nats://me:s@n" }]',
            "dev.protocols[0].url is what has",
        ),
    ],
)
def test_an_editor_marks_what_synthesis_refuses(line: str, named: str) -> None:
    text = ENVIRONMENTS_FILE.read_text()
    base, dev = text[: text.index("[local]")], text[text.index("[dev]\n") : text.index("[prod]")]
    dev = re.sub(rf"(?m)^{line.split()[0]} = .*\n", "", dev)
    text = base + dev.replace("[dev]\n", f"[dev]\n{line}\n")
    assert list(ENVIRONMENTS.iter_errors({"dev": tomllib.loads(line)})) != []
    with pytest.raises(EnvironmentSettingError, match=re.escape(named)) as caught:
        read(text)
    assert str(caught.value).endswith("; correct it in stacks/environments.toml")


def test_an_environment_lacks_nothing() -> None:
    with pytest.raises(EnvironmentSettingError, match="keeps_data is missing; set it"):
        read("[dev]")
    with pytest.raises(EnvironmentSettingError, match=r"base\.name is the name of the table base"):
        read("[base]\nname = 'dev'\n[dev]")
    for text in ("[dev", "x = " + "[" * 5_000, "x = " + "9" * 5_000):
        with pytest.raises(EnvironmentSettingError, match="the file is not TOML"):
            read(text)
    with pytest.raises(EnvironmentSettingError, match="dev is what is too large"):
        read("dev = 0x" + "f" * 5_000)


def test_the_settings_of_a_client_have_a_schema() -> None:
    good = {"transport": "memory:x", "participant": "desk", "mode": "exactly_once", "window": 5}
    assert list(CLIENT.iter_errors(good)) == []
    assert ClientSettings(**good).window == 5  # type: ignore[arg-type]
    for name, value in {"mode": "twice", "window": 0, "trace_share": 2, "modee": "exactly_once"}.items():
        assert list(CLIENT.iter_errors({**good, name: value})) != []


def test_a_device_starts_only_when_somebody_has_completed_it() -> None:
    with pytest.raises(DeviceSettingsError) as caught:
        load_settings(FILE, {})
    assert {each.setting for each in caught.value.problems} == {"thing", "cloud.host", "cloud.rule"}


def test_what_the_package_decides_stands_where_the_units_may_write() -> None:
    settings = tomllib.loads(FILE.read_text())
    writable = [settings["spool"], settings["cloud"]["certificate"], settings["cloud"]["key"]]
    assert {str(Path(each).parent) for each in writable} == {"/var/lib/eventplane"}
    unit = (ROOT / "parts/provisioning/eventplane-provisioning.service").read_text()
    for name in ("claim_certificate", "claim_key"):
        assert f":{PACKAGED[f'provisioning.{name}']}\n" in unit
