"""The meanings of the reasons of dead letters, with the remedies, from `reason_texts.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

_SENDER: Final = "Correct the sender, which sends it anew: as it is, it would be refused again."

TEXTS: Final[dict[str, list[str]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""By reason, and for `another`."""


def explained(word: str) -> tuple[str, str]:
    """Return what a dead letter's reason `word` means, and the remedy."""
    means, remedy = [*TEXTS.get(word, TEXTS["another"]), _SENDER][:2]
    return means, remedy
