"""Answers with what it was asked."""

from __future__ import annotations

from typing import Any


def handler(event: Any, _context: object) -> Any:
    return event
