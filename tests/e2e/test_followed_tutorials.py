"""The tutorials that need a plane, as a reader follows them: one plane, terminals, files, commands."""

import shlex
import sys
from pathlib import Path

import pytest

from lab.ports import free_port
from tests.e2e.conftest import Desk, state
from tests.tutorials import FOLDER, ROOT, Reader, clean_environment

SECONDS = 300.0
"""How long a command may take on a busy machine: a deployment is one."""

OWN_SERVER = "8123"
"""The port of the server that a reader starts."""

MAKE = """
make() {{
  case "$1" in
    up) local_up status && sleep infinity ;;
    publish) local_up publish ${{2:+--webhook "${{2#WEBHOOK=}}"}} ;;
    packages) {python} {root}/lab/tools/packages.py --output build/packages ;;
    *) return 2 ;;
  esac
}}
"""
"""What `make` does here: it shares the plane of other tests, and installs no tools."""


@pytest.mark.parametrize("page", ["first-event", "add-a-service"])
def test_each_command_prints_what_the_page_shows(desk: Desk, tmp_path: Path, page: str) -> None:
    assert desk.running
    project = desk.project
    (project / "build").mkdir(exist_ok=True)
    if not (project / "build" / "up").is_symlink():
        (project / "build" / "up").symlink_to(desk.folder.path)
    python = shlex.quote(sys.executable)
    prelude = (
        f"local_up() {{ (cd {shlex.quote(str(ROOT))} && exec {python} -m lab.up "
        f'--folder {shlex.quote(str(desk.folder.path))} "$@"); }}\n'
        + MAKE.format(python=python, root=shlex.quote(str(ROOT)))
    )
    environment = clean_environment(XDG_STATE_HOME=str(tmp_path / "state"))
    environment["PATH"] = f"{ROOT / 'lab' / 'bin'}:{environment['PATH']}"
    # A trace exits with 3 where a reader leaves no receipts.
    statuses = frozenset({0, 3})
    with Reader(
        project, tmp_path / "terminals", environment, prelude=prelude, seconds=SECONDS, statuses=statuses
    ) as reader:
        reader.follow(_on_a_free_port(FOLDER / f"{page}.md", tmp_path))
    assert state(desk.running)["contract"] == desk.running.contract_version


def _on_a_free_port(page: Path, folder: Path) -> Path:
    """Return a copy of `page` in `folder` whose own server listens where nobody else does."""
    copy = folder / page.name
    copy.write_text(page.read_text().replace(OWN_SERVER, str(free_port())))
    return copy
