from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from edge.errors import DeviceSettingsError, SettingProblem
from edge.settings import OPTIONAL, TABLES, ProvisioningSettings, Settings, load_settings
from eventplane.fields import Range
from eventplane.limits import MAX_EVENT_BYTES, MAX_PAYLOAD_BYTES
from eventplane_mqtt import Login

COMPLETE: dict[str, Any] = {
    "thing": "home-1",
    "contract": "contract.json",
    "spool": "/var/lib/eventplane/spool.db",
    "cloud.host": "iot.example.com",
    "cloud.ca": "ca.pem",
    "cloud.certificate": "cert.pem",
    "cloud.key": "key.pem",
    "cloud.rule": "ingest",
}

PROVISIONED: dict[str, Any] = {
    **COMPLETE,
    "cloud.key": COMPLETE["cloud.certificate"],
    "provisioning.template": "fleet",
    "provisioning.claim_certificate": "claim.crt",
    "provisioning.claim_key": "claim.key",
}

OUT_OF_RANGE = [
    ("thing", " "),
    ("thing", 7),
    ("thing", "home/#"),
    ("thing", "x" * 129),
    ("cloud.rule", "in/gest"),
    ("cloud.rule", "x" * 122),
    ("log_level", "loud"),
    ("local.client_id", "a\\u0000b"),
    ("cloud.topic", "devices\\u0000"),
    *((name, [1]) for name in ("thing", "cloud.tls", "cloud.port", "cloud.mode", "cloud.ca")),
    ("local.port", 1883.0),
    ("local.port", True),
    ("local.host", ""),
    ("local.username", ""),
    ("local.username", "a\\nb"),
    ("local.password_file", 7),
    ("cloud.port", "many"),
    ("cloud.reconnect_max_s", float("nan")),
    ("cloud.payload_bytes", MAX_EVENT_BYTES),  # an event has to fit into it with its envelope
    ("cloud.payload_bytes", MAX_PAYLOAD_BYTES + 1),
    ("cloud.tls", "yes"),
    ("cloud.tls", 1),
    ("cloud.protocol", "4"),
    ("cloud.topic", "devices/#"),
    ("cloud.topic", "devices/{name}"),
    ("cloud.topic", "x" * 257),
    ("cloud.inbox_topic", "devices/+/inbox"),
    ("cloud.inbox_topic", "devices/{rule}/inbox"),
    ("cloud.mode", "bundle"),
    ("health.host", ""),
    *(
        (f"{table}.host" if table != "proxy" else "cloud.proxy_host", each)
        for table in ("local", "cloud", "health", "proxy")
        for each in (
            "mqtts://iot.example.com",
            "iot.example.com:8883",
            "[::1]",
            "::1]:8883",
            "a b",
            "u@home",
            "1:2:3",
            "::1%",
            "a..b",
            "a" * 64,
            "a\\u0000b",
            "a\\u007fb",
        )
    ),
    ("cloud.host", "/run/mqtt.sock"),
    ("cloud.proxy_host", "/run/proxy.sock"),
    ("cloud.proxy_username", "me:too"),
    ("provisioning.template", "a b"),
    ("provisioning.keys", "both"),
    ("spool_capacity_bytes", 4 * 1024**2 - 1),
]


def load(directory: Path, values: dict[str, Any], environment: dict[str, str] | None = None) -> Settings:
    """Settings of a file with `values`, by dotted name."""
    lines: dict[str, list[str]] = {"": [], "local": [], "cloud": [], "health": []}
    for table in OPTIONAL:
        if any(name.startswith(f"{table}.") for name in values):
            lines[table] = []
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        lines[table].append(f"{key} = {text}")
    file = directory / "edge.toml"
    file.write_text("\n".join([*lines.pop(""), *(f"[{t}]\n" + "\n".join(each) for t, each in lines.items())]))
    return load_settings(file, environment or {})


def problems(
    directory: Path, values: dict[str, Any], environment: dict[str, str] | None = None
) -> list[SettingProblem]:
    """What is wrong with `values`, which must be something."""
    with pytest.raises(DeviceSettingsError) as caught:
        load(directory, values, environment)
    return list(caught.value.problems)


def test_the_required_ones_are_enough(tmp_path: Path) -> None:
    settings = load(tmp_path, COMPLETE)
    assert settings.thing == "home-1"
    assert settings.contract == tmp_path / "contract.json"
    assert settings.spool == Path("/var/lib/eventplane/spool.db")
    assert (settings.local.host, settings.local.port) == ("127.0.0.1", 1883)
    assert settings.cloud.max_unacknowledged == 100
    assert settings.cloud.payload_bytes == 131_072


