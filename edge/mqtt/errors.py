"""What can be wrong between us and a broker."""

from __future__ import annotations

from pathlib import Path

from edge.errors import EdgeError


class ProtocolError(EdgeError):
    """The broker sent what MQTT forbids: `packet` names the packet, `problem` says what is wrong with it.

    The connection ends; the next one starts afresh.
    """

    def __init__(self, packet: str, problem: str) -> None:
        super().__init__(f"{packet}: {problem}")
        self.packet = packet
        self.problem = problem


class UnsendableError(EdgeError):
    """A caller's `value` has no place in a packet: `problem` says why. A bug of the caller."""

    def __init__(self, value: str, problem: str) -> None:
        super().__init__(f"{value!r} cannot be sent: {problem}")
        self.value = value
        self.problem = problem


class _FileError(EdgeError):
    """The file at `path` cannot be used: `problem` is what is wrong, `remedy` what to do."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path} cannot be used: {problem}; {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class TlsFileError(_FileError):
    """A certificate or key cannot be used."""


class PasswordFileError(_FileError):
    """A password cannot be read, or others could read it as well."""
