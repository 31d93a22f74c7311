"""The texts of alarms, from `alarms.toml`: when each is raised, and what to do."""

from __future__ import annotations

import posixpath
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#]*)[^)]*\)")


class AlarmText(NamedTuple):
    """The text of the alarms that `names` lists: when they are raised, and the remedy, in Markdown."""

    names: str
    topic: str
    when: str
    remedy: str

    def topics(self) -> dict[str, str]:
        """Return the pattern of each alarm's name, with its topic."""
        # In parentheses is the setting that an alarm depends on.
        patterns = re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", self.names))
        return dict(zip(patterns, self.topic.split(", "), strict=True))


@cache
def alarm_texts() -> tuple[AlarmText, ...]:
    """Return the texts in the order in which they are searched."""
    found = tomllib.loads(Path(__file__).with_name("alarms.toml").read_text())
    return tuple(AlarmText(**each) for each in found["alarm"])


def description(name: str) -> str:
    """Return the description of the alarm `name`, without project and environment, as plain text.

    Raises:
        KeyError: no text fits the name.
    """
    for each in alarm_texts():
        if any(re.fullmatch(_expression(pattern), name) for pattern in each.topics()):
            return _LINK.sub(_plain_link, f"Raised while {each.when}. To do: {each.remedy}.")
    raise KeyError(name)


def _expression(pattern: str) -> str:
    """Return the names that fit `pattern`; alarms of many queues or functions are numbered."""
    kind, _, suffix = pattern.rpartition(">")
    place = {"": "", "<ingest rule": r"ingest\w*"}.get(kind, ".+")
    return rf"{place}{re.escape(suffix)}(-\d+)?"


def _plain_link(found: re.Match[str]) -> str:
    text, target = found.groups()
    if not target:
        return text
    return f"{text} ({posixpath.normpath(posixpath.join('docs/reference', target))})"
