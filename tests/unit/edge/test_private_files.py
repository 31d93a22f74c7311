"""Files with secrets: who else may read them, and what a password file may hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventplane_mqtt import Login
from eventplane_mqtt.endpoint import MAX_PASSWORD_BYTES, PasswordFileError, is_private


def found(mode: int, owner: int) -> os.stat_result:
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
def test_nobody_but_the_owner_and_a_group_that_root_chose(mode: int, owner: int, private: bool) -> None:
    assert is_private(found(mode, owner)) is private


def login(folder: Path, content: bytes, mode: int = 0o600) -> Login:
    file = folder / "password"
    file.write_bytes(content)
    file.chmod(mode)
    return Login("me", file)


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"secret\r\n"])
def test_a_password_is_a_line(tmp_path: Path, content: bytes) -> None:
    assert login(tmp_path, content).password() == b"secret"


def test_a_password_may_be_any_bytes_up_to_a_limit(tmp_path: Path) -> None:
    longest = b"\xff" * MAX_PASSWORD_BYTES
    assert login(tmp_path, longest + b"\n").password() == longest


@pytest.mark.parametrize("content", [b"", b"\n", b"secret\nsecond\n", b"secret" * MAX_PASSWORD_BYTES])
def test_what_is_no_password_is_refused_without_being_told(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PasswordFileError, match="one line") as error:
        login(tmp_path, content).password()
    assert "secret" not in str(error.value)


def test_one_that_others_may_read_is_refused(tmp_path: Path) -> None:
    it = login(tmp_path, b"secret", 0o604)
    with pytest.raises(PasswordFileError) as error:
        it.password()
    assert (error.value.path, error.value.remedy) == (it.password_file, f"chmod 600 {it.password_file}")


def test_one_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(PasswordFileError, match="No such file"):
        Login("me", tmp_path / "absent").password()
