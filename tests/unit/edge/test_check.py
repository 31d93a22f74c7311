from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from edge.check import awaits_provisioning, broker_warnings, expires_soon, file_problems, version_warning
from edge.command_line import main
from edge.settings import CloudSettings, HealthSettings, LocalSettings, ProvisioningSettings, Settings
from edge.system import SYSTEM
from eventplane_mqtt import Login, PinnedCertificate
from eventplane_mqtt.endpoint import Proxy, TlsFileError
from eventplane_mqtt.profile import limit_warnings
from eventplane_mqtt.tls import seconds_left
from lab.things import Authority
from parts.provisioning.renewal import Pairs
from tests.unit.edge.fakes import contract

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is mounted: a disk, whatever the tests run on."""
    file = tmp_path / "mountinfo"
    file.write_text("22 1 8:1 / / rw - ext4 /dev/root rw\n")
    monkeypatch.setattr("edge.check.MOUNTS", file)
    return file


@pytest.fixture
def cloud(tmp_path: Path) -> CloudSettings:
    authority = Authority(tmp_path / "pki")
    identity = authority.issue("home-1")
    identity.key.chmod(0o600)
    return CloudSettings(
        host="h", rule="r", ca=authority.ca, certificate=identity.certificate, key=identity.key
    )


@pytest.fixture
def provisioning(tmp_path: Path) -> ProvisioningSettings:
    claim = Authority(tmp_path / "pki").issue("claim")
    return ProvisioningSettings(template="t", claim_certificate=claim.certificate, claim_key=claim.key)


def settings(
    cloud: CloudSettings,
    provisioning: ProvisioningSettings | None = None,
    local: LocalSettings | None = None,
) -> Settings:
    return Settings(
        local=local or LocalSettings(),
        cloud=cloud,
        health=HealthSettings(),
        provisioning=provisioning,
        thing="home-1",
        contract=Path("contract.json"),
        spool=Path("spool.db"),
    )


def found(
    cloud: CloudSettings, now: datetime = NOW, provisioning: ProvisioningSettings | None = None
) -> list[tuple[str, str]]:
    """Setting and problem of each, without the files' names."""
    problems = file_problems(settings(cloud, provisioning), now)
    assert all(each.remedy for each in problems)
    folder = f"{cloud.ca.parent}{os.sep}"
    return [(each.setting, each.problem.replace(folder, "")) for each in problems]


def of_another(file: Path) -> None:
    file.write_bytes(Authority(file.parent / "others").issue("home-2").key.read_bytes())


def encrypted(file: Path) -> None:
    key = load_pem_private_key(file.read_bytes(), None)
    passphrase = BestAvailableEncryption(b"secret")
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, passphrase))


def for_all(file: Path) -> None:
    file.chmod(0o644)


CA, CERTIFICATE, KEY = "cloud.ca", "cloud.certificate", "cloud.key"
CLAIM, CLAIM_KEY = "provisioning.claim_certificate", "provisioning.claim_key"
OWN, CLAIMED = [CA, CERTIFICATE, KEY], [CLAIM, CLAIM_KEY]


@pytest.mark.parametrize(
    ("damaged", "damage", "problems"),
    [
        ([], Path.unlink, {}),
        ([KEY], for_all, {KEY: "home-1.key: others may use it"}),
        ([KEY], of_another, {KEY: "home-1.key does not belong to home-1.crt"}),
        ([KEY], encrypted, {KEY: "home-1.key has a passphrase"}),
        (OWN, Path.unlink, dict.fromkeys(OWN, "No such file or directory")),
        (OWN, lambda file: file.write_text("something else"), dict.fromkeys(OWN, "")),
        (CLAIMED, Path.unlink, dict.fromkeys(CLAIMED, "No such file or directory")),
        ([CLAIM_KEY], for_all, {CLAIM_KEY: "claim.key: others may use it"}),
        ([CLAIM_KEY], of_another, {CLAIM_KEY: "claim.key does not belong to claim.crt"}),
    ],
)
def test_all_files_that_do_not_fit_are_named_at_once(
    cloud: CloudSettings,
    provisioning: ProvisioningSettings,
    damaged: list[str],
    damage: Callable[[Path], object],
    problems: dict[str, str],
) -> None:
    tables = {"cloud": cloud, "provisioning": provisioning}
    for name in damaged:
        table, _, setting = name.partition(".")
        damage(getattr(tables[table], setting))
    # With provisioning a missing certificate is only awaited.
    named = found(cloud, provisioning=None if damaged == OWN else provisioning)
    assert [setting for setting, _ in named] == list(problems)
    assert all(problems[setting] in problem for setting, problem in named)


