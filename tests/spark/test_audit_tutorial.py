"""The tutorial "Audit a day" works as written."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.tutorials import FOLDER, ROOT, Reader, clean_environment

MAKE = """
make() {{
  local "${{@:2}}"
  {python} -m glue_jobs.delivery_audit --INPUT "$INPUT" --OUTPUT "$OUTPUT" --DATE "$DATE"
  {python} -m local.audit_page "$OUTPUT" --archive "$INPUT"
}}
"""
"""What `make audit` does, without installing tools."""


def test_each_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    environment = clean_environment(PYTHONPATH=str(ROOT))
    environment["PATH"] = f"{ROOT / 'tools' / 'bin'}:{environment['PATH']}"
    prelude = MAKE.format(python=shlex.quote(sys.executable))
    page = FOLDER / "audit-a-day.md"
    (tmp_path / "build").mkdir()
    # A trace that lacks a step exits with 1.
    statuses = frozenset({0, 1})
    with Reader(
        tmp_path, tmp_path / "terminals", environment, prelude=prelude, seconds=600.0, statuses=statuses
    ) as reader:
        reader.follow(page)
    assert (tmp_path / "build" / "day" / "audit" / "audit.html").is_file()
