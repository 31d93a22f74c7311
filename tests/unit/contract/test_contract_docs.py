"""docs/reference/contract.md shows what the commands print: every example in it is run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from eventplane.__main__ import main
from tools import tables

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "contract.md").read_text()


def examples() -> str:
    """The text of all console blocks: commands, and what they print."""
    return "\n".join(re.findall(r"```console\n(.*?)\n```", PAGE, re.DOTALL))


def test_every_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    monkeypatch.chdir(tmp_path)
    printed = []
    for command in re.findall(r"^\$ (.*)", examples(), re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "eventplane"
        main(arguments)
        output = capsys.readouterr()
        printed.append(f"$ {command}\n{output.out}{output.err}")
    assert len(printed) == 2
    assert "".join(printed).rstrip() == examples()


def test_the_contract_of_the_page_is_the_example() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (ROOT / "docs" / "examples" / "doorbell.yaml").read_text()


def test_the_table_of_settings_is_current() -> None:
    assert tables.current(PAGE) == PAGE
