"""What carers are told: the words are those of `texts.toml`, and of nowhere else."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventplane import presence
from lambdas.presence.reports import Report
from lambdas.presence.state import Incident

TEXTS: Final = Path(__file__).with_name("texts.toml")

OVER: Final = "over"
"""The text that ends an incident, whatever it began with."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is said for one reason: a headline, what it means, and what to check, in this order."""

    title: str
    text: str
    check: tuple[str, ...]


class Notices:
    """Writes notices with the texts of the file at `path`. Raises what reading it raises."""

    def __init__(self, path: Path = TEXTS) -> None:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        self._texts = {
            name: Text(each["title"], each["text"], tuple(each["check"])) for name, each in read.items()
        }

    @property
    def reasons(self) -> frozenset[str]:
        """What there is a text for."""
        return frozenset(self._texts)

    def wrong(self, device: str, incident: Incident, since_ms: int, *, is_new: bool) -> Report:
        """The notice that an incident began, or got worse, `since_ms` (Unix milliseconds)."""
        return self._notice(device, incident, incident.reason, "opened" if is_new else "worsened", since_ms)

    def over(self, device: str, incident: Incident, now_ms: int) -> Report:
        """The notice that nobody needs to check anything any more."""
        return self._notice(device, incident, OVER, "over", now_ms)

    def _notice(self, device: str, incident: Incident, name: str, phase: str, since_ms: int) -> Report:
        text = self._texts[name]
        return Report(
            presence.NOTICE,
            since_ms,
            {
                "incident": incident.id,
                "phase": phase,
                "reason": incident.reason,
                "title": text.title.format(device=device),
                "text": text.text.format(device=device),
                "check": [each.format(device=device) for each in text.check],
            },
        )
