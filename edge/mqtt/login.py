"""Who we are to a broker that asks for a name and a password."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from edge.mqtt.errors import PasswordFileError
from edge.private_file import is_private

MAX_PASSWORD_BYTES = 1024
"""More is not a password but the wrong file."""


@dataclass(frozen=True, slots=True)
class Login:
    """A `username`, and the file whose one line is the password; the password itself is kept nowhere."""

    username: str
    password_file: Path

    def password(self) -> bytes:
        """Read for each connection, so that a new one counts. Raises `PasswordFileError`."""
        file = self.password_file
        try:
            with file.open("rb") as opened:
                line = opened.read(MAX_PASSWORD_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")
            found = file.stat()
        except OSError as error:
            problem = error.strerror or str(error)
            raise PasswordFileError(file, problem, "name a file with the password") from error
        if not is_private(found):
            mode = stat.S_IMODE(found.st_mode)
            problem = f"others than its owner have access to a password (mode {mode:o})"
            raise PasswordFileError(file, problem, f"chmod 600 {file}")
        if not line or len(line) > MAX_PASSWORD_BYTES or b"\n" in line:
            problem = f"it is not one line of 1 to {MAX_PASSWORD_BYTES} bytes"
            raise PasswordFileError(file, problem, "write the password into it, and nothing else")
        return line