def test_an_expired_certificate_and_one_of_tomorrow(cloud: CloudSettings) -> None:
    ((setting, problem),) = found(cloud, NOW + timedelta(days=61))
    assert setting == "cloud.certificate"
    assert problem.startswith("home-1.crt expired on ")
    ((setting, problem),) = found(cloud, NOW - timedelta(days=2))
    assert problem.startswith("home-1.crt is not valid before ")


def test_it_warns_before_a_certificate_expires(cloud: CloudSettings) -> None:
    warning = expires_soon(cloud, NOW + timedelta(days=40.5))
    assert warning is not None
    assert "expires in 19 days" in warning
    assert expires_soon(cloud, NOW) is None


def test_all_are_reported(cloud: CloudSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, compiled = tmp_path / "edge.toml", tmp_path / "contract.json"
    file.write_text(
        f'thing = "home-1"\ncontract = "contract.json"\nspool = "state/spool.db"\n[cloud]\nhost = "h"\n'
        f'rule = "r"\nca = "{cloud.ca}"\ncertificate = "{cloud.certificate}"\nkey = "{cloud.key}"\n'
    )
    compiled.write_bytes(contract().canonical)
    assert main(["check", "--settings", str(file)]) == os.EX_OK
    assert f"contract {contract().version}: the forwarder can start" in capsys.readouterr().out
    compiled.write_text("{}")
    cloud.key.chmod(0o644)
    assert main(["check", "--settings", str(file)]) == os.EX_CONFIG
    said = capsys.readouterr().err
    assert "setting 'contract'" in said
    assert f"chmod 600 {cloud.key}" in said
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "before",
    [
        b"\xef\xbb\xbf",
        "# Gerät 12, Küche\n".encode(),
        "# Gerät 12\n".encode("latin-1"),
        b"\xff\xfe\x00 any bytes\r\n",
        b"# the -----BEGIN CERTIFICATE----- is below\n",
        b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\t\n", b" \0\x0c \r\n"])
def test_a_pem_file_is_read_as_openssl_reads_it(cloud: CloudSettings, before: bytes, line_end: bytes) -> None:
    text = cloud.certificate.read_bytes()
    cloud.certificate.write_bytes((before + text + text).replace(b"\n", line_end))
    assert found(cloud) == []
    assert seconds_left(cloud.certificate, SYSTEM.now())
    assert expires_soon(cloud, NOW) is None
    PinnedCertificate(cloud.certificate).context()
    assert Pairs(cloud.certificate).current()


def test_openssls_notes_on_trust_are_left_out(cloud: CloudSettings, tmp_path: Path) -> None:
    noted = tmp_path / "noted.pem"
    subprocess.run(
        ["openssl", "x509", "-in", cloud.certificate, "-trustout", "-setalias", "home", "-out", noted],
        check=True,
    )
    assert len(PinnedCertificate(noted).context().get_ca_certs()) <= 1
    assert seconds_left(noted, SYSTEM.now()) == pytest.approx(
        seconds_left(cloud.certificate, SYSTEM.now()), abs=9
    )


def test_a_damaged_pin_is_named(cloud: CloudSettings) -> None:
    text = cloud.certificate.read_bytes()
    middle = len(text) // 2
    for damage in (b"\xc3\xa9", b"\0" * 40, b"-----", b"\n" * 3, b"\x85"):
        cloud.certificate.write_bytes(text[:middle] + damage + text[middle + 40 :])
        with pytest.raises(TlsFileError):
            PinnedCertificate(cloud.certificate).context()


@pytest.mark.parametrize(
    ("folder", "more", "is_named"),
    [
        ("/var/lib/event plane", "", False),
        ("/var/lib/event plane", "23 22 0:9 / /var rw shared:1 - tmpfs tmpfs rw", True),
        ("/var/lib/event plane", "23 22 0:9 / /var/lib/event\\040plane rw - ramfs none rw", True),
        ("/var/lib/event plane", "23 22 0:9 / /var/li rw - tmpfs tmpfs rw", False),
        (
            "/var/lib/event plane",
            "23 22 0:9 / /var rw - tmpfs t rw\n24 23 8:2 / /var/lib rw - ext4 /dev/b rw",
            False,
        ),
        (
            "/var/lib/event plane",
            "24 22 8:2 / /var rw - ext4 /dev/b rw\n23 24 0:9 / /var rw - tmpfs t rw",
            True,
        ),
    ],
)
def test_a_spool_in_memory_is_refused(
    cloud: CloudSettings, mounts: Path, folder: str, more: str, is_named: bool
) -> None:
    mounts.write_text(mounts.read_text() + more)
    problems = file_problems(replace(settings(cloud), spool=Path(folder, "spool.db")), NOW)
    assert [each.setting for each in problems] == ["spool"] * is_named


def test_a_link_into_memory_is_refused(cloud: CloudSettings, mounts: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "memory")
    mounts.write_text(f"{mounts.read_text()}23 22 0:9 / {tmp_path}/memory rw - tmpfs t rw")
    (problem,) = file_problems(replace(settings(cloud), spool=tmp_path / "link" / "spool.db"), NOW)
    assert "spool.db is on" in str(problem)


@pytest.mark.parametrize(("mode", "is_named"), [(0o600, True), (0o604, False), (0o640, True), (0o644, False)])
def test_a_file_that_the_broker_cannot_read_is_named(tmp_path: Path, mode: int, is_named: bool) -> None:
    profile, access = tmp_path / "mosquitto.conf", tmp_path / "eventplane.acl"
    access.write_text("")
    access.chmod(mode)
    profile.write_text(f"listener 1883\nacl_file {access}\n")

    def is_named_for(user: str) -> bool:
        return any(f"{profile}:2: {access} cannot" in each for each in limit_warnings(profile, 1, 1, user))

    assert (is_named_for("nobody"), is_named_for("no such user")) == (is_named, False)
    access.unlink()
    assert is_named_for("nobody")


def test_how_long_a_certificate_is_valid_is_read_from_its_file(cloud: CloudSettings, tmp_path: Path) -> None:
    left_s = seconds_left(cloud.certificate, SYSTEM.now())
    assert left_s is not None
    assert 59 * 86_400 < left_s <= 60 * 86_400
    cloud.certificate.write_text("half of a certificate")
    assert seconds_left(cloud.certificate, SYSTEM.now()) is None
    Authority(tmp_path / "pki").issue("home-1")
    assert seconds_left(cloud.certificate, SYSTEM.now()) is not None
    cloud.certificate.unlink()
    assert seconds_left(cloud.certificate, SYSTEM.now()) is None


def awaiting(cloud: CloudSettings) -> CloudSettings:
    """A device on its first day: one file for certificate and key, and it is not there yet."""
    identity = cloud.certificate.with_name("identity.pem")
    return replace(cloud, certificate=identity, key=identity)


def test_a_coming_certificate_is_fine(cloud: CloudSettings, provisioning: ProvisioningSettings) -> None:
    first_day = awaiting(cloud)
    assert awaits_provisioning(settings(first_day, provisioning))
    assert found(first_day, provisioning=provisioning) == []
    # Whom to trust is asked on the first day too.
    untrusting = replace(first_day, ca=cloud.ca.with_name("no"))
    assert [setting for setting, _ in found(untrusting, provisioning=provisioning)] == [CA]
    # Without the table nobody brings it.
    assert not awaits_provisioning(settings(first_day))
    assert [setting for setting, _ in found(first_day)] == ["cloud.certificate", "cloud.key"]
    # One that is there is looked at, though provisioning could bring another.
    first_day.certificate.write_text("half of a certificate")
    assert not awaits_provisioning(settings(first_day, provisioning))
    assert "cloud.certificate" in [setting for setting, _ in found(first_day, provisioning=provisioning)]


def test_a_certificate_in_an_unreadable_place_is_not_awaited(
    cloud: CloudSettings, provisioning: ProvisioningSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    hidden = tmp_path / "file" / "identity.pem"
    assert not awaits_provisioning(settings(replace(cloud, certificate=hidden, key=hidden), provisioning))


def test_a_claim_that_is_roots_alone_is_for_systemd_to_hand_over(
    cloud: CloudSettings, provisioning: ProvisioningSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Path.open

    def open_if_allowed(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == provisioning.claim_key:
            raise PermissionError(13, "Permission denied")
        return there(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_if_allowed)
    assert found(cloud, provisioning=provisioning) == []


def test_a_device_that_makes_its_key_needs_openssl(
    cloud: CloudSettings, provisioning: ProvisioningSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert [setting for setting, _ in found(cloud, provisioning=provisioning)] == ["provisioning.keys"]
    assert found(cloud, provisioning=replace(provisioning, keys="cloud")) == []


@pytest.mark.parametrize(("mode", "problem"), [(0o600, None), (0o604, "(mode 604)"), (None, "No such file")])
def test_a_password(cloud: CloudSettings, tmp_path: Path, mode: int | None, problem: str | None) -> None:
    file = tmp_path / "password"
    if mode is not None:
        file.write_text("secret")
        file.chmod(mode)
    local = LocalSettings(username="me", password_file=file)
    assert local.login == Login("me", file)
    cloud = replace(cloud, proxy_host="proxy", proxy_username="me", proxy_password_file=file)
    assert cloud.proxy == Proxy("proxy", 3128, local.login)
    problems = file_problems(settings(cloud, local=local), NOW)
    named = ["local.password_file", "cloud.proxy_password_file"]
    assert [each.setting for each in problems] == (named if problem else [])
    assert all(problem in each.problem and "secret" not in str(each) for each in problems if problem)


def test_a_profile_without_a_usable_listener_is_reported(cloud: CloudSettings, tmp_path: Path) -> None:
    profile = tmp_path / "mosquitto.conf"
    asked = settings(cloud, local=LocalSettings(profile=profile))
    assert [each.setting for each in file_problems(asked, NOW)] == ["local.profile"]
    profile.write_text("listener 9001\nprotocol websockets\n")
    (problem,) = file_problems(asked, NOW)
    assert "uses websockets" in problem.problem
    assert problem.remedy
    profile.write_text("listener 1884\n")
    assert file_problems(asked, NOW) == []


@pytest.mark.parametrize(
    ("text", "problem", "warning"),
    [
        (None, "", ""),
        ("", "", "drop"),
        ("listener 1884\nlistener 1883 ::\n", "", "no listener is at 127.0.0.1:1883"),
        ("listener 8883\nlistener 1883 0.0.0.0\n", "", "drop"),
        ("listener 1883 0.0.0.0\nlistener 1883 127.0.0.1\n", "mosquitto.conf:2: ", "mosquitto.conf:1"),
        ("listener 1883 mqtt://home\n", "mosquitto.conf:1: 'mqtt://home' is no host", "is no host"),
    ],
)
def test_a_broker_that_cannot_start_or_listens_elsewhere_is_reported(
    cloud: CloudSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    problem: str,
    warning: str,
) -> None:
    profile = tmp_path / "mosquitto.conf"
    if text is not None:
        profile.write_text(text)
    monkeypatch.setattr("edge.check.DEBIAN_PROFILE", profile)
    found = file_problems(settings(cloud), NOW)
    assert [problem in str(each) for each in found] == [True] * bool(problem)
    warned = " ".join(broker_warnings(LocalSettings()))
    assert warning in warned if warning else not warned
    assert file_problems(settings(cloud, local=LocalSettings(host="elsewhere.home")), NOW) == []
    assert broker_warnings(LocalSettings(host="elsewhere.home")) == []


@pytest.mark.parametrize(
    ("answer", "warning"),
    [
        (b"\x20\x02\x00\x01", "unsupported protocol version; set local.protocol"),
        (b"\x20\x03\x00\x84\x00", "unsupported protocol version; set local.protocol"),
        (b"", "hung up instead of CONNACK"),
        (b"\x20\x03\x00\x00\x00", None),
        (b"\x20\x03\x00\x87\x00", None),
        (b"\x20\x02\x00\x05", None),
    ],
)
def test_a_broker_without_mqtt_5_is_found(answer: bytes, warning: str | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        local = LocalSettings(port=server.getsockname()[1])

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(1_000))
                connection.sendall(answer)

        asked: list[bytes] = []
        thread = threading.Thread(target=serve)
        thread.start()
        found = version_warning(local)
        thread.join()
        assert warning is None if found is None else warning and warning in found
        assert found is None or found.startswith(f"127.0.0.1:{local.port}: ")
        # A session of its own, which ends with the connection, and no login.
        assert b"\x04MQTT\x05\x02" in asked[0]
        assert asked[0].endswith(b"eventplane-forwarder-check")
    assert version_warning(LocalSettings(port=local.port)) is None
    assert version_warning(LocalSettings(port=local.port, protocol="3.1.1")) is None
