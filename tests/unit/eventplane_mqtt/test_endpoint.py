"""The files that prove who we are: passwords, keys and certificates."""

import os
import ssl
from pathlib import Path

import pytest

from eventplane_mqtt import Login
from eventplane_mqtt.endpoint import MAX_PASSWORD_BYTES, PasswordFileError, TlsFileError, is_private
from eventplane_mqtt.mailbox import Disconnected
from lab.certificates import Authority
from tests.unit.eventplane_mqtt.probe import Probe, files


def stat_of(mode: int, owner: int) -> os.stat_result:
    """What stat says of a regular file."""
    return os.stat_result((0o100000 | mode, 1, 1, 1, owner, 1, 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("mode", "owner", "private"),
    [
        (0o600, 1000, True),
        (0o400, 1000, True),
        (0o600, 0, True),
        # What systemd makes of LoadCredential= for a service with a user of its own.
        (0o440, 0, True),
        (0o640, 0, True),
        (0o440, 1000, False),
        (0o640, 1000, False),
        (0o660, 0, False),
        (0o650, 0, False),
        (0o644, 0, False),
        (0o604, 0, False),
        (0o601, 1000, False),
    ],
)
def test_a_private_file_is_its_owners(mode: int, owner: int, private: bool) -> None:
    assert is_private(stat_of(mode, owner)) is private


def login(folder: Path, content: bytes, mode: int = 0o600) -> Login:
    file = folder / "password"
    file.write_bytes(content)
    file.chmod(mode)
    return Login("me", file)


LONGEST = b"\xff" * MAX_PASSWORD_BYTES


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"secret", b"secret"),
        (b"secret\n", b"secret"),
        (b"secret\r\n", b"secret"),
        (LONGEST + b"\n", LONGEST),
    ],
)
def test_a_password_is_a_bounded_line(tmp_path: Path, content: bytes, password: bytes) -> None:
    assert login(tmp_path, content).password() == password


@pytest.mark.parametrize("content", [b"", b"\n", b"secret\nsecond\n", b"secret" * MAX_PASSWORD_BYTES])
def test_a_malformed_password_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PasswordFileError, match="one line") as error:
        login(tmp_path, content).password()
    assert "secret" not in str(error.value)


def test_a_password_file_that_others_may_read_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    it = login(tmp_path, b"secret", 0o604)
    with pytest.raises(PasswordFileError) as error:
        it.password()
    assert (error.value.path, error.value.remedy) == (it.password_file, f"chmod 600 {it.password_file}")
    with pytest.raises(PasswordFileError, match="No such file"):
        Login("me", tmp_path / "absent").password()


@pytest.mark.parametrize("mode", [0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(authority: Authority, mode: int) -> None:
    identity = authority.issue("c")
    identity.key.chmod(mode)
    with pytest.raises(TlsFileError) as error:
        files(authority, identity).context()
    assert (error.value.path, error.value.remedy) == (identity.key, f"chmod 600 {identity.key}")
    probe = Probe(1, tls=files(authority, identity))
    assert f"chmod 600 {identity.key}" in probe.next(Disconnected).reason


def test_each_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    good = files(authority, authority.issue("c"))
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.touch(0o600)
    garbage.write_text("-----BEGIN GARBAGE-----\n")
    other = authority.issue("other").key
    cases: list[tuple[dict[str, Path], Path]] = [
        *(({name: bad}, bad) for name in ("ca", "certificate", "key") for bad in (missing, garbage)),
        ({"key": other}, other),
    ]
    for change, named in cases:
        with pytest.raises(TlsFileError) as error:
            good._replace(**change).context()
        assert str(named) in str(error.value)
        assert error.value.remedy


def test_only_the_given_authority_is_trusted(authority: Authority) -> None:
    context = files(authority, authority.issue("c")).context()
    assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
