"""`eventplane init NAME`: a project of one's own, with a contract, two services and their test."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from contract.scaffold import new_project
from operations.command import DONE, present


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Start a project: a contract with a schema, two services, and a test of both."
    parser.set_defaults(run=_init)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="NAME",
        help="its name, and the new or empty folder that it is written to",
    )


def _init(options: argparse.Namespace) -> int:
    folder = options.folder
    files = [str(each) for each in new_project(folder)]
    steps = [
        shlex.join(["cd", str(folder)]),
        "python3 -m venv .venv",
        ".venv/bin/pip install --find-links WHEELS -r requirements.txt",
        ".venv/bin/pytest",
    ]
    lines = [
        f"{folder}: a button in a home and a service in the cloud",
        *(f"  added {each}" for each in files),
    ]
    lines += ["next, with the folder of Event Plane's wheels for WHEELS:", *(f"  {each}" for each in steps)]
    present(options, {"project": str(folder), "files": files, "next": steps}, "\n".join(lines))
    return DONE