@pytest.mark.parametrize("name", COMPLETE)
def test_a_missing_one_is_named_with_its_variable(tmp_path: Path, name: str) -> None:
    (it,) = problems(tmp_path, {key: value for key, value in COMPLETE.items() if key != name})
    assert (it.setting, it.problem) == (name, "it is missing")
    assert f"EVENTPLANE_{name.replace('.', '_').upper()}" in it.remedy


@pytest.mark.source("C5")
@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_one_out_of_range_is_named_with_its_range(tmp_path: Path, name: str, value: object) -> None:
    (it,) = problems(tmp_path, {**PROVISIONED, name: value})
    assert it.setting == name
    assert it.remedy.startswith("give ")


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    values = {**COMPLETE, "thing": "", "cloud.port": 0, "cloud.prot": 8883, "health.port": "x"}
    del values["cloud.host"], values["cloud.ca"]
    environment = {"EVENTPLANE_LOCAL_PORT": "0"}
    found = {each.setting for each in problems(tmp_path, values, environment)}
    assert found == {
        "thing",
        "cloud.port",
        "cloud.prot",
        "cloud.host",
        "cloud.ca",
        "health.port",
        "local.port",
    }


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environment = {
        "EVENTPLANE_THING": "home-2",
        "EVENTPLANE_CLOUD_PORT": "443",
        "EVENTPLANE_LOCAL_RECEIPT_TIMEOUT_S": "2.5",
        "EVENTPLANE_SPOOL": "elsewhere.db",
        "EVENTPLANE_SHARED": "not ours",
    }
    settings = load(tmp_path, COMPLETE, environment)
    assert (settings.thing, settings.cloud.port, settings.local.receipt_timeout_s) == ("home-2", 443, 2.5)
    assert settings.spool == tmp_path / "elsewhere.db"


def test_a_broker_on_this_device_needs_no_tls_and_a_topic_of_ones_own_no_rule(tmp_path: Path) -> None:
    values = {name: COMPLETE[name] for name in ("thing", "contract", "spool")}
    plain = {"cloud.host": "127.0.0.1", "cloud.tls": False, "cloud.topic": "devices/{thing}/events"}
    settings = load(tmp_path, {**values, **plain})
    assert (settings.cloud.tls, settings.cloud.ca, settings.cloud.rule) == (False, None, None)
    assert settings.cloud.topic == "devices/{thing}/events"


def test_a_device_without_a_downlink_subscribes_to_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, COMPLETE).cloud.subscribes
    assert not load(tmp_path, {**COMPLETE, "cloud.inbox_topic": "none"}).cloud.subscribes


PEM = "-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----\n"
ELSEWHERE = ("iot.example.com", "127.0.0.1.example.com", "10.0.0.1")


