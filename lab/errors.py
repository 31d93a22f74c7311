"""The errors of this package: each carries data, and a message with the remedy."""

from pathlib import Path

TAIL_LINES = 20
"""How much of a log an error shows, in lines: enough for a Python traceback's end."""


class LocalError(Exception):
    """Something on this machine did not work as needed."""


class LoggedError(LocalError):
    """A failure whose cause is in a log; the end of the log is part of the message."""

    def __init__(self, what: str, log: Path) -> None:
        self.log = log
        self.tail = tail(log)
        super().__init__(f"{what}; the end of {log}:\n{self.tail or '(empty)'}")


class ProcessDiedError(LoggedError):
    """A child ended before it was ready.

    `returncode` is its exit status, or minus the signal's number.
    """

    def __init__(self, name: str, returncode: int, log: Path) -> None:
        self.name, self.returncode = name, returncode
        super().__init__(f"{name} ended with status {returncode} before it was ready", log)


class ProcessLateError(LoggedError):
    """A child runs but was not ready in time. `seconds` is how long it was given."""

    def __init__(self, name: str, seconds: float, log: Path) -> None:
        self.name, self.seconds = name, seconds
        super().__init__(f"{name} was not ready within {seconds:g} s", log)


class DeployError(LoggedError):
    """A command of the CDK failed. `step` is `bootstrap`, `synth` or `deploy`."""

    def __init__(self, step: str, returncode: int, log: Path) -> None:
        self.step, self.returncode = step, returncode
        super().__init__(f"cdk {step} ended with status {returncode}", log)


class ToolMissingError(LocalError):
    """Something that a command of the project installs is not there."""

    def __init__(self, tool: str, remedy: str = "make setup") -> None:
        self.tool = tool
        super().__init__(f"{tool} is missing: run `{remedy}`")


class BadProfileError(LocalError):
    """The device profile lacks a setting that the local run must replace."""

    def __init__(self, profile: Path, setting: str, found: int) -> None:
        self.profile, self.setting, self.found = profile, setting, found
        super().__init__(f"{profile} must have exactly one line `{setting} ...`, it has {found}")


def tail(log: Path) -> str:
    """The last lines of a file, or an empty text if there is no file."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
