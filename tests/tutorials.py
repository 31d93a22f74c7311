"""Follow a tutorial as a reader does: write its files, type its commands, compare what they print.

A page says what to do by its fenced blocks:

- A `console` block has commands, each after `$ `, and below it what it prints, in which `...` stands for any
  text. With `title="Terminal 2"` they are typed in that terminal, which keeps its folder and its variables.
  In a block with `title="Terminal 2 stays"` the last command goes on while the page does. A later block of
  that terminal without a command shows what is printed there next.
- Other blocks with `title="FILE"` are files, beneath the folder where the tutorial begins.
"""

import os
import re
import select
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tests.eventually import eventually

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "tutorials"

_BLOCK: Final = re.compile(r"^```([a-z]+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELL_BLOCK: Final = re.compile(r"^ *```(sh|console)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_STAYS: Final = " stays"
_FIRST: Final = "Terminal 1"
_END_S: Final = 60.0


@dataclass(slots=True)
class Step:
    """A command of a terminal with the lines that the page shows; without one, what is printed there next."""

    terminal: str
    command: str = ""
    shown: list[str] = field(default_factory=list)
    stays: bool = False
    """The command goes on while the page does."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader writes."""

    path: str
    text: str


def steps(page: Path) -> list[Step | File]:
    """Return what a reader of `page` does, in order."""
    found: list[Step | File] = []
    for language, title, text in _BLOCK.findall(page.read_text()):
        if language == "console":
            found += _typed(title.removesuffix(_STAYS) or _FIRST, text, stays=title.endswith(_STAYS))
        elif title:
            found.append(File(title, text))
    return found


def shell_lines(page: Path) -> list[str]:
    """Return the commands of all shell blocks of `page`, with those of `sh`, whose output is not shown."""
    found = []
    for language, text in _SHELL_BLOCK.findall(page.read_text()):
        lines = textwrap.dedent(text)
        if language == "sh":
            lines = re.sub(r"^(?=[^\s#])", "$ ", lines, flags=re.MULTILINE)
        found += [each.command for each in _typed(_FIRST, lines, stays=False) if each.command]
    return found


def _typed(terminal: str, text: str, *, stays: bool) -> Iterator[Step]:
    step: Step | None = None
    continues = False
    for line in text.splitlines():
        if continues and step:
            step.command += f"\n{line}"
        elif line.startswith("$ "):
            if step:
                yield step
            step = Step(terminal, line[2:])
        else:
            step = step or Step(terminal)
            step.shown.append(line)
            continue
        continues = line.endswith("\\")
    if step:
        step.stays = stays
        yield step


def shows(output: str, lines: list[str]) -> bool:
    """Whether `output` is `lines`, in which `...` stands for any text."""
    return re.fullmatch(rf"{_pattern(lines)}\s*", output, re.DOTALL) is not None


def _pattern(lines: list[str]) -> str:
    parts = re.split(r"\.\.\.\n|\.\.\.", "\n".join(lines))
    return r".*?".join(re.escape(part) for part in parts)


class Shell:
    """One bash, whose commands are typed one after the other; what they print is in files of `folder`."""

    def __init__(self, folder: Path, cwd: Path, environment: Mapping[str, str], prelude: str) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._count = 0
        self._shown = 0
        reads, writes = os.pipe()
        self._statuses: IO[str] = os.fdopen(reads)
        # A session of its own, so that a Ctrl-C of this terminal is for what runs in it.
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-uo", "pipefail"],
            cwd=cwd, env={**environment, "STATUS_FD": str(writes)}, stdin=subprocess.PIPE,
            text=True, pass_fds=[writes], start_new_session=True,
        )  # fmt: skip
        os.close(writes)
        self._type(prelude)

    def run(self, command: str, seconds: float) -> tuple[int, str]:
        """Return the exit status of `command` and what it printed to either output."""
        self.start(command)
        if not select.select([self._statuses], [], [], seconds)[0]:
            raise AssertionError(f"after {seconds:g} s not done: {command}\n{self.output}")
        return int(self._statuses.readline() or -1), self.output

    def start(self, command: str) -> None:
        """Begin `command`, which is not waited for."""
        self._count += 1
        self._shown = 0
        output = shlex.quote(str(self._file))
        # The status by a pipe of ours, which no command of the page inherits.
        status = 'printf "%s\\n" "$?" >&"$STATUS_FD"'
        self._type(f"{{ {command}\n}} >{output} 2>&1 </dev/null; {status}")

    def prints(self, lines: list[str], seconds: float) -> bool:
        """Wait until the command that runs has printed `lines`, after what it was seen to print before."""

        def matches() -> bool:
            assert self._bash.poll() is None, self.output
            if found := re.match(rf"{_pattern(lines)}\n", self.output[self._shown :], re.DOTALL):
                self._shown += found.end()
            return found is not None or not lines

        return eventually(matches, seconds, every_s=0.1)

    @property
    def output(self) -> str:
        """What the newest command has printed so far."""
        return self._file.read_text() if self._file.exists() else ""

    def close(self, seconds: float) -> None:
        """Press Ctrl-C, and end what has not ended by that in so many `seconds`."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGINT)
        assert self._bash.stdin
        with suppress(BrokenPipeError):
            self._bash.stdin.close()
        try:
            self._bash.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.wait()
        self._statuses.close()

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._count:02}"

    def _type(self, text: str) -> None:
        assert self._bash.stdin
        self._bash.stdin.write(f"{text}\n")
        self._bash.stdin.flush()


class Reader:
    """Follows pages in `folder`, in terminals that stay open. Use it in a `with` block.

    Args:
        folder: where each terminal begins, and files are written.
        logs: gets what the commands print.
        environment: of the terminals.
        prelude: typed first in each terminal.
        seconds: how long a command may take.
        statuses: exit statuses that a command may have.
    """

    def __init__(
        self,
        folder: Path,
        logs: Path,
        environment: Mapping[str, str],
        *,
        prelude: str = "",
        seconds: float = 60.0,
        statuses: frozenset[int] = frozenset({0}),
    ) -> None:
        self._folder, self._logs, self._prelude = folder, logs, prelude
        self._environment = dict(environment)
        self._seconds, self._statuses = seconds, statuses
        self._shells: dict[str, Shell] = {}
        self._page = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the terminals, the newest first: what the others need was started before them."""
        while self._shells:
            self._shells.popitem()[1].close(min(_END_S, self._seconds))

    def follow(self, page: Path) -> None:
        """Do all that `page` says, in terminals of its own.

        Raises AssertionError where something else is printed than it shows.
        """
        self.close()
        todo, self._page = steps(page), page.stem
        assert any(isinstance(each, Step) for each in todo)
        for each in todo:
            if isinstance(each, File):
                path = self._folder / each.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(each.text)
            else:
                self._do(each)

    def _do(self, step: Step) -> None:
        shell = self._shells.get(step.terminal)
        if shell is None:
            logs = self._logs / f"{self._page}-{step.terminal.replace(' ', '-').lower()}"
            shell = self._shells[step.terminal] = Shell(logs, self._folder, self._environment, self._prelude)
        if not step.command or step.stays:
            if step.command:
                shell.start(step.command)
            is_shown = shell.prints(step.shown, self._seconds)
            assert is_shown, f"{step.terminal}: {step.shown}\n{shell.output}"
            return
        status, printed = shell.run(step.command, self._seconds)
        assert status in self._statuses, f"{step.command}\n{printed}"
        assert shows(printed, step.shown), f"{step.command}\n{printed}"


def clean_environment(**more: str) -> dict[str, str]:
    """Return an environment with nothing of this machine's account, and with the commands of this Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "EVENTPLANE_")) and name not in ("MAKEFLAGS", "PYTHONPATH")
    }
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}