@pytest.mark.source("C5")
@pytest.mark.parametrize(
    ("values", "environment", "setting", "problem"),
    [
        ({}, {"LOCAL_PORT": "70000"}, "local.port", "; give TCP port from 1 to 65535"),
        ({}, {"CLOUD_KEY": PEM}, "cloud.key", "; give a path; needed for TLS"),
        ({"cloud.proxy_host": "http://me:MIGHAgEA@proxy:3128"}, {}, "cloud.proxy_host", "; give a host name"),
        (
            {"cloud.proxy_host": "proxy", "cloud.host": "127.0.0.1", "cloud.tls": False},
            {},
            "cloud.tls",
            "needs it",
        ),
        ({"tihng": "x"}, {}, "tihng", "it is unknown; remove it, or did you mean thing?"),
        ({"cloud.keep_alive": 1}, {}, "cloud.keep_alive", "did you mean cloud.keepalive_s?"),
        ({}, {"CLOUD_HOTS": "x"}, "EVENTPLANE_CLOUD_HOTS", "did you mean EVENTPLANE_CLOUD_HOST?"),
        ({"health.zzz": 1}, {}, "health.zzz", "or use one of: host, normal_age_s, port, urgent_age_s"),
        *(
            ({"cloud.host": host, "cloud.tls": False}, {}, "cloud.tls", f"{host} is not on this device")
            for host in ELSEWHERE
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy_and_without_secrets(
    tmp_path: Path, values: dict[str, Any], environment: dict[str, str], setting: str, problem: str
) -> None:
    variables = {f"EVENTPLANE_{name}": value for name, value in environment.items()}
    (it,) = problems(tmp_path, {**COMPLETE, **values}, variables)
    assert it.setting == setting
    assert problem in f"{it.problem}; {it.remedy}"
    assert "MIGHAgEA" not in str(it)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"edge\.toml: No such file"),
        (b"= nonsense", r"edge\.toml: not TOML"),
        (b"\xff", r"edge\.toml: not TOML"),
        (b"x = " + b"[" * 5_000, r"edge\.toml: not TOML"),
        (b"x = " + b"{a=" * 5_000, r"edge\.toml: not TOML"),
        (b"cloud = 0x" + b"f" * 5_000, r"write it as \[cloud\]"),
        (b'\xef\xbb\xbfthing = "a#"', r"'a#' does not fit"),
        (b'cloud = "nine"', r"write it as \[cloud\]"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "edge.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DeviceSettingsError, match=problem):
        load_settings(file, {})


LOGIN = {"local.username": "me", "local.password_file": "p"}
PROXY = {"cloud.proxy_host": "proxy", "cloud.proxy_username": "me", "cloud.proxy_password_file": "p"}


@pytest.mark.parametrize(("given", "missing"), [(LOGIN, 0), (LOGIN, 1), (PROXY, 0), (PROXY, 1), (PROXY, 2)])
def test_a_name_and_its_password_go_together(tmp_path: Path, given: dict[str, str], missing: int) -> None:
    name = list(given)[missing]
    (it,) = problems(tmp_path, {**COMPLETE, **{each: value for each, value in given.items() if each != name}})
    assert (it.setting, it.problem) == (name, "it is missing")
    settings, login = load(tmp_path, {**COMPLETE, **given}), Login("me", tmp_path / "p")
    assert login in (settings.local.login, settings.cloud.proxy and settings.cloud.proxy.login)
    assert (without := load(tmp_path, COMPLETE)).local.login is without.cloud.proxy is None


def bounds() -> list[tuple[str, float]]:
    """Each setting that has a range, with a value just outside on either side."""
    found = []
    for table, kind in {"": Settings, **TABLES}.items():
        for each in fields(kind):
            limits = each.metadata.get("accepts")
            if isinstance(limits, Range):
                name = f"{table}.{each.name}" if table else each.name
                step = 1 if each.type == "int" else 0.001
                found += [(name, limits.low - step), (name, limits.high + step)]
    return found


@pytest.mark.source("C5")
@pytest.mark.parametrize(("name", "value"), bounds())
def test_every_range_is_kept_at_both_ends(tmp_path: Path, name: str, value: float) -> None:
    given = int(value) if value == int(value) else value
    (it,) = problems(tmp_path, {**PROVISIONED, name: given})
    assert (it.setting, it.remedy[:5]) == (name, "give ")


def test_a_device_that_is_provisioned_has_a_name_with_room_for_the_prefix(tmp_path: Path) -> None:
    (it,) = problems(tmp_path, {**PROVISIONED, "thing": "x" * 121})
    assert (it.setting, it.problem) == ("thing", "it has more than 120 characters")
    assert load(tmp_path, {**PROVISIONED, "thing": "x" * 120}).thing == "x" * 120
    assert load(tmp_path, {**COMPLETE, "thing": "x" * 128}).thing == "x" * 128


def test_provisioning_is_a_table_of_its_own_with_one_file_for_certificate_and_key(tmp_path: Path) -> None:
    environment = {"EVENTPLANE_PROVISIONING_CLAIM_KEY": "/run/credentials/claim.key"}
    assert load(tmp_path, COMPLETE).provisioning is None
    assert load(tmp_path, PROVISIONED, environment).provisioning == ProvisioningSettings(
        template="fleet",
        claim_certificate=tmp_path / "claim.crt",
        claim_key=Path("/run/credentials/claim.key"),
    )
    (it,) = problems(tmp_path, {**PROVISIONED, "cloud.key": "other.pem"})
    assert (it.setting, "name one file for both" in it.remedy) == ("cloud.key", True)
    del (missing := dict(PROVISIONED))["provisioning.template"]
    assert [each.setting for each in problems(tmp_path, missing)] == ["provisioning.template"]


def test_no_password_leaves_the_device(tmp_path: Path) -> None:
    (it,) = problems(tmp_path, {**COMPLETE, **LOGIN, "local.host": "10.0.0.1"})
    assert it.setting == "local.host"
    assert it.problem.startswith("10.0.0.1 is not on this device")
    for here in ("::1", "127.0.0.9", "/run/mosquitto/mqtt.sock"):
        assert load(tmp_path, {**COMPLETE, **LOGIN, "local.host": here}).local.host == here


def test_an_announcement_is_of_what_a_profile_says(tmp_path: Path) -> None:
    announced = {**COMPLETE, "announcement.interfaces": "eth0,wlan0.7"}
    (it,) = problems(tmp_path, announced)
    assert (it.setting, it.problem) == ("local.profile", "it is missing")
    settings = load(tmp_path, {**announced, "local.profile": "mosquitto.conf"})
    assert settings.announcement.interfaces == "eth0,wlan0.7"
    assert settings.local.profile == tmp_path / "mosquitto.conf"
    assert load(tmp_path, COMPLETE).announcement is None
    (it,) = problems(tmp_path, {**announced, "local.profile": "p", "announcement.interfaces": "eth0, wlan0"})
    assert it.setting == "announcement.interfaces"
