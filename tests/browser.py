"""A page in headless Chromium, and what a script beside it has seen."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any


def seen_by(frame: Path) -> dict[str, Any]:
    """What the script of the page `frame` left as JSON in its body's `data-seen`.

    The page under test is a frame of it: a window of Chromium cannot be as narrow as a phone.
    """
    dom = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            f"--user-data-dir={frame.with_name('profile')}",
            "--window-size=1400,900",
            "--virtual-time-budget=10000",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    found = re.search(r'data-seen="([^"]*)"', dom)
    assert found is not None, dom
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen
