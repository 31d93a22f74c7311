"""Entity tags of HTTP (RFC 9110, 8.8.3), and the conditions that name them."""

from __future__ import annotations

import hashlib


def tag_of(content: bytes) -> str:
    """The strong tag of just this `content`."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def if_match_names(condition: str, tag: str | None) -> bool:
    """Whether If-Match names an entity with the strong `tag`, None where there is none (RFC 9110, 13.1.1)."""
    return _names(_listed(condition), tag)


def if_none_match_names(condition: str, tag: str | None) -> bool:
    """Whether If-None-Match names it, as weak or not (RFC 9110, 13.1.2)."""
    return _names([each.removeprefix("W/") for each in _listed(condition)], tag)


def _listed(condition: str) -> list[str]:
    return [each.strip() for each in condition.split(",")]


def _names(tags: list[str], tag: str | None) -> bool:
    return tag is not None and ("*" in tags or tag in tags)
